"""Asking the stopper about a running phase: every evaluation in order, each with what was known then.

A slow stopper (one that asks a language model) thinks in a thread of its own, so that neither training nor the start of
the next phase waits for it. Its verdict is about a step of the phase, not a moment: when it comes makes no difference.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from llmzero.domain.events import Tree
from llmzero.domain.series import MetricRow, eval_points
from llmzero.domain.types import NodeId, Verdict
from llmzero.ports import EarlyStopper
from llmzero.search.horizon import known


def first_stop(
    tree: Tree, node: NodeId, stopper: EarlyStopper, rows: Sequence[MetricRow], *, skip: int = 0
) -> Verdict | None:
    """The first evaluation the stopper ends the phase at; the first `skip` are known to go on."""
    points = eval_points(rows)
    seen = known(tree, tree.nodes[node].sequence)
    for k in range(skip + 1, len(points) + 1):
        verdict = stopper.judge(seen, node, points[:k], [r for r in rows if r.step <= points[k - 1].step])
        if verdict.action == "stop":
            return verdict
    return None


@dataclass(slots=True)
class _Thought:
    """One look of a slow stopper at `count` evaluations."""

    count: int
    done: threading.Event = field(default_factory=threading.Event)
    verdict: Verdict | None = None
    error: Exception | None = None


class Judging:
    """Remembers how many evaluations of each phase were judged: a memo, never state."""

    def __init__(self) -> None:
        self._judged: dict[NodeId, int] = {}
        self._thoughts: dict[NodeId, _Thought] = {}

    def first_stop(
        self, tree: Tree, node: NodeId, stopper: EarlyStopper, rows: Sequence[MetricRow], *, wait: bool
    ) -> Verdict | None:
        """The first stop among what is not judged yet; None for none and, without `wait`, while the stopper thinks."""
        count = len(eval_points(rows))
        while self._judged.get(node, 0) < count:
            thought = self._thoughts.get(node) or self._start(tree, node, stopper, rows)
            if not (wait or thought.done.is_set()):
                return None
            thought.done.wait()
            del self._thoughts[node]
            if thought.error is not None:
                raise thought.error
            self._judged[node] = thought.count
            if thought.verdict is not None:
                return thought.verdict
        return None

    def _start(self, tree: Tree, node: NodeId, stopper: EarlyStopper, rows: Sequence[MetricRow]) -> _Thought:
        thought = self._thoughts[node] = _Thought(count=len(eval_points(rows)))
        skip, seen = self._judged.get(node, 0), list(rows)

        def think() -> None:
            try:
                thought.verdict = first_stop(tree, node, stopper, seen, skip=skip)
            except Exception as error:  # noqa: BLE001 (raised again in the loop's thread)
                thought.error = error
            finally:
                thought.done.set()

        if getattr(stopper, "slow", False):
            threading.Thread(target=think, name=f"judge {node}", daemon=True).start()
        else:
            think()
        return thought
