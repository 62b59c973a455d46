"""The chemistry that data and rewards share: groups, counts, canonical forms, scaffolds, and the scaffold split.

RDKit is quiet here: its parser would otherwise print a line for every wrong SMILES a model writes.
"""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,attr-defined,unused-ignore"

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from rdkit import Chem, RDLogger
from rdkit.Chem import rdMolDescriptors
from rdkit.Chem.Scaffolds import MurckoScaffold

from llmzero.domain.examples import Split

RDLogger.DisableLog("rdApp.*")

Mol = Any
"""An RDKit molecule (the wheel ships no usable types)."""

MAX_SMILES_CHARS: Final = 400
FIXED_SCAFFOLDS: Final = frozenset({"", "c1ccccc1"})
"""Half of all small molecules are acyclic or one benzene ring; both go to train so that the other splits stay mixed."""


@dataclass(frozen=True, slots=True)
class Group:
    """A functional group: the benchmark's counting rule and, where the miniature edits with it, how it is written.

    `tails` are the group's SMILES after the atom it hangs on, `heads` the same group written first. `site` matches
    that atom first and then the whole group; an acyl carbon does not count (its OH makes an acid, not an alcohol).
    """

    smarts: str
    heavy_atoms: int
    site: str = ""
    tails: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()


_CARBON = "[#6;!$(C=O)]"

GROUPS: Final[dict[str, Group]] = {
    # SMARTS: the benchmark's own counting rules (IDEA-XL/ChemCoTBench, eval_moledit.py), so official scores agree.
    "aldehyde": Group("[CX3H1](=O)[#6]", 2, _CARBON + "[CX3H1]=O", ("C=O",), ("O=C",)),
    "amide": Group("[NX3][CX3](=[OX1])[#6]", 3, _CARBON + "C(=O)[NX3H2]", ("C(N)=O",), ("NC(=O)",)),
    "amine": Group("[NX3;H2,H1;!$(NC=O)]", 1, _CARBON + "[NX3H2]", ("N",), ("N",)),
    "anhydride": Group("[CX3](=[OX1])[OX2][CX3](=[OX1])", 5),
    "benzene_ring": Group("[cR1]1[cR1][cR1][cR1][cR1][cR1]1", 6),
    "borane": Group("[BX3]", 1),
    "carboxyl": Group("[CX3](=O)[OX2H1]", 3, _CARBON + "C(=O)[OX2H1]", ("C(=O)O",), ("O=C(O)",)),
    "disulfide": Group("[#16X2H0][#16X2H0]", 2),
    "ester": Group("[#6][CX3](=O)[OX2H0][#6]", 4),
    "halo": Group("[F,Cl,Br,I]", 1, _CARBON + "[F,Cl,Br,I]", ("F", "Cl", "Br"), ("F", "Cl", "Br")),
    "hydroxyl": Group("[OX2H]", 1, _CARBON + "[OX2H]", ("O",), ("O",)),
    "ketone": Group("[#6][CX3](=O)[#6]", 3),
    "nitrile": Group("[NX1]#[CX2]", 2, _CARBON + "C#[NX1]", ("C#N",), ("N#C",)),
    "nitro": Group(
        "[$([NX3](=O)=O),$([NX3+](=O)[O-])][!#8]",
        3,
        _CARBON + "[N+](=O)[O-]",
        ("[N+](=O)[O-]",),
        ("O=[N+]([O-])",),
    ),
    "sulfide": Group("[#16X2H0]", 1),
    "sulfone": Group("[$([#16X4](=[OX1])=[OX1]),$([#16X4+2]([OX1-])[OX1-])]", 3),
    "sulfoxide": Group("[$([#16X3]=[OX1]),$([#16X3+][OX1-])]", 2),
    "thioether": Group("[SX2][CX4]", 1),
    "thiol": Group("[#16X2H]", 1, _CARBON + "[SX2H]", ("S",), ("S",)),
}


@lru_cache(maxsize=256)
def pattern(smarts: str) -> Mol:
    """A compiled SMARTS; ValueError when it is not one."""
    compiled = Chem.MolFromSmarts(smarts)
    if compiled is None:
        raise ValueError(f"not a SMARTS pattern: {smarts!r}")
    return compiled


def parse(smiles: object) -> Mol | None:
    """A molecule, or None for anything that is not a short, valid, non-empty SMILES without wildcard atoms."""
    if not isinstance(smiles, str) or not smiles.strip() or len(smiles) > MAX_SMILES_CHARS or not smiles.isascii():
        return None
    mol = Chem.MolFromSmiles(smiles.strip())
    if mol is None or mol.GetNumAtoms() == 0 or mol.HasSubstructMatch(pattern("[#0]")):
        return None
    return mol


@lru_cache(maxsize=8192)
def source_mol(smiles: str) -> Mol:
    """A molecule of the data set, parsed once; ValueError when the data are wrong. Never modify the result."""
    mol = parse(smiles)
    if mol is None:
        raise ValueError(f"the data hold an invalid SMILES: {smiles!r}")
    return mol


def canonical(mol: Mol) -> str:
    return str(Chem.MolToSmiles(mol))


def count_matches(mol: Mol, smarts: str) -> int:
    return len(mol.GetSubstructMatches(pattern(smarts)))


def count_group(mol: Mol, name: str) -> int:
    """How many groups the benchmark sees; `sulfide` leaves disulfides out, as there."""
    found = count_matches(mol, GROUPS[name].smarts)
    return found - count_matches(mol, GROUPS["disulfide"].smarts) if name == "sulfide" else found


def fragments(mol: Mol) -> int:
    return len(Chem.GetMolFrags(mol))


def radicals(mol: Mol) -> int:
    return sum(atom.GetNumRadicalElectrons() for atom in mol.GetAtoms())


def cores(mol: Mol, group: str) -> frozenset[str]:
    """What is left of a molecule, canonically, for each way of taking one `group` off; {itself} when group is ""."""
    if not group:
        return frozenset({canonical(mol)})
    site = GROUPS[group].site
    matches = mol.GetSubstructMatches(pattern(site)) if site else ()
    return frozenset(left for match in matches if (left := _without(mol, match[1:])))


def attach(mol: Mol, atom_index: int, tail: str) -> str:
    """The canonical SMILES with the group `tail` on an atom; "" where chemistry forbids it."""
    joined = Chem.RWMol(Chem.CombineMols(mol, source_mol(tail)))
    joined.AddBond(atom_index, mol.GetNumAtoms(), Chem.BondType.SINGLE)
    try:
        Chem.SanitizeMol(joined)
    except ValueError:
        return ""
    return canonical(joined)


def open_carbons(mol: Mol) -> list[int]:
    """Carbons that can carry one more group: at least one hydrogen, and not an acyl carbon."""
    return [match[0] for match in mol.GetSubstructMatches(pattern("[#6;!$(C=O);!H0]"))]


def _without(mol: Mol, atoms: tuple[int, ...]) -> str:
    """The canonical rest after removing atoms; "" when they were not one terminal group."""
    rest = Chem.RWMol(mol)
    for index in sorted(atoms, reverse=True):
        rest.RemoveAtom(index)
    try:
        Chem.SanitizeMol(rest)
    except ValueError:
        return ""
    return canonical(rest) if rest.GetNumAtoms() and fragments(rest) == 1 else ""


def scaffold(mol: Mol) -> str:
    """Canonical Murcko scaffold; "" for an acyclic molecule."""
    return str(MurckoScaffold.MurckoScaffoldSmiles(mol=mol))


def heavy_atoms(mol: Mol) -> int:
    return int(rdMolDescriptors.CalcNumHeavyAtoms(mol))


def split_of(scaffold_smiles: str, train: float = 0.6, validation: float = 0.2) -> Split:
    """The split a scaffold belongs to, by its hash: the same for every seed, task version and data source."""
    if scaffold_smiles in FIXED_SCAFFOLDS:
        return "train"
    digest = hashlib.sha256(f"chemcot/{scaffold_smiles}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    if share < train:
        return "train"
    return "validation" if share < train + validation else "test"
