"""The real benchmark: loads ChemCoTBench rows and maps them, whatever their shape, to examples.

Two shapes are known: the published table (id, query, gt, task, subtask, meta as a JSON string) and the authors' JSON
files (molecule, added_group, smiles, fg_num, ...). Optimisation and reaction rows have no reward here and are skipped.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from llmzero.domain.errors import UsageError
from llmzero.domain.examples import Example, Split, Transcript
from llmzero.tasks.chemcot import chem, known_bad, prompts, reward

REPO_ID: Final = "OpenMol/ChemCoTBench"
KEYS: Final = {"count": "count", "scaffold": "Output Scaffold", "choice": "output", "edit": "output"}
KINDS: Final = {
    "add": "edit",
    "delete": "edit",
    "sub": "edit",
    "fg_count": "count",
    "ring_count": "count",
    "Murcko_scaffold": "scaffold",
    "ring_system_scaffold": "choice",
    "equivalence": "choice",
}

_SOURCE_NAMES = ("molecule", "smiles", "smiles_a", "src_smiles", "source_smiles")
_GOLD_NAMES = {
    "edit": ("reference", "gt"),
    "count": ("fg_num", "count", "gt"),
    "scaffold": ("largest_scaffold", "gt"),
    "choice": ("gt",),
}
_OTHER_NAMES = (("other", "smiles_b"), ("ring", "ring"), ("ring", "ring_system_scaffold"), ("group", "fg_name"))
_GROUP_NAMES = (("added", "added_group"), ("removed", "removed_group"))


@dataclass(frozen=True, slots=True)
class Loaded:
    """Usable examples by split, how many rows were skipped (by sub-task), and why others are unsound (by id)."""

    splits: Mapping[Split, tuple[Example, ...]]
    skipped: Mapping[str, int]
    unsound: Mapping[str, str]


def load(revision: str = "main") -> Loaded:
    """Downloads the benchmark at a revision (a branch or, better, a commit). UsageError when it cannot be had."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise UsageError("the real benchmark needs the package `datasets`: pip install datasets") from error
    try:
        rows = load_dataset(REPO_ID, split="train", revision=revision)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(unreachable(error)) from error
    return arrange([dict(row) for row in rows])


def unreachable(error: Exception) -> str:
    """One line: what failed, and the two ways out."""
    cause = " ".join(str(error).split())[:160] or type(error).__name__
    return (
        f"cannot load {REPO_ID} ({type(error).__name__}: {cause}): accept its terms on its page and log in with "
        "`hf auth login`, or use the offline miniature with data = 'mini'"
    )


def arrange(rows: Iterable[Mapping[str, object]]) -> Loaded:
    """Maps rows, drops those whose reference is no right answer, and splits the rest by scaffold."""
    skipped: Counter[str] = Counter()
    unsound: dict[str, str] = {}
    splits: dict[Split, list[Example]] = {"train": [], "validation": [], "test": []}
    for row in rows:
        example = map_row(row)
        if example is None:
            skipped[f"{row.get('task', '?')}/{row.get('subtask', '?')}"] += 1
        elif fault := fault_of(example):
            unsound[example.id or str(example.fields["source"])] = fault
        else:
            splits[chem.split_of(chem.scaffold(chem.source_mol(str(example.fields["source"]))))].append(example)
    return Loaded({split: tuple(each) for split, each in splits.items()}, dict(skipped), unsound)


def fault_of(example: Example) -> str:
    """Why a row's own reference is no right answer: the known reason, else what the reward says of it; "" if sound."""
    known = known_bad.find(example)
    if known:
        return known.reason
    reference = prompts.answer(example.fields["gold"], str(example.fields["key"]))
    scored = reward.score(example, Transcript.of(reference))
    return "" if scored.value == 1.0 else f"not a known bad row, but its reference earns nothing: {scored.reason}"


def map_row(row: Mapping[str, object]) -> Example | None:
    """One row of either shape; None for a sub-task without a reward here, or a row that lacks what the reward needs."""
    subtask = str(row.get("subtask", ""))
    kind = KINDS.get(subtask)
    if kind is None:
        return None
    record = {**_meta(row.get("meta")), **{name: value for name, value in row.items() if value not in (None, "")}}
    query = str(record.get("query", ""))
    source, gold = _first(record, _SOURCE_NAMES) or _source_in(query), _first(record, _GOLD_NAMES[kind])
    fields: dict[str, object] = {"kind": kind, "key": KEYS[kind], "source": source, "gold": gold, "query": query}
    if kind == "edit":
        fields |= {ours: _group(record.get(theirs)) for ours, theirs in _GROUP_NAMES}
    fields |= {ours: str(record[theirs]) for ours, theirs in _OTHER_NAMES if record.get(theirs)}
    if subtask == "ring_system_scaffold":
        fields["official_yes"] = True
    return Example(str(record.get("id", "")), subtask, fields) if _complete(subtask, fields) else None


def _complete(subtask: str, fields: Mapping[str, object]) -> bool:
    groups = {"add": ("added",), "delete": ("removed",), "sub": ("added", "removed")}.get(subtask, ())
    if chem.parse(fields["source"]) is None or not fields["gold"] or not all(fields[name] for name in groups):
        return False
    try:
        return bool(prompts.text(subtask, fields))
    except KeyError:
        return False


def _meta(value: object) -> dict[str, object]:
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except (ValueError, RecursionError):
            return {}
    return dict(value) if isinstance(value, Mapping) else {}


def _first(record: Mapping[str, object], names: Sequence[str]) -> str:
    """The first of several columns that holds a non-empty text or number, as text."""
    values = (record[name] for name in names if isinstance(record.get(name), (str, int)))
    return next((str(value).strip() for value in values if str(value).strip()), "")


def _group(name: object) -> str:
    """A group the counting rules know, or ""."""
    written = str(name or "").strip().lower().replace(" ", "_")
    return written if written in chem.GROUPS else ""


def _source_in(query: str) -> str:
    """The molecule a question is about: the one it labels so, else the longest word that is a valid SMILES."""
    labelled = re.search(r"(?:Input Molecule|Molecule SMILES|Source Molecule|the molecule):?\s+([^\s,]+)", query)
    named = labelled.group(1).rstrip(".;:?") if labelled else ""
    words = sorted((word.strip(".,;:?\"'`") for word in query.split()), key=len, reverse=True)[:40]
    candidates = [named, *(word for word in words if len(word) > 3)]
    return next((word for word in candidates if chem.parse(word) is not None), "")
