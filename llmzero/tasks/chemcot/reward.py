"""Rewards for ChemCoTBench answers, hardened against the shortcuts its official checks let through.

An edited molecule must be one valid, connected, changed molecule that keeps the source's core, adds no radical and
grows no more than its group; only then do the group counts decide. Counts, scaffolds and yes/no are exact matches.
The value is 1 or 0: nothing is paid for format, and `official` carries the benchmark's own figure for the same answer.
"""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from rdkit import DataStructs
from rdkit.Chem import rdFingerprintGenerator, rdFMCS

from llmzero.domain.examples import Example, Reward, Transcript
from llmzero.tasks.base import json_answers, single
from llmzero.tasks.chemcot import chem

MCS_TIMEOUT_S: Final = 2
CORE_SHARE: Final = 0.6
"""Share of the source's atoms, less the removed group's, that an edit must keep (by maximum common substructure)."""
SPARE_ATOMS: Final = 2
"""Heavy atoms an added group may bring beyond its own: a linker carbon, say."""

_COUNT = re.compile(r"[0-9]{1,3}")
_NO_ANSWER = "no single answer in the asked JSON form"


def score(example: Example, transcript: Transcript) -> Reward:
    """The reward of one transcript; 0 with a reason for anything unreadable. Never raises on model output."""
    fields = example.fields
    answer = single(json_answers(transcript.answer, str(fields["key"])))
    if answer is None:
        return Reward(0.0, _NO_ANSWER, _official_of_nothing(example))
    try:
        return _RULES[str(fields["kind"])](answer, fields)
    except (ValueError, RuntimeError, OverflowError, MemoryError) as error:
        return Reward(0.0, f"the checker gave up: {type(error).__name__}", _official_of_nothing(example))


def _edit(answer: str, fields: Mapping[str, object]) -> Reward:
    mol = chem.parse(answer)
    if mol is None:
        return Reward(0.0, "not a valid SMILES", 0.0)
    source = chem.source_mol(str(fields["source"]))
    added, removed = str(fields.get("added", "")), str(fields.get("removed", ""))
    counts_right = _counts_right(source, mol, added, removed)
    problem = _gate(source, mol, added, removed) or ("" if counts_right else "wrong change in group counts")
    problem = problem or _core(source, mol, added, removed, strict=bool(fields.get("strict")))
    return Reward(0.0 if problem else 1.0, problem or "right edit", float(counts_right))


def _counts_right(source: chem.Mol, mol: chem.Mol, added: str, removed: str) -> bool:
    """The official pass rule: one group more, one less, or both."""
    return all(
        chem.count_group(mol, group) == chem.count_group(source, group) + change
        for group, change in ((added, 1), (removed, -1))
        if group
    )


def _gate(source: chem.Mol, mol: chem.Mol, added: str, removed: str) -> str:
    """Why a molecule is no edit of the source at all; "" when it may be one. Cheap checks only."""
    if chem.fragments(mol) > chem.fragments(source):
        return "more fragments than the source"
    if chem.canonical(mol) == chem.canonical(source):
        return "same molecule as the source"
    allowed = chem.GROUPS[added].heavy_atoms + SPARE_ATOMS if added else 0
    if chem.heavy_atoms(mol) - chem.heavy_atoms(source) > allowed:
        return "grew by more than the group"
    return "new radical" if chem.radicals(mol) > chem.radicals(source) else ""


def _core(source: chem.Mol, mol: chem.Mol, added: str, removed: str, *, strict: bool) -> str:
    """Why the rest of the molecule is not the source's; "" when it is.

    Exact first: source less the removed group equals answer less the added one. `strict` (the miniature) stops there;
    real items, whose references restructure more, fall back on the maximum common substructure.
    """
    if chem.cores(source, removed) & chem.cores(mol, added):
        return ""
    if strict:
        return "the rest of the molecule changed"
    found = rdFMCS.FindMCS([source, mol], timeout=MCS_TIMEOUT_S, ringMatchesRingOnly=False, completeRingsOnly=False)
    to_keep = chem.heavy_atoms(source) - (chem.GROUPS[removed].heavy_atoms if removed else 0)
    return "" if found.numAtoms >= CORE_SHARE * to_keep else "the core of the molecule is lost"


def _count(answer: str, fields: Mapping[str, object]) -> Reward:
    if not _COUNT.fullmatch(answer):
        return Reward(0.0, "not a count")
    distance = abs(int(answer) - int(str(fields["gold"])))
    return Reward(float(distance == 0), "right count" if distance == 0 else "wrong count", float(distance))


def _scaffold(answer: str, fields: Mapping[str, object]) -> Reward:
    mol = chem.parse(answer)
    if mol is None:
        return Reward(0.0, "not a valid SMILES", 0.0)
    gold = chem.source_mol(str(fields["gold"]))
    exact = chem.canonical(mol) == chem.canonical(gold)
    return Reward(float(exact), "right scaffold" if exact else "not the scaffold", _soft_scaffold(mol, gold))


def _soft_scaffold(mol: chem.Mol, gold: chem.Mol) -> float:
    """The benchmark's figure: 1 when the scaffolds of both agree, else their Morgan (radius 2, 1,024 bits) Tanimoto."""
    ours, theirs = chem.scaffold(mol), chem.scaffold(gold)
    if ours == theirs:
        return 1.0
    first, second = chem.parse(ours), chem.parse(theirs)
    if first is None or second is None:
        return 0.0
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=1024)
    prints = [generator.GetFingerprint(each) for each in (first, second)]
    return float(DataStructs.TanimotoSimilarity(prints[0], prints[1]))


def _choice(answer: str, fields: Mapping[str, object]) -> Reward:
    """Yes or no. The official ring-system metric calls every "yes" right; it is kept as `official` only."""
    said, gold = answer.lower(), str(fields["gold"]).lower()
    right = said == gold
    official = float(said == "yes") if fields.get("official_yes") else float(right)
    return Reward(float(right), "right" if right else "wrong", official)


def _official_of_nothing(example: Example) -> float | None:
    """An unreadable answer is 0 officially, except for counts, which the official code drops from its mean error."""
    return None if example.fields["kind"] == "count" else 0.0


_RULES: Final[dict[str, Callable[[str, Mapping[str, object]], Reward]]] = {
    "edit": _edit,
    "count": _count,
    "scaffold": _scaffold,
    "choice": _choice,
}
