"""Baselines that read nothing: what a proposer must beat."""

from __future__ import annotations

import random
from collections.abc import Iterator

from llmzero.agents.evidence import Evidence, evidence_of
from llmzero.agents.moves import Option, as_proposal, draw_anywhere, drawable, put
from llmzero.agents.playbook import another_length, first_new
from llmzero.domain.events import Tree
from llmzero.domain.seeds import derive_seed
from llmzero.domain.space import SearchSpace
from llmzero.domain.types import NodeId, Proposal

DRAWS = 200
"""Draws tried before giving up on a new set of hyperparameters."""


def draws(ev: Evidence, seed: int, proposer: str) -> Iterator[Proposal]:
    """Three to five parameters of the parent set to values drawn from their whole range."""
    able = drawable(ev.space, ev.hyper)
    for attempt in range(DRAWS if able else 0):
        rng = random.Random(derive_seed(seed, proposer, ev.node.id, len(ev.children), attempt))
        chosen = rng.sample(able, min(len(able), rng.randint(3, 5)))
        option = Option(
            changes=tuple(
                put(p.name, draw_anywhere(rng, p, ev.hyper.flat().get(p.name)), "drawn at random") for p in chosen
            ),
            rationale="Values drawn from the whole space (log-uniform where the scale is logarithmic).",
            expected="unknown: nothing was read",
            confidence=0.1,
            pathology="none",
            diagnosis="Random baseline: reads nothing of the parent's training.",
        )
        yield as_proposal(ev, option, proposer)


class RandomProposer:
    """Random search over transitions, with the same duplicate check as every proposer."""

    name = "random"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def propose(self, tree: Tree, parent: NodeId, space: SearchSpace) -> Proposal:
        """A seeded draw that differs from every child `parent` has."""
        ev = evidence_of(tree, parent, space)
        found = first_new(ev, draws(ev, self._seed, self.name), minimum=min(3, len(space.parameters)))
        return found or another_length(ev, self.name)
