"""The ChemCoT task: the real benchmark or its offline miniature behind one set of prompts and rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from llmzero.domain.errors import UsageError
from llmzero.domain.examples import SPLITS, Example, Message, Reward, Split, Transcript
from llmzero.tasks.base import Policy
from llmzero.tasks.chemcot import dataset, mini, prompts, reward
from llmzero.tasks.chemcot.policies import CHOICES, COUNTS, policies

Data = Literal["mini", "hub"]

_ABOUT: dict[str, object] = {
    "split_rule": "hash of the canonical Murcko scaffold; acyclic molecules and lone benzene rings are all in train",
    "citation": "Li et al. 2025, Beyond Chemical QA (ChemCoTBench), arXiv:2505.21318",
}
_MINI: dict[str, object] = {
    "source": "generated from the NCI molecules inside the rdkit wheel (NCI/first_5K.smi)",
    "licence": "rdkit is BSD-3-Clause; no benchmark row is used",
    "left_out": [
        "property optimisation",
        "reactions",
        "ring-system and equivalence questions",
        "molecules over 20 atoms",
    ],
}
_HUB: dict[str, object] = {
    "source": dataset.REPO_ID,
    "licence": "MIT on the data card, CC BY 4.0 in the code repository",
    "left_out": ["property optimisation", "reactions", "rows whose own reference is no right answer"],
}


@dataclass(frozen=True, slots=True)
class ChemCoT:
    """Implements `Task`. `seed` draws the miniature's training set and nothing else; `revision` pins the real rows."""

    data: Data = "mini"
    seed: int = 0
    revision: str = "main"
    sizes: Mapping[Split, int] = field(default_factory=lambda: dict(mini.SIZES))
    knobs: mini.Difficulty = field(default_factory=mini.Difficulty)

    @property
    def name(self) -> str:
        return "chemcot"

    def examples(self, split: Split) -> Sequence[Example]:
        if self.data == "hub":
            return _hub(self.revision).splits[split]
        return mini.build(split, self.sizes[split], self.seed, self.knobs)

    def prompt(self, example: Example) -> tuple[Message, ...]:
        return prompts.messages(example)

    def reward(self, example: Example, transcript: Transcript) -> Reward:
        return reward.score(example, transcript)

    def policies(self) -> Sequence[Policy]:
        """What `task check` runs. The miniature's counts are flat, so chance is one over the number of levels."""
        if self.data == "hub":
            return policies(best_constant_of_any([self.examples(split) for split in SPLITS]))
        return policies({"fg_count": 1 / (self.knobs.max_count + 1), "ring_count": 1 / (self.knobs.max_rings + 1)})

    def describe(self) -> dict[str, object]:
        """Sizes, sub-task mix, split rule, source, licence, citation and what is left out: JSON values."""
        splits = {split: self.examples(split) for split in SPLITS}
        facts: dict[str, object] = {
            "name": self.name,
            "data": self.data,
            "seed": self.seed,
            "sizes": {split: len(examples) for split, examples in splits.items()},
            "mix": {split: dict(Counter(e.subtask for e in examples)) for split, examples in splits.items()},
            **_ABOUT,
            **(_HUB if self.data == "hub" else _MINI),
        }
        if self.data == "hub":
            loaded = _hub(self.revision)
            facts |= {"revision": self.revision, "skipped": dict(loaded.skipped), "unsound": dict(loaded.unsound)}
        return facts


def chemcot(
    data: Data = "mini",
    seed: int = 0,
    *,
    revision: str = "main",
    sizes: Mapping[Split, int] | None = None,
    knobs: mini.Difficulty | None = None,
) -> ChemCoT:
    """The task by name, as wiring calls it; ValueError for unknown data. Nothing is loaded until examples are asked."""
    if data not in ("mini", "hub"):
        raise UsageError(f"task chemcot has no data {data!r}; valid: hub, mini")
    return ChemCoT(data, seed, revision, {**mini.SIZES, **(sizes or {})}, knobs or mini.Difficulty())


def best_constant(examples: Sequence[Example]) -> dict[str, float]:
    """The share of the commonest answer in each counting or yes/no sub-task: what a constant earns on these items."""
    golds: dict[str, Counter[str]] = {}
    for example in examples:
        if example.subtask in (*COUNTS, *CHOICES):
            golds.setdefault(example.subtask, Counter())[str(example.fields["gold"])] += 1
    return {subtask: max(counts.values()) / counts.total() for subtask, counts in golds.items()}


def best_constant_of_any(splits: Iterable[Sequence[Example]]) -> dict[str, float]:
    """The most a constant earns on any one split: real splits are small, so each is more lopsided than all rows are."""
    shares: dict[str, float] = {}
    for subtask, share in (item for examples in splits for item in best_constant(examples).items()):
        shares[subtask] = max(share, shares.get(subtask, 0.0))
    return shares


@lru_cache(maxsize=2)
def _hub(revision: str) -> dataset.Loaded:
    return dataset.load(revision)
