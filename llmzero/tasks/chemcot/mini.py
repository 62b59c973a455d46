"""The offline miniature: real small molecules (the NCI file inside the rdkit wheel), questions made from a seed.

A source for delete and substitute is a pool molecule with a group hung on it, so every question has a known answer.
Scaffolds never cross splits. The seed draws the training set only: validation and test are the same for every run.
"""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rdkit import RDConfig

from llmzero.domain.examples import Example, Split, Transcript
from llmzero.tasks.chemcot import chem, prompts, reward

EDIT_GROUPS: Final = ("amine", "carboxyl", "halo", "hydroxyl", "nitrile")
COUNT_GROUPS: Final = ("amine", "halo", "hydroxyl", "nitrile")
RINGS: Final = ("c1ccccc1", "c1ccncc1", "C1CCCCC1", "C1CCNCC1", "c1ccsc1", "c1ccoc1")
SIZES: Final[Mapping[Split, int]] = MappingProxyType({"train": 3000, "validation": 160, "test": 240})
MIX: Final[Mapping[str, float]] = MappingProxyType(
    {"add": 0.33, "delete": 0.26, "sub": 0.2815, "fg_count": 0.0505, "ring_count": 0.038, "Murcko_scaffold": 0.04}
)

_Fields = dict[str, object]
_BRACKETS = re.compile(r"\[N\+\](\(=O\)\[O-\]|\(\[O-\]\)|\(\))|\[O-\]|\[nH\]")


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Knobs. `max_chars` bounds every molecule, `edit_chars` those of edits; counts are flat over 0..`max_count`."""

    max_chars: int = 20
    edit_chars: int = 14
    min_atoms: int = 5
    max_count: int = 3
    max_rings: int = 2
    scaffold_side_atoms: int = 3
    mix: tuple[tuple[str, float], ...] = field(default_factory=lambda: tuple(MIX.items()))


@dataclass(frozen=True, slots=True)
class _Draw:
    """Where a question is drawn from: one split's molecules by scaffold, the split's own random stream, the knobs."""

    pool: tuple[tuple[str, ...], ...]
    everyone: tuple[str, ...]
    rng: random.Random
    knobs: Difficulty

    def mol(self) -> chem.Mol:
        return chem.source_mol(self.smiles())

    def smiles(self) -> str:
        """Half the time any molecule, else a scaffold first: or most of train would be one benzene ring or no ring."""
        members = self.everyone if self.rng.random() < 0.5 else self.rng.choice(self.pool)
        return self.rng.choice(members)

    def short(self) -> str:
        """A molecule that leaves an edit room for one more character; "" when the draw is too long."""
        smiles = self.smiles()
        return smiles if len(smiles) < self.knobs.edit_chars else ""

    def fits(self, smiles: str) -> bool:
        return len(smiles) <= self.knobs.max_chars


@lru_cache(maxsize=8)
def build(split: Split, size: int, seed: int = 0, knobs: Difficulty = Difficulty()) -> tuple[Example, ...]:
    """`size` questions of a split, sub-tasks mixed, in a fixed order; the same arguments give the same questions."""
    stream = f"chemcot-mini/{split}/{seed if split == 'train' else 0}"
    pool = _pools(knobs)[split]
    draw = _Draw(pool, tuple(chain.from_iterable(pool)), random.Random(stream), knobs)
    quotas = _quotas(size, dict(knobs.mix))
    examples = [each for subtask, quota in quotas.items() for each in _take(subtask, quota, draw, split)]
    random.Random(stream + "/order").shuffle(examples)
    return tuple(examples)


def _quotas(size: int, mix: Mapping[str, float]) -> dict[str, int]:
    quotas = {subtask: int(size * share / sum(mix.values())) for subtask, share in mix.items()}
    quotas[max(quotas, key=quotas.__getitem__)] += size - sum(quotas.values())
    return quotas


def _take(subtask: str, quota: int, draw: _Draw, split: Split) -> Iterator[Example]:
    """Distinct, sound questions of one sub-task; RuntimeError when the knobs leave too few."""
    seen: set[str] = set()
    for _ in range(400 * quota + 400 if draw.pool else 0):
        if len(seen) == quota:
            return
        fields = _MAKERS[subtask](draw, len(seen))
        text = prompts.text(subtask, fields) if fields else ""
        if not fields or text in seen:
            continue
        example = Example(f"mini-{split}-{subtask}-{len(seen):04d}", subtask, fields)
        if _sound(example):
            seen.add(text)
            yield example
    if len(seen) < quota:
        raise RuntimeError(f"the miniature's knobs leave only {len(seen)} of {quota} {subtask} questions for {split}")


def _sound(example: Example) -> bool:
    """The reference earns the reward, and handing the source back does not."""
    key, fields = str(example.fields["key"]), example.fields
    if fields["kind"] == "count":
        return True
    right, copied = (Transcript.of(prompts.answer(fields[name], key)) for name in ("gold", "source"))
    return reward.score(example, right).value == 1.0 and reward.score(example, copied).value == 0.0


@lru_cache(maxsize=4)
def _pools(knobs: Difficulty) -> dict[Split, tuple[tuple[str, ...], ...]]:
    """Canonical SMILES by split and scaffold: connected, neutral but for nitro groups, within the knobs' size."""
    pools: dict[Split, dict[str, list[str]]] = {"train": {}, "validation": {}, "test": {}}
    for smiles in _molecules():
        if len(smiles) <= knobs.max_chars and chem.heavy_atoms(mol := chem.source_mol(smiles)) >= knobs.min_atoms:
            frame = chem.scaffold(mol)
            pools[chem.split_of(frame)].setdefault(frame, []).append(smiles)
    return {split: tuple(tuple(pool[frame]) for frame in sorted(pool)) for split, pool in pools.items()}


@lru_cache(maxsize=1)
def _molecules() -> tuple[str, ...]:
    lines = Path(RDConfig.RDDataDir, "NCI", "first_5K.smi").read_text(encoding="ascii").splitlines()
    written = [line.split()[0] for line in lines if line.strip()]
    mols = [mol for smiles in written if "." not in smiles and (mol := chem.parse(smiles)) is not None]
    return tuple(sorted(smiles for smiles in {chem.canonical(mol) for mol in mols} if _plain(smiles)))


def _plain(smiles: str) -> bool:
    rest = _BRACKETS.sub("", smiles)
    return "[" not in rest and not re.search(r"[@/\\P%]", rest)


def _grown(draw: _Draw, mol: chem.Mol, *groups: str) -> tuple[str, ...] | None:
    """One SMILES per group, each group alone on the same random carbon; None when one of them cannot be."""
    sites = chem.open_carbons(mol)
    if not sites:
        return None
    site = draw.rng.choice(sites)
    grown = tuple(chem.attach(mol, site, draw.rng.choice(chem.GROUPS[group].tails)) for group in groups)
    return grown if all(each and draw.fits(each) for each in grown) else None


def _decorated(draw: _Draw, mol: chem.Mol, groups: Iterable[str]) -> chem.Mol:
    """A molecule with as many of the groups hung on it as fit: same rings and scaffold, far more molecules."""
    for each in groups:
        grown = _grown(draw, mol, each)
        mol = chem.parse(grown[0]) if grown else mol
    return mol


def _some_groups(draw: _Draw) -> list[str]:
    return draw.rng.choices(EDIT_GROUPS, k=draw.rng.randrange(3))


def _edit(draw: _Draw, source: str, gold: str, added: str = "", removed: str = "") -> _Fields | None:
    if max(len(source), len(gold)) > draw.knobs.edit_chars:
        return None
    groups = {"added": added, "removed": removed}
    return {"kind": "edit", "key": "output", "source": source, "gold": gold, "strict": True, **groups}


def _add(draw: _Draw, _: int) -> _Fields | None:
    smiles, group = draw.short(), draw.rng.choice(EDIT_GROUPS)
    grown = _grown(draw, chem.source_mol(smiles), group) if smiles else None
    return _edit(draw, smiles, grown[0], added=group) if grown else None


def _delete(draw: _Draw, _: int) -> _Fields | None:
    smiles, group = draw.short(), draw.rng.choice(EDIT_GROUPS)
    grown = _grown(draw, chem.source_mol(smiles), group) if smiles else None
    return _edit(draw, grown[0], smiles, removed=group) if grown else None


def _sub(draw: _Draw, _: int) -> _Fields | None:
    smiles, (removed, added) = draw.short(), draw.rng.sample(EDIT_GROUPS, 2)
    grown = _grown(draw, chem.source_mol(smiles), removed, added) if smiles else None
    return _edit(draw, grown[0], grown[1], added=added, removed=removed) if grown else None


def _fg_count(draw: _Draw, index: int) -> _Fields | None:
    """Hangs groups on a molecule until the wanted count is met, so that counts are flat."""
    wanted, group, other = index % (draw.knobs.max_count + 1), *draw.rng.choices(COUNT_GROUPS, k=2)
    mol = _decorated(draw, draw.mol(), (*[group] * wanted, other))
    if chem.count_group(mol, group) != wanted:
        return None
    fields: _Fields = {"kind": "count", "key": "count", "source": chem.canonical(mol), "gold": wanted}
    return {**fields, "group": group, "smarts": chem.GROUPS[group].smarts}


def _ring_count(draw: _Draw, index: int) -> _Fields | None:
    wanted, ring, mol = index % (draw.knobs.max_rings + 1), draw.rng.choice(RINGS), draw.mol()
    if chem.count_matches(mol, ring) != wanted or not chem.scaffold(mol):
        return None
    source = chem.canonical(_decorated(draw, mol, _some_groups(draw)))
    return {"kind": "count", "key": "count", "source": source, "gold": wanted, "ring": ring, "smarts": ring}


def _scaffold(draw: _Draw, _: int) -> _Fields | None:
    mol = draw.mol()
    gold = chem.scaffold(mol)
    if not gold:
        return None
    mol = _decorated(draw, mol, _some_groups(draw))
    if chem.heavy_atoms(mol) - chem.heavy_atoms(chem.source_mol(gold)) < draw.knobs.scaffold_side_atoms:
        return None
    return {"kind": "scaffold", "key": "Output Scaffold", "source": chem.canonical(mol), "gold": gold}


_MAKERS: Final[dict[str, Callable[[_Draw, int], _Fields | None]]] = {
    "add": _add,
    "delete": _delete,
    "sub": _sub,
    "fg_count": _fg_count,
    "ring_count": _ring_count,
    "Murcko_scaffold": _scaffold,
}
