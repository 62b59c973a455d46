"""The proposer suite over the built-in proposers, and over proposers broken in every way it looks for."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract_kit import caught, promises_of
from scripted_llm import Scripted, briefing, drawn_once, no_extra

from llmzero.agents.llm import proposer
from llmzero.agents.playbook import PlaybookProposer
from llmzero.agents.samplers import RandomProposer
from llmzero.domain.events import Tree
from llmzero.domain.seeds import derive_seed
from llmzero.domain.space import SearchSpace
from llmzero.domain.types import ROOT, Change, NodeId, Proposal
from llmzero.testing import FixedProposer, ProposerContract

CALLS = itertools.count()
Changer = Callable[[Proposal, Tree, NodeId], Proposal]


class BuiltIn(ProposerContract):
    """The built-in ones promise more: in spaces of some size they always change a value, not the length alone."""

    def test_every_child_sets_a_value(self) -> None:
        for where, _, node in self._proposed():
            wide = not where.startswith("narrow")
            assert node.proposal.changes or node.id == "n1" or not wide, where


class TestPlaybook(BuiltIn):
    factory = PlaybookProposer


class TestRandom(BuiltIn):
    factory = RandomProposer


class TestLLM(ProposerContract):
    """Over a model that is at times lost, wordy or wild; the pictures are real ones."""

    factory = proposer.LLMProposer
    count = 5

    def make(self) -> proposer.LLMProposer:
        return proposer.LLMProposer(Scripted(), briefing(), lambda node: (), check_extra=no_extra, seed=0)

    @pytest.fixture(autouse=True)
    def _drawn_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(proposer, "path_png", PATH_PNG)

    def test_the_model_was_heard_and_mended_and_replaced(self) -> None:
        made = [node.proposal for _, _, node in self._proposed()]
        notes = [note for each in made for note in each.notes]
        assert {each.proposer for each in made} == {"llm", "playbook"}
        for word in ("clamped to", "repaired in 1 turn", "fallback: HTTP 503", "fallback: the reply is not one JSON"):
            assert any(word in note for note in notes), word
        assert all(each.calls for each in made)


PATH_PNG = drawn_once(proposer.path_png)


class Good:
    """Draws a value for one number of the space; `change` breaks it."""

    name = "good"

    def __init__(self, seed: int = 0, change: Changer = lambda proposal, *_: proposal) -> None:
        self.seed, self.change = seed, change
        self.asked = 0

    def propose(self, tree: Tree, parent: NodeId, space: SearchSpace) -> Proposal:
        self.asked += 1
        rng = random.Random(derive_seed(self.seed, parent, len(tree.nodes[parent].children)))
        one = rng.choice([p for p in space.parameters if p.kind in ("log", "linear")])
        proposal = Proposal(
            proposer=self.name,
            pathology="none",
            diagnosis="nothing was read",
            rationale="a draw",
            changes=(Change(field=one.name, value=rng.uniform(one.low, one.high)),),
        )
        return self.change(proposal, tree, parent)


class TestGood(ProposerContract):
    factory = Good


def same(proposal: Proposal, tree: Tree, parent: NodeId) -> Proposal:
    """The parent's own values: at the root an opening, below it the same phase once more."""
    return replace(proposal, changes=())


def opening_twice(proposal: Proposal, tree: Tree, parent: NodeId) -> Proposal:
    return replace(proposal, changes=(Change(field="learning_rate", value=1e-4),)) if parent == ROOT else proposal


def only_finished(proposal: Proposal, tree: Tree, parent: NodeId) -> Proposal:
    """Counts finished siblings only, and so proposes what runs already."""
    done = [c for c in tree.nodes[parent].children if tree.nodes[c].result]
    return replace(proposal, changes=(Change(field="learning_rate", value=1e-5 / (1 + len(done))),))


def needs_metrics(proposal: Proposal, tree: Tree, parent: NodeId) -> Proposal:
    result = tree.nodes[parent].result
    bare = parent != ROOT and result is not None and not result.summaries and result.score is not None
    return replace(proposal, diagnosis="" if bare else proposal.diagnosis)


def meddling(proposal: Proposal, tree: Tree, parent: NodeId) -> Proposal:
    nodes: Any = tree.nodes
    nodes[parent] = replace(tree.nodes[parent], lost="read")
    return proposal


def setting(**values: Any) -> Changer:
    return lambda proposal, *_: replace(proposal, **values)


def value(field: str, value: Any, times: int = 1) -> Changer:
    return setting(changes=(Change(field=field, value=value),) * times)


def breaking(change: Changer) -> Callable[..., Any]:
    return lambda seed: Good(seed, change)


class Remembering(Good):
    """Another proposal each time it is asked."""

    def propose(self, tree: Tree, parent: NodeId, space: SearchSpace) -> Proposal:
        self.seed += 1
        return super().propose(tree, parent, space)


INSIDE = "test_every_value_is_inside_the_space"
WHY = "test_every_proposal_says_why"
PURE = "test_the_same_tree_gives_the_same_proposal"
BROKEN: list[tuple[str, Callable[..., Any]]] = [
    ("test_it_signs_its_proposals", breaking(setting(proposer="someone"))),
    (INSIDE, breaking(value("learning_rate", 1.0))),
    (INSIDE, breaking(value("learning_rate", 1e-4, times=2))),
    (INSIDE, breaking(value("dropout", 0.1))),
    (INSIDE, breaking(setting(steps=0))),
    ("test_every_phase_differs_from_its_parent", breaking(same)),
    ("test_every_phase_differs_from_its_siblings", breaking(opening_twice)),
    ("test_every_phase_differs_from_its_siblings", lambda seed: FixedProposer({"learning_rate": 1e-4})),
    (WHY, breaking(setting(rationale=" "))),
    (WHY, breaking(setting(confidence=80.0))),
    (PURE, Remembering),
    (PURE, breaking(lambda proposal, *_: replace(proposal, rationale=f"draw {next(CALLS)}"))),
    ("test_the_tree_is_left_alone", breaking(meddling)),
    ("test_proposals_survive_the_journal", breaking(setting(evidence=[1, 2]))),
    ("test_a_running_sibling_counts_as_tried", breaking(only_finished)),
    ("test_a_phase_without_metrics_can_be_followed", breaking(needs_metrics)),
]


@pytest.mark.parametrize(("test", "proposer"), BROKEN)
def test_the_suite_catches(test: str, proposer: Callable[..., Any], tmp_path: Path) -> None:
    assert caught(type("Suite", (ProposerContract,), {"factory": staticmethod(proposer)}), test, tmp_path)


def test_every_test_of_the_suite_can_fail() -> None:
    assert {test for test, _ in BROKEN} == set(promises_of(ProposerContract))
