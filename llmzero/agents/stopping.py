"""Early stopping by rule: compare the running path with the best finished strategy at the same total steps.

docs/design/stopping.md has the formula, the reasons and the measured error rates.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmzero.domain.config import StopConfig
from llmzero.domain.events import Tree
from llmzero.domain.series import MetricRow
from llmzero.domain.statistics import slope
from llmzero.domain.strategy import best_node, path_curve, total_steps
from llmzero.domain.types import ROOT, EvalPoint, Node, NodeId, Verdict


@dataclass(frozen=True, slots=True)
class Level:
    """A score to compare with, its standard error, and what it is, in words."""

    score: float
    se: float
    what: str


def reference_curve(tree: Tree) -> tuple[tuple[EvalPoint, ...], Node | None]:
    """The best finished strategy's validation curve at total steps, from the base's score on, and its last node."""
    best = best_node(tree)
    if best is None:
        return (), None
    points = list(path_curve(tree, best.id))
    root = tree.nodes[ROOT]
    if root.score is not None and (not points or points[0].step > 0):
        points.insert(0, EvalPoint(0, root.score, _se(root)))
    return tuple(p for p in points if math.isfinite(p.score)), best


def level_at(tree: Tree, step: int) -> Level | None:
    """The best strategy's score at a total step: interpolated on its curve, its final score beyond its end."""
    points, best = reference_curve(tree)
    if best is None or best.score is None:
        return None
    if step >= total_steps(tree, best.id) or not points:
        return Level(best.score, _se(best), f"the final score of the best strategy ({best.id})")
    score, se = interpolate((*points, EvalPoint(total_steps(tree, best.id), best.score, _se(best))), step)
    return Level(score, se, f"the best strategy ({best.id}) at total step {step}")


def interpolate(points: Sequence[EvalPoint], step: int) -> tuple[float, float]:
    """(score, se) at `step`, linear between neighbours, constant outside; of points at one step the later counts."""
    after = bisect_right([p.step for p in points], step)
    if after == 0:
        return points[0].score, points[0].se
    left = points[after - 1]
    if after == len(points) or left.step == step:
        return left.score, left.se
    right = points[after]
    share = (step - left.step) / (right.step - left.step)
    return left.score + share * (right.score - left.score), left.se + share * (right.se - left.se)


def clearly_below(config: StopConfig, point: EvalPoint, level: Level | None) -> bool:
    """Whether a point is below a level by more than max(margin, sigmas * combined standard error)."""
    if level is None or not math.isfinite(point.score):
        return False
    return level.score - point.score > needed(config, point, level)


def needed(config: StopConfig, point: EvalPoint, level: Level) -> float:
    """The score difference that counts as clear between a point and a level."""
    return max(config.margin, config.sigmas * math.hypot(point.se, level.se))


def broken(point: EvalPoint, rows: Sequence[MetricRow]) -> str:
    """Why a phase can go nowhere: its score, or the loss of its last training step so far, is no number."""
    if not math.isfinite(point.score):
        return f"validation score is {point.score} at step {point.step}"
    losses = [r.values["loss"] for r in rows if r.kind == "train" and r.step <= point.step and "loss" in r.values]
    return f"loss is {losses[-1]} at step {point.step}" if losses and not math.isfinite(losses[-1]) else ""


def falling(start: Level | None, points: Sequence[EvalPoint], patience: int) -> bool:
    """Whether the last patience + 1 points, the parent's score before the first, have no upward trend."""
    known = [(0.0, start.score)] if start else []
    tail = [*known, *((float(p.step), p.score) for p in points if p.step > 0)][-(patience + 1) :]
    return slope([x for x, _ in tail], [y for _, y in tail]) <= 0


def _se(node: Node) -> float:
    return (node.result.score_se if node.result else None) or 0.0


def _streak(points: Sequence[EvalPoint], below: Callable[[EvalPoint], bool], patience: int) -> bool:
    return len(points) >= patience and all(below(p) for p in points[-patience:])


class NeverStop:
    """Lets every phase run to its end."""

    def __init__(self, config: StopConfig) -> None:
        self._config = config

    def judge(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        """Always: continue."""
        return Verdict(action="continue", reason="early stopping is off", at_step=curve[-1].step if curve else 0)


class RuleStopper:
    """Stops a phase that is dominated by the best strategy, collapsing below its own start, or broken."""

    def __init__(self, config: StopConfig) -> None:
        self._config = config

    def judge(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        """The verdict of the first evaluation that stops the phase, else of the last one.

        Each evaluation is judged on what came before it only, so more points never change an earlier word.
        """
        for count in range(1, len(curve) + 1):
            reason = self._stop(tree, node, curve[:count], rows)
            if reason:
                return Verdict(action="stop", reason=reason, at_step=curve[count - 1].step)
        return self._go_on(tree, node, curve)

    def latest(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        """The verdict of the last evaluation alone, whatever an earlier one said."""
        reason = self._stop(tree, node, curve, rows) if curve else ""
        if reason:
            return Verdict(action="stop", reason=reason, at_step=curve[-1].step)
        return self._go_on(tree, node, curve)

    def _stop(self, tree: Tree, node: NodeId, points: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> str:
        """Why to stop after the last of `points`; "" to go on."""
        config, last = self._config, points[-1]
        if last.step < config.grace_steps or last.step >= tree.nodes[node].phase.steps:
            return ""  # too early to tell, or nothing left to save
        if reason := broken(last, rows):
            return f"broken: {reason}"
        offset, start = self._before(tree, node)
        trained = [p for p in points if p.step > 0]
        best = level_at(tree, offset + last.step)
        if _streak(trained, lambda p: clearly_below(config, p, level_at(tree, offset + p.step)), config.patience):
            return f"dominated: {self._numbers(last, best)}"
        if _streak(trained, lambda p: clearly_below(config, p, start), config.patience) and falling(
            start, points, config.patience
        ):
            return f"collapsing: {self._numbers(last, start)}"
        return ""

    def _before(self, tree: Tree, node: NodeId) -> tuple[int, Level | None]:
        """Total steps before the phase, and the score it started from."""
        parent = tree.nodes[node].parent
        if parent is None:
            return 0, None
        source = tree.nodes[parent]
        start = None if source.score is None else Level(source.score, _se(source), f"its own start ({parent})")
        return total_steps(tree, parent), start

    def _numbers(self, point: EvalPoint, level: Level | None) -> str:
        if level is None:
            return f"{point.score:.3f} at step {point.step}"
        return (
            f"{point.score:.3f} at step {point.step}, {level.score - point.score:.3f} below {level.what} "
            f"with {level.score:.3f}; {needed(self._config, point, level):.3f} is the bar, "
            f"{self._config.patience} evaluations in a row"
        )

    def _go_on(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint]) -> Verdict:
        if not curve:
            return Verdict(action="continue", reason="no evaluation yet", at_step=0)
        last = curve[-1]
        best = level_at(tree, self._before(tree, node)[0] + last.step)
        against = f", {last.score - best.score:+.3f} against {best.what}" if best else ""
        return Verdict(action="continue", reason=f"{last.score:.3f} at step {last.step}{against}", at_step=last.step)
