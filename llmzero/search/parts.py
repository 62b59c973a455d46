"""What a search is wired from, and the few acts its loop and its last reading share."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmzero.domain.errors import StateError
from llmzero.domain.events import Event, Tree, apply
from llmzero.domain.jobs import JobState, Weights
from llmzero.domain.series import MetricRow, eval_points, summarise
from llmzero.domain.types import ROOT, Checkpoint, Cost, FailureKind, NodeId, PhaseResult, Status
from llmzero.ports import EarlyStopper, Executor, Observer, Proposer, RunStore
from llmzero.search.judging import Judging

POLL_S = 0.1
TEST_JOB = "test-"
"""Prefix of the jobs that read the test split."""
RETRIES = 2
"""A job that only measures (the base, the test split) is started again this often when its worker dies or hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything a search is wired from. `base` is the resolved base model."""

    store: RunStore
    executor: Executor
    proposer: Proposer
    stopper: EarlyStopper
    observer: Observer
    base: Weights
    judging: Judging = field(default_factory=Judging)
    retried: dict[str, int] = field(default_factory=dict)
    """How often each measuring job was started again after its worker died: a memo, never state."""


def emit(parts: Parts, tree: Tree, event: Event) -> Tree:
    after = apply(tree, event)
    parts.store.append(event)
    parts.observer.changed(after, {})
    return after


def says_nothing(job: str, result: PhaseResult | None) -> bool:
    """A failure that tells of the machine and not of a strategy: never journalled, and tried again on resume."""
    if result is None or result.status is not Status.FAILED:
        return False
    return result.failure is FailureKind.DISK_FULL or job == ROOT or job.startswith(TEST_JOB)


def again(parts: Parts, job: str, result: PhaseResult) -> bool:
    """Whether to start a measuring job again: its worker was killed, which says nothing about what it measures."""
    if result.failure not in (FailureKind.DIED, FailureKind.HANG) or parts.retried.get(job, 0) >= RETRIES:
        return False
    parts.retried[job] = parts.retried.get(job, 0) + 1
    return True


def check_base(parts: Parts) -> None:
    """The base is every strategy's start and KL anchor: once it is gone, no further node would mean the same."""
    damage = parts.store.damage(parts.base)
    if damage:
        raise StateError(f"base model: {damage}; put the weights back as they were, then resume the run")


def checkpoint_of(tree: Tree, node: NodeId) -> Checkpoint | None:
    result = tree.nodes[node].result
    return result.checkpoint if result else None


def weights_of(parts: Parts, tree: Tree, node: NodeId) -> Weights:
    """A node's weights; the root's are the base model."""
    checkpoint = checkpoint_of(tree, node)
    return parts.store.weights(checkpoint) if checkpoint else parts.base


def outcome(parts: Parts, job: str, state: JobState, rows: list[MetricRow]) -> PhaseResult:
    """The worker's own result, or what is known of one that left none."""
    result = parts.store.result(job) if state.state == "done" else None
    if result is not None:
        return result
    steps = max((r.step for r in rows), default=0)
    return PhaseResult(
        status=Status.FAILED,
        steps_done=steps,
        curve=eval_points(rows),
        summaries=summarise(rows),
        cost=Cost(wall_s=state.wall_s, steps=steps),
        failure=state.failure or FailureKind.DIED,
        message=state.message or "the worker ended without a result",
    )
