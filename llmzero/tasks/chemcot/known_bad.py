"""The six benchmark rows whose own reference is no right answer: each by name, with its reason and a check of it.

Found by putting the references of all 420 understanding and editing rows of github.com/IDEA-XL/ChemCoTBench (commit
ac04f91) through this package's reward and the checks of `shows`; the other 414 pass both. A row is recognised by its
sub-task and the InChIKey of its source molecule, as copies of the benchmark need not share ids; `id` is the authors'.
"""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,attr-defined,unused-ignore"

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, assert_never

from rdkit import Chem
from rdkit.Chem import rdFMCS

from llmzero.domain.examples import Example, Transcript
from llmzero.tasks.chemcot import chem, prompts, reward

Fault = Literal["two fragments", "count rule", "core lost"]


@dataclass(frozen=True, slots=True)
class BadRow:
    """One row; `fault` is what a program can verify on it, `reason` the chemistry behind it."""

    id: str
    subtask: str
    source_inchikey: str
    fault: Fault
    reason: str


KNOWN_BAD: Final[tuple[BadRow, ...]] = (
    BadRow(
        "e583e34b-d5ab-41f2-a584-b9d868f5a965",
        "delete",
        "ZGQTZRGATYCNBY-UFWORHAWSA-N",
        "two fragments",
        "the amide joins the two halves of the molecule; the reference cuts it out and is a mixture of what is left",
    ),
    BadRow(
        "00cbdb97-89f0-411b-974f-414447966aba",
        "delete",
        "IYAAMLXRCLOMCC-UHFFFAOYSA-O",
        "two fragments",
        "the para-substituted benzene ring is the linker; the reference is acetamide beside an ammonium ion",
    ),
    BadRow(
        "75d3c721-05f6-4ccc-aaef-d9a65145150b",
        "delete",
        "HQDRROXDFGKXMK-BEFAXECRSA-N",
        "core lost",
        "the amide joins two ring systems; the reference cuts it out and bonds the halves directly, another skeleton "
        "(the reward's own rule lets it pass, as its common substructure may break rings)",
    ),
    BadRow(
        "77296f9e-81c8-4601-a3be-8d2ae3cc28b9",
        "sub",
        "UGZWGTCRNZLANL-GHMZBOCLSA-N",
        "count rule",
        "the reference turns a benzylic alcohol into an acid as asked, but the hydroxyl pattern counts the acid's OH, "
        "so that no hydroxyl is gone by the official rule",
    ),
    BadRow(
        "04864b68-51b7-48b7-b521-0446aea76779",
        "sub",
        "ZFAGLPJUIQPOBH-UHFFFAOYSA-N",
        "count rule",
        "the reference turns a phenol into a benzoic acid as asked, but the hydroxyl pattern counts the acid's OH, "
        "so that no hydroxyl is gone by the official rule",
    ),
    BadRow(
        "289a0cdf-8ec0-45bf-aa63-bcfc13af06e1",
        "sub",
        "TYJLPTCMXOVOFW-JTQLQIEISA-N",
        "core lost",
        "asked for an aldehyde in place of the thiol, the reference also turns the thioether between ring and side "
        "chain into an ether",
    ),
)


def find(example: Example) -> BadRow | None:
    """The table's entry for a row; None for any other row, and for one whose reference no longer has the fault."""
    if example.fields["kind"] != "edit":
        return None
    inchikey = str(Chem.MolToInchiKey(chem.source_mol(str(example.fields["source"]))))
    named = (bad for bad in KNOWN_BAD if (bad.subtask, bad.source_inchikey) == (example.subtask, inchikey))
    return next((bad for bad in named if shows(bad.fault, example)), None)


def shows(fault: Fault, example: Example) -> bool:
    """Whether the reference of an editing row has a fault; False for one that is no molecule at all."""
    source, gold = chem.source_mol(str(example.fields["source"])), chem.parse(example.fields["gold"])
    if gold is None:
        return False
    match fault:
        case "two fragments":
            return chem.fragments(gold) > chem.fragments(source)
        case "count rule":
            answer = prompts.answer(example.fields["gold"], str(example.fields["key"]))
            return reward.score(example, Transcript.of(answer)).official == 0.0
        case "core lost":
            removed = str(example.fields.get("removed", ""))
            to_keep = chem.heavy_atoms(source) - (chem.GROUPS[removed].heavy_atoms if removed else 0)
            return _kept(source, gold) < reward.CORE_SHARE * to_keep
        case _:
            assert_never(fault)


def _kept(source: chem.Mol, gold: chem.Mol) -> int:
    """Atoms of the largest substructure both molecules share, with rings kept whole (the reward may break them)."""
    found = rdFMCS.FindMCS(
        [source, gold], timeout=reward.MCS_TIMEOUT_S, ringMatchesRingOnly=True, completeRingsOnly=True
    )
    return int(found.numAtoms)
