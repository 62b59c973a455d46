"""The loop: select, propose, train, watch, score, repeat. One synchronous thread; every step is journalled first.

Each decision is a pure function of (tree, config), and the tree is a fold of the journal: stopping the process at any
point and running `search` again on the same folder continues as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llmzero.domain.errors import StateError, UsageError
from llmzero.domain.events import (
    CheckpointLost,
    Event,
    PhaseFinished,
    PhaseProposed,
    RunFinished,
    StopDecided,
    TestScored,
    Tree,
    apply,
    fold,
)
from llmzero.domain.jobs import JobState, Weights
from llmzero.domain.series import MetricRow, eval_points, summarise
from llmzero.domain.strategy import best_node, running
from llmzero.domain.types import (
    ROOT,
    Checkpoint,
    Cost,
    FailureKind,
    Node,
    NodeId,
    Phase,
    PhaseResult,
    Proposal,
    Selection,
    Status,
    TestScore,
    Verdict,
)
from llmzero.ports import EarlyStopper, Executor, Observer, Proposer, RunStore
from llmzero.search.budget import exhausted
from llmzero.search.horizon import known, ready
from llmzero.search.phases import (
    BASE_PROPOSAL,
    BASE_SELECTION,
    base_phase,
    evaluate_job,
    next_phase,
    stopped_result,
    train_job,
)
from llmzero.search.uct import select

POLL_S = 0.1
TEST_JOB = "test-"
"""Prefix of the jobs that read the test split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything a search is wired from. `base` is the resolved base model."""

    store: RunStore
    executor: Executor
    proposer: Proposer
    stopper: EarlyStopper
    observer: Observer
    base: Weights
    judged: dict[NodeId, int] = field(default_factory=dict)
    """How many evaluations of each running phase the stopper has seen: a memo, never state."""


def search(parts: Parts) -> Tree:
    """Run, or go on with, the search whose journal `parts.store` holds; returns the final tree.

    Raises UsageError when the base model cannot be measured and StateError when the disk is full: nothing of that is
    journalled, so the same run can be resumed once the cause is gone.
    """
    tree = fold(parts.store.events())
    if tree.ended:
        return tree
    _take_up(parts, tree)
    while True:
        while _has_room(tree):
            tree = _expand(parts, tree)
        if not running(tree):
            break
        tree = _watch(parts, tree)
    tree = _read_test(parts, tree)
    return _emit(parts, tree, RunFinished(reason=exhausted(tree)))


def _emit(parts: Parts, tree: Tree, event: Event) -> Tree:
    after = apply(tree, event)
    parts.store.append(event)
    parts.observer.changed(after, {})
    return after


def _take_up(parts: Parts, tree: Tree) -> None:
    """Attach to phases an earlier controller started; start again those that left nothing to keep."""
    for node in running(tree):
        state = parts.executor.attach(parts.store.folder(node.id))
        if state.state in ("dead", "absent") or _says_nothing(node.id, parts.store.result(node.id)):
            _submit(parts, tree, node.phase)


def _says_nothing(job: str, result: PhaseResult | None) -> bool:
    """A failure that tells of the machine and not of a strategy: never journalled, and tried again on resume."""
    if result is None or result.status is not Status.FAILED:
        return False
    return result.failure is FailureKind.DISK_FULL or job == ROOT or job.startswith(TEST_JOB)


def _has_room(tree: Tree) -> bool:
    if ROOT not in tree.nodes:
        return True
    if tree.nodes[ROOT].result is None:
        return False
    return ready(tree) and not exhausted(tree)


def _expand(parts: Parts, tree: Tree) -> Tree:
    """Decide on one more phase, journal it, start it."""
    _check_base(parts)
    if ROOT not in tree.nodes:
        return _launch(parts, tree, base_phase(tree), BASE_SELECTION, BASE_PROPOSAL)
    seen = known(tree, len(tree.nodes))
    selection = select(seen)
    damage = parts.store.damage(_weights(parts, tree, selection.parent))
    if damage:
        return _emit(parts, tree, CheckpointLost(node=selection.parent, reason=damage))
    proposal = parts.proposer.propose(seen, selection.parent, tree.config.space)
    phase, proposal = next_phase(tree, selection, proposal)
    return _launch(parts, tree, phase, selection, proposal)


def _check_base(parts: Parts) -> None:
    """The base is every strategy's start and KL anchor: once it is gone, no further node would mean the same."""
    damage = parts.store.damage(parts.base)
    if damage:
        raise StateError(f"base model: {damage}; put the weights back as they were, then resume the run")


def _launch(parts: Parts, tree: Tree, phase: Phase, selection: Selection, proposal: Proposal) -> Tree:
    tree = _emit(parts, tree, PhaseProposed(phase=phase, selection=selection, proposal=proposal))
    _submit(parts, tree, phase)
    return tree


def _submit(parts: Parts, tree: Tree, phase: Phase) -> None:
    start = _weights(parts, tree, phase.parent) if phase.parent else parts.base
    parts.executor.submit(parts.store.prepare(phase.id, train_job(tree, phase, start, parts.base)))


def _checkpoint(tree: Tree, node: NodeId) -> Checkpoint | None:
    result = tree.nodes[node].result
    return result.checkpoint if result else None


def _weights(parts: Parts, tree: Tree, node: NodeId) -> Weights:
    """A node's weights; the root's are the base model."""
    checkpoint = _checkpoint(tree, node)
    return parts.store.weights(checkpoint) if checkpoint else parts.base


def _watch(parts: Parts, tree: Tree) -> Tree:
    """Wait a moment; judge what was evaluated meanwhile, take in what ended."""
    states = parts.executor.poll(POLL_S)
    live: dict[NodeId, Sequence[MetricRow]] = {}
    for node in running(tree):
        folder = parts.store.folder(node.id)
        rows = parts.store.rows(node.id)
        tree = _judge(parts, tree, node.id, rows)
        state = states.get(folder) or parts.executor.attach(folder)
        if state.state == "running":
            live[node.id] = rows
        elif state.state == "absent":
            raise StateError(f"{folder}: the job's folder vanished while it ran; the run cannot go on without it")
        else:
            tree = _take_in(parts, tree, node.id, state)
    parts.observer.changed(tree, live)
    return tree


def _judge(parts: Parts, tree: Tree, node: NodeId, rows: Sequence[MetricRow]) -> Tree:
    """Ask the stopper about every new evaluation in order, each with what was known then, until it says stop."""
    if node == ROOT:
        return tree
    points = eval_points(rows)
    verdict = tree.nodes[node].verdict or _first_stop(parts, tree, node, rows)
    if verdict is not None and tree.nodes[node].verdict is None:
        tree = _emit(parts, tree, StopDecided(node=node, verdict=verdict))
    if verdict is not None and any(p.step >= verdict.at_step for p in points):
        parts.executor.stop(parts.store.folder(node))
    return tree


def _first_stop(parts: Parts, tree: Tree, node: NodeId, rows: Sequence[MetricRow]) -> Verdict | None:
    points = eval_points(rows)
    seen = known(tree, tree.nodes[node].sequence)
    for k in range(parts.judged.get(node, 0) + 1, len(points) + 1):
        so_far = [r for r in rows if r.step <= points[k - 1].step]
        verdict = parts.stopper.judge(seen, node, points[:k], so_far)
        parts.judged[node] = k
        if verdict.action == "stop":
            return verdict
    return None


def _take_in(parts: Parts, tree: Tree, node: NodeId, state: JobState) -> Tree:
    """Journal how a phase ended, after judging the evaluations that came with its end."""
    rows = list(parts.store.rows(node))
    tree = _judge(parts, tree, node, rows)
    result = _outcome(parts, node, state, rows)
    if node == ROOT and result.status is not Status.FINISHED:
        raise UsageError(f"the base model could not be measured: {result.message} [{parts.store.folder(node)}]")
    if result.failure is FailureKind.DISK_FULL:
        raise StateError(f"{parts.store.folder(node)}: disk full ({result.message}); free space, then resume the run")
    verdict = tree.nodes[node].verdict
    if verdict and any(p.step >= verdict.at_step for p in result.curve):
        result = stopped_result(result, rows, verdict)
    tree = _emit(parts, tree, PhaseFinished(node=node, result=result))
    parts.store.collect_garbage(tree)
    return tree


def _outcome(parts: Parts, job: str, state: JobState, rows: list[MetricRow]) -> PhaseResult:
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


def _read_test(parts: Parts, tree: Tree) -> Tree:
    """Score the base and the best strategy on the held-out test split: the only place where it is read."""
    _check_base(parts)
    tree = _drop_lost_best(parts, tree)
    best = best_node(tree)
    for node in dict.fromkeys([ROOT, best.id if best else ROOT]):
        if node not in tree.test_scores:
            tree = _test_one(parts, tree, tree.nodes[node])
    return tree


def _drop_lost_best(parts: Parts, tree: Tree) -> Tree:
    """While the best node's weights cannot be used, say so and take the next: it could not be tested or handed on."""
    while (best := best_node(tree)) is not None and best.id not in tree.test_scores:
        damage = parts.store.damage(_weights(parts, tree, best.id))
        if not damage:
            break
        tree = _emit(parts, tree, CheckpointLost(node=best.id, reason=damage))
    return tree


def _test_one(parts: Parts, tree: Tree, node: Node) -> Tree:
    name = f"{TEST_JOB}{node.id}"
    result = parts.store.result(name)
    if result is None or _says_nothing(name, result):
        result = _run_to_end(parts, tree, node, name)
    if result.score is None or result.status is not Status.FINISHED:
        raise StateError(
            f"{parts.store.folder(name)}: the test split could not be read: {result.message}; "
            "see log.txt there, then resume the run"
        )
    score = TestScore(score=result.score, se=result.score_se or 0.0, items=result.items)
    return _emit(parts, tree, TestScored(node=node.id, score=score))


def _run_to_end(parts: Parts, tree: Tree, node: Node, name: str) -> PhaseResult:
    folder = parts.store.folder(name)
    if parts.executor.attach(folder).state != "running":
        weights = _weights(parts, tree, node.id)
        parts.executor.submit(parts.store.prepare(name, evaluate_job(tree, node, weights, "test")))
    states: Mapping[Path, JobState] = {}
    while (state := states.get(folder, JobState(state="running"))).state == "running":
        states = parts.executor.poll(POLL_S)
        parts.observer.changed(tree, {})
    return _outcome(parts, name, state, [])
