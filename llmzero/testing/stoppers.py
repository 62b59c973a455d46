"""The conformance suite of `ports.EarlyStopper`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from llmzero.domain.codec import to_json
from llmzero.domain.config import RunConfig, StopConfig
from llmzero.domain.events import Tree, fold
from llmzero.domain.series import MetricRow, eval_points
from llmzero.domain.types import ROOT, EvalPoint, FailureKind, NodeId, PhaseResult, Status, Verdict
from llmzero.ports import EarlyStopper
from llmzero.testing.checks import is_one_line, made, survives_json
from llmzero.testing.fakes import base_result, eval_rows, finished_phase, tree_events

EVERY = 10
STEPS = 60
CURVES: dict[str, tuple[float, ...]] = {
    "rising": (0.55, 0.60, 0.65, 0.70, 0.75, 0.80),
    "flat": (0.40, 0.40, 0.40, 0.40, 0.40, 0.40),
    "falling": (0.38, 0.30, 0.20, 0.10, 0.05, 0.0),
    "dead": (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    "no number": (0.40, math.nan, math.nan, math.inf, 0.4, 0.4),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """One question to a stopper: a running phase as it stood after one of its evaluations."""

    where: str
    tree: Tree
    node: NodeId
    curve: tuple[EvalPoint, ...]
    rows: tuple[MetricRow, ...]

    def judged_by(self, stopper: EarlyStopper) -> Verdict:
        return stopper.judge(self.tree, self.node, self.curve, self.rows)


class StopperContract:
    """What every early stopper promises. `config` is the `[stop]` table it is built with.

    The factory is given what it takes of `config`, `seed` and `rows_of`; one that asks a language model needs `make`
    overridden, with a fake that answers the same question the same way.
    """

    factory: ClassVar[Callable[..., EarlyStopper]]
    config: ClassVar[StopConfig] = StopConfig(grace_steps=20, patience=2)

    def make(self) -> EarlyStopper:
        return made(type(self).factory, config=type(self).config, seed=0, rows_of=lambda node: ())

    def test_a_verdict_is_about_an_evaluation_seen(self) -> None:
        for moment in _moments():
            verdict = moment.judged_by(self.make())
            assert verdict.action in ("continue", "stop"), f"{moment.where}: action is {verdict.action!r}"
            steps = [point.step for point in moment.curve]
            assert verdict.at_step in steps, f"{moment.where}: at_step {verdict.at_step} is none of {steps}"

    def test_a_verdict_gives_its_reason_in_one_line(self) -> None:
        for moment in _moments():
            reason = moment.judged_by(self.make()).reason
            assert is_one_line(reason), f"{moment.where}: the reason is {reason!r}"

    def test_the_same_question_has_the_same_answer(self) -> None:
        for moment in _moments():
            stopper = self.make()
            first = moment.judged_by(stopper)
            assert moment.judged_by(stopper) == first, f"{moment.where}: asked again, the verdict is another"
            assert moment.judged_by(self.make()) == first, f"{moment.where}: after a resume the verdict is another"

    def test_a_stopper_carries_nothing_from_one_phase_to_the_next(self) -> None:
        stopper = self.make()
        fresh = [moment.judged_by(self.make()) for moment in _moments()]
        used = [moment.judged_by(stopper) for moment in _moments()]
        assert used == fresh, "a stopper that judged other phases before gives other verdicts"

    def test_the_tree_is_left_alone(self) -> None:
        for moment in _moments():
            before = repr(to_json(moment.tree))
            moment.judged_by(self.make())
            assert repr(to_json(moment.tree)) == before, f"{moment.where}: judge changed the tree"

    def test_verdicts_survive_the_journal(self) -> None:
        for moment in _moments():
            verdict = moment.judged_by(self.make())
            assert survives_json(verdict), f"{moment.where}: not the same after JSON: {verdict}"

    def test_a_phase_above_everything_known_goes_on(self) -> None:
        for moment in _moments("rising"):
            verdict = moment.judged_by(self.make())
            assert verdict.action == "continue", f"{moment.where}: stopped the best phase: {verdict.reason}"

    def test_a_trainer_may_report_scores_only(self) -> None:
        for moment in _moments():
            verdict = self.make().judge(moment.tree, moment.node, moment.curve, ())
            assert verdict.action in ("continue", "stop"), f"{moment.where}: action is {verdict.action!r}"


def _moments(*names: str) -> Iterator[Moment]:
    """Every curve in every tree after each of its evaluations, with what was known then."""
    for place, (tree, node) in _trees().items():
        for name in names or tuple(CURVES):
            rows = _rows(CURVES[name])
            points = eval_points(rows)
            for count in range(1, len(points) + 1):
                seen = tuple(row for row in rows if row.step <= points[count - 1].step)
                where = f"{place}, a {name} curve, step {points[count - 1].step}"
                yield Moment(where, tree, node, points[:count], seen)


def _rows(scores: Sequence[float]) -> list[MetricRow]:
    training = [
        MetricRow(
            kind="train",
            step=step,
            values={"reward": 0.4, "entropy": 0.5, "loss": scores[(step - 1) // EVERY] - 0.4},
        )
        for step in range(1, STEPS + 1)
    ]
    start = MetricRow(kind="eval", step=0, values={"score": 0.4, "se": 0.02})
    return sorted([start, *training, *eval_rows(scores, EVERY)], key=lambda row: row.step)


def _trees() -> dict[str, tuple[Tree, NodeId]]:
    """Trees with the phase that runs: an opening, and a child of the best strategy beside ended and running ones."""
    config = RunConfig(steps=STEPS)
    base = base_result(0.4)
    good = finished_phase((0.42, 0.45, 0.47, 0.48, 0.49, 0.50), every=EVERY, node="n1")
    failed = PhaseResult(status=Status.FAILED, steps_done=3, failure=FailureKind.NAN, message="loss is nan")
    stopped = PhaseResult(status=Status.STOPPED, steps_done=30, score=0.2, score_se=0.02)
    known = [(ROOT, None, base), ("n1", ROOT, good), ("n2", "n1", failed), ("n3", ROOT, stopped), ("n4", "n1", None)]
    return {
        "an opening": (fold(tree_events(config, [(ROOT, None, base), ("n1", ROOT, None)])), "n1"),
        "a second opening": (fold(tree_events(config, [*known, ("n5", ROOT, None)])), "n5"),
        "a second phase": (fold(tree_events(config, [*known, ("n5", "n1", None)])), "n5"),
    }
