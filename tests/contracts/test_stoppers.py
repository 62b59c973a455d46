"""The stopper suite over the built-in stoppers, and over stoppers broken in every way it looks for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract_kit import caught, promises_of
from scripted_llm import Scripted, briefing, drawn_once

from llmzero.agents.llm import stopper as agents
from llmzero.agents.stopping import NeverStop, RuleStopper
from llmzero.domain.config import StopConfig
from llmzero.domain.events import Tree
from llmzero.domain.series import MetricRow
from llmzero.domain.types import EvalPoint, NodeId, Verdict
from llmzero.testing import StopperContract
from llmzero.testing.stoppers import _moments

CALLS = itertools.count()


class TestRule(StopperContract):
    factory = RuleStopper


class TestEagerRule(StopperContract):
    """The rule without grace, patience or margin."""

    factory = RuleStopper
    config = StopConfig(grace_steps=0, patience=1, sigmas=0.0, margin=0.0)


class TestNone(StopperContract):
    factory = NeverStop


class Asking(StopperContract):
    """Over a model that is at times lost or wordy; the pictures are real ones, drawn once."""

    @pytest.fixture(autouse=True)
    def _drawn_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(agents, "overlay_png", OVERLAY_PNG)

    def verdicts(self) -> list[Verdict]:
        stopper = self.make()
        return [moment.judged_by(stopper) for moment in _moments()]


class TestAgent(Asking):
    factory = agents.AgentStopper

    def make(self) -> agents.AgentStopper:
        return agents.AgentStopper(Scripted(), briefing(), type(self).config)

    def test_the_model_was_heard_and_mended(self) -> None:
        said = self.verdicts()
        assert {each.action for each in said if each.calls} == {"continue", "stop"}
        assert any(len(each.calls) == 2 and each.reason.startswith("agent: ") for each in said)
        for word in ("nothing to decide yet", "gave no verdict: HTTP 503", "gave no verdict: the reply is not one"):
            assert any(word in each.reason for each in said), word


class TestBoth(Asking):
    """Stops nothing that the rule would let run, and not all that the rule would stop."""

    factory = agents.BothStopper

    def make(self) -> agents.BothStopper:
        config = type(self).config
        return agents.BothStopper(RuleStopper(config), agents.AgentStopper(Scripted(), briefing(), config))

    def test_a_stop_takes_the_rule_and_the_model(self) -> None:
        rule = RuleStopper(type(self).config)
        for moment, both in zip(_moments(), self.verdicts(), strict=True):
            alone = rule.latest(moment.tree, moment.node, moment.curve, moment.rows)
            assert both.action == "continue" or alone.action == "stop", moment.where
            assert bool(both.calls) <= (alone.action == "stop"), f"{moment.where}: asked although the rule goes on"
        said = {each.action for each in self.verdicts() if each.calls}
        assert said == {"continue", "stop"}


OVERLAY_PNG = drawn_once(agents.overlay_png)


class Good:
    """Stops below the start's score; the parent of every broken one."""

    def __init__(self, config: StopConfig) -> None:
        self.judged = 0

    def judge(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        self.judged += 1
        last = curve[-1]
        return Verdict(action="stop" if last.score < 0.3 else "continue", reason="by the floor", at_step=last.step)


class TestGood(StopperContract):
    factory = Good


def broken(**changes: Any) -> type[Good]:
    """A stopper whose verdicts have fields replaced; a callable is given the curve and how often it judged."""

    class Broken(Good):
        def judge(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
            verdict = super().judge(tree, node, curve, rows)
            values = {k: v(curve, self.judged) if callable(v) else v for k, v in changes.items()}
            return replace(verdict, **values)

    return Broken


class Meddling(Good):
    def judge(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        nodes: Any = tree.nodes
        nodes[node] = replace(tree.nodes[node], lost="judged")
        return super().judge(tree, node, curve, rows)


class NeedsRows(Good):
    def judge(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        if 1 / len(rows) > 1:
            raise AssertionError
        return super().judge(tree, node, curve, rows)


BROKEN: list[tuple[str, type[Good]]] = [
    ("test_a_verdict_is_about_an_evaluation_seen", broken(at_step=lambda curve, _: curve[-1].step + 1)),
    ("test_a_verdict_is_about_an_evaluation_seen", broken(action="pause")),
    ("test_a_verdict_gives_its_reason_in_one_line", broken(reason="")),
    ("test_the_same_question_has_the_same_answer", broken(reason=lambda *_: f"{next(CALLS)}")),
    ("test_the_same_question_has_the_same_answer", broken(reason=lambda _, judged: f"question {judged}")),
    (
        "test_a_stopper_carries_nothing_from_one_phase_to_the_next",
        broken(action=lambda _, judged: "stop" if judged > 3 else "continue"),
    ),
    ("test_the_tree_is_left_alone", Meddling),
    ("test_verdicts_survive_the_journal", broken(reason=("a", "b"))),
    ("test_a_phase_above_everything_known_goes_on", broken(action="stop")),
    ("test_a_trainer_may_report_scores_only", NeedsRows),
]


@pytest.mark.parametrize(("test", "stopper"), BROKEN)
def test_the_suite_catches(test: str, stopper: type[Good], tmp_path: Path) -> None:
    assert caught(type("Suite", (StopperContract,), {"factory": stopper}), test, tmp_path)


def test_every_test_of_the_suite_can_fail() -> None:
    assert {test for test, _ in BROKEN} == set(promises_of(StopperContract))
