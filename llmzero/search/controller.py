"""The loop: select, propose, train, watch, score, repeat. One synchronous thread; every step is journalled first.

Each decision is a pure function of (tree, config), and the tree is a fold of the journal: stopping the process at any
point and running `search` again on the same folder continues as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmzero.domain.errors import StateError, UsageError
from llmzero.domain.events import CheckpointLost, PhaseFinished, PhaseProposed, RunFinished, StopDecided, Tree, fold
from llmzero.domain.jobs import JobState
from llmzero.domain.series import MetricRow, eval_points
from llmzero.domain.strategy import running
from llmzero.domain.types import ROOT, FailureKind, NodeId, Phase, Proposal, Selection, Status
from llmzero.search.budget import end_reason
from llmzero.search.held_out import read_test
from llmzero.search.horizon import known, ready
from llmzero.search.parts import POLL_S, Parts, again, check_base, emit, outcome, says_nothing, weights_of
from llmzero.search.phases import BASE_PROPOSAL, BASE_SELECTION, base_phase, next_phase, stopped_result, train_job
from llmzero.search.uct import selection_of


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
        while _has_room(parts, tree):
            tree = _expand(parts, tree)
        if not running(tree):
            break
        tree = _watch(parts, tree)
    tree = read_test(parts, tree)
    return emit(parts, tree, RunFinished(reason=end_reason(tree, parts.proposer)))


def _take_up(parts: Parts, tree: Tree) -> None:
    """Attach to phases an earlier controller started; start again those that left nothing to keep."""
    for node in running(tree):
        result = parts.store.result(node.id)  # first: a damaged one is set aside by this, and then missing
        state = parts.executor.attach(parts.store.folder(node.id))
        if state.state in ("dead", "absent") or says_nothing(node.id, result):
            _submit(parts, tree, node.phase)


def _has_room(parts: Parts, tree: Tree) -> bool:
    if ROOT not in tree.nodes:
        return True
    if tree.nodes[ROOT].result is None:
        return False
    return ready(tree) and not end_reason(tree, parts.proposer)


def _expand(parts: Parts, tree: Tree) -> Tree:
    """Decide on one more phase, journal it, start it."""
    check_base(parts)
    if ROOT not in tree.nodes:
        return _launch(parts, tree, base_phase(tree), BASE_SELECTION, BASE_PROPOSAL)
    seen = known(tree, len(tree.nodes))
    selection = selection_of(seen, parts.proposer)
    damage = parts.store.damage(weights_of(parts, tree, selection.parent))
    if damage:
        return emit(parts, tree, CheckpointLost(node=selection.parent, reason=damage))
    proposal = parts.proposer.propose(seen, selection.parent, tree.config.space)
    phase, proposal = next_phase(tree, selection, proposal)
    return _launch(parts, tree, phase, selection, proposal)


def _launch(parts: Parts, tree: Tree, phase: Phase, selection: Selection, proposal: Proposal) -> Tree:
    tree = emit(parts, tree, PhaseProposed(phase=phase, selection=selection, proposal=proposal))
    _submit(parts, tree, phase)
    return tree


def _submit(parts: Parts, tree: Tree, phase: Phase) -> None:
    start = weights_of(parts, tree, phase.parent) if phase.parent else parts.base
    parts.executor.submit(parts.store.prepare(phase.id, train_job(tree, phase, start, parts.base)))


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


def _judge(parts: Parts, tree: Tree, node: NodeId, rows: Sequence[MetricRow], *, wait: bool = False) -> Tree:
    """Ask the stopper about every new evaluation, until it says stop; `wait` for a slow one's answer."""
    if node == ROOT:
        return tree
    verdict = tree.nodes[node].verdict
    if verdict is None:
        verdict = parts.judging.first_stop(tree, node, parts.stopper, rows, wait=wait)
        if verdict is not None:
            tree = emit(parts, tree, StopDecided(node=node, verdict=verdict))
    if verdict is not None and any(p.step >= verdict.at_step for p in eval_points(rows)):
        parts.executor.stop(parts.store.folder(node))
    return tree


def _take_in(parts: Parts, tree: Tree, node: NodeId, state: JobState) -> Tree:
    """Journal how a phase ended, after judging the evaluations that came with its end."""
    rows = list(parts.store.rows(node))
    tree = _judge(parts, tree, node, rows, wait=True)
    result = outcome(parts, node, state, rows)
    if node == ROOT and again(parts, node, result):
        _submit(parts, tree, tree.nodes[ROOT].phase)
        return tree
    if node == ROOT and result.status is not Status.FINISHED:
        raise UsageError(f"the base model could not be measured: {result.message} [{parts.store.folder(node)}]")
    if result.failure is FailureKind.DISK_FULL:
        raise StateError(f"{parts.store.folder(node)}: disk full ({result.message}); free space, then resume the run")
    verdict = tree.nodes[node].verdict
    if verdict and any(p.step >= verdict.at_step for p in result.curve):
        result = stopped_result(result, rows, verdict)
    tree = emit(parts, tree, PhaseFinished(node=node, result=result))
    parts.store.collect_garbage(tree)
    return tree
