"""What a proposer may know of a node, in the shape rules ask for: levels, rises, gains, what siblings tried.

Every number comes from the journal's tree; a metric that its trainer could not give, or that says nothing under the
node's own settings, reads as absent and says why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from llmzero.domain.events import Tree
from llmzero.domain.space import Parameter, SearchSpace
from llmzero.domain.strategy import phase_diff
from llmzero.domain.types import (
    EvalPoint,
    FailureKind,
    HyperParams,
    MetricSummary,
    Node,
    NodeId,
    PhaseResult,
    Scalar,
    Status,
)

MIN_COUNT = 5
"""Training rows a summary needs before a rule reads it."""
MIN_GAIN = 0.01
"""Score; a smaller validation difference is never called a gain or a loss, however small its standard error."""
NOTHING = PhaseResult(status=Status.FAILED)
"""Stands in for the result of a node that still runs."""


def evidence_of(tree: Tree, node: NodeId, space: SearchSpace) -> Evidence:
    """The evidence a node offers as the parent of a transition."""
    return Evidence(tree=tree, node=tree.nodes[node], space=space)


def read(ev: Evidence, name: str) -> MetricSummary | None:
    """A metric's summary, or None where it is missing, too short, not finite or uninformative."""
    summary = ev.result.summaries.get(name)
    if summary is None or why_not(ev, name) or summary.count < MIN_COUNT:
        return None
    levels = (summary.first, summary.last, summary.mean, summary.low, summary.high, summary.slope, summary.window_mean)
    return summary if all(math.isfinite(v) for v in levels) else None


def why_not(ev: Evidence, name: str) -> str:
    """Why a metric says nothing under the node's settings; "" where it does."""
    if name in ev.result.missing:
        return ev.result.missing[name] or "not reported"
    if name == "kl" and ev.hyper.kl_coef == 0 and name not in ev.result.summaries:
        return "kl_coef is 0, so no reference was loaded"
    if name == "clip_ratio" and ev.hyper.updates_per_batch == 1:
        return "0 by construction at one update per batch"
    return ""


def unread(ev: Evidence) -> tuple[str, ...]:
    """One line for each metric the rules would have liked to read and could not."""
    wanted = ("kl", "clip_ratio", "zero_std_share", "entropy", "reward")
    return tuple(f"not read: {name} ({reason})" for name in wanted if (reason := why_not(ev, name)))


def rise(ev: Evidence, name: str) -> float | None:
    """Fitted change of a metric over the whole phase (slope times steps); None where it cannot be read."""
    summary = read(ev, name)
    return None if summary is None else summary.slope * max(ev.result.steps_done, summary.count)


def gain(ev: Evidence) -> float | None:
    """Score change from the node's own start to the node; None where either was not measured."""
    if ev.node.score is None or ev.node.parent is None:
        return None
    before = ev.tree.nodes[ev.node.parent].score
    return None if before is None else ev.node.score - before


def noise(ev: Evidence) -> float:
    """One standard error of `gain`, taking both scores as independent; at least MIN_GAIN."""
    before = ev.tree.nodes[ev.node.parent].result if ev.node.parent else None
    own = ev.result.score_se or 0.0
    return max(MIN_GAIN, math.hypot(own, (before.score_se if before else None) or 0.0))


def gained(ev: Evidence) -> bool | None:
    """Whether the phase gained more than one standard error on validation; None when that was not measured."""
    change = gain(ev)
    return None if change is None else change > noise(ev)


def rising(ev: Evidence, *, at_least: float) -> bool:
    """Whether the training reward rose by `at_least` over the phase."""
    change = rise(ev, "reward")
    return change is not None and change >= at_least


def base_entropy(ev: Evidence) -> float | None:
    """Entropy (nats) when the path left the base: the earliest reading of the node's ancestors, else its own first.

    Trainers report the entropy of the tempered distribution, so only phases of the node's own temperature count.
    """
    at: Node | None = ev.node
    found: float | None = None
    while at is not None:
        alike = at.phase.hyper.temperature == ev.hyper.temperature
        summary = at.result.summaries.get("entropy") if at.result and alike else None
        found = summary.first if summary and math.isfinite(summary.first) else found
        at = ev.tree.nodes[at.parent] if at.parent else None
    return found


def peak_and_end(ev: Evidence) -> tuple[EvalPoint, EvalPoint] | None:
    """Best and last point of the phase's validation curve; None under three points."""
    curve = [p for p in ev.result.curve if math.isfinite(p.score) and math.isfinite(p.se)]
    return (max(curve, key=lambda p: p.score), curve[-1]) if len(curve) >= 3 else None


def subtask_line(ev: Evidence) -> tuple[str, ...]:
    """The weakest and the strongest subtask, where there are at least two."""
    known = {k: v for k, v in ev.result.by_subtask.items() if math.isfinite(v)}
    if len(known) < 2:
        return ()
    low, high = min(known, key=lambda k: known[k]), max(known, key=lambda k: known[k])
    return (f"validation by subtask: weakest {low} {known[low]:.3g}, strongest {high} {known[high]:.3g}",)


def outcome(ev: Evidence, child: Node) -> float | None:
    """What a child of this node showed: -1 worse (or stopped, or broken), 1 better, 0 neither; None while it runs."""
    if child.result is None:
        return None
    if child.result.status is Status.STOPPED or child.result.failure in (FailureKind.NAN, FailureKind.OUT_OF_MEMORY):
        return -1.0
    if child.result.status is Status.FAILED or child.score is None or ev.node.score is None:
        return None
    bar = max(MIN_GAIN, (child.result.score_se or 0.0))
    change = child.score - ev.node.score
    return 1.0 if change > bar else -1.0 if change < -bar else 0.0


def sibling_lines(ev: Evidence, limit: int = 4) -> tuple[str, ...]:
    """What the latest children of this node changed and what came of it."""
    return tuple(_sibling_line(ev, child) for child in ev.children[-limit:])


def _sibling_line(ev: Evidence, child: Node) -> str:
    changes = phase_diff(ev.node, child)
    text = ", ".join(f"{name} {_short(old)} -> {_short(new)}" for name, old, new in changes[:3]) or "nothing changed"
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    if child.result is None:
        came = "still running"
    elif child.score is None or ev.node.score is None:
        came = child.status
    else:
        came = f"{child.status}, score {child.score - ev.node.score:+.3f}"
    return f"tried {child.id} ({text}{more}): {came}"


def _short(value: Scalar) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A node as the parent of the next phase, with the tree around it and the space to move in."""

    tree: Tree
    node: Node
    space: SearchSpace

    @property
    def result(self) -> PhaseResult:
        return self.node.result or NOTHING

    @property
    def hyper(self) -> HyperParams:
        return self.node.phase.hyper

    @property
    def children(self) -> tuple[Node, ...]:
        return tuple(self.tree.nodes[c] for c in self.node.children)

    def parameter(self, name: str) -> Parameter | None:
        """The dimension `name` of the space, or None where the search keeps it fixed."""
        return next((p for p in self.space.parameters if p.name == name), None)
