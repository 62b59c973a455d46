"""The held-out test split, read once: the base and the best strategy, after everything is decided."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from llmzero.domain.errors import StateError
from llmzero.domain.events import CheckpointLost, TestScored, Tree
from llmzero.domain.jobs import JobState
from llmzero.domain.strategy import best_node
from llmzero.domain.types import ROOT, Node, PhaseResult, Status, TestScore
from llmzero.search.parts import POLL_S, TEST_JOB, Parts, again, check_base, emit, outcome, says_nothing, weights_of
from llmzero.search.phases import evaluate_job


def read_test(parts: Parts, tree: Tree) -> Tree:
    """Score the base and the best strategy on the held-out test split: the only place where it is read."""
    check_base(parts)
    tree = _drop_lost_best(parts, tree)
    best = best_node(tree)
    for node in dict.fromkeys([ROOT, best.id if best else ROOT]):
        if node not in tree.test_scores:
            tree = _test_one(parts, tree, tree.nodes[node])
    return tree


def _drop_lost_best(parts: Parts, tree: Tree) -> Tree:
    """While the best node's weights cannot be used, say so and take the next: it could not be tested or handed on."""
    while (best := best_node(tree)) is not None and best.id not in tree.test_scores:
        damage = parts.store.damage(weights_of(parts, tree, best.id))
        if not damage:
            break
        tree = emit(parts, tree, CheckpointLost(node=best.id, reason=damage))
    return tree


def _test_one(parts: Parts, tree: Tree, node: Node) -> Tree:
    name = f"{TEST_JOB}{node.id}"
    result = parts.store.result(name)
    if result is None or says_nothing(name, result):
        result = _run_to_end(parts, tree, node, name)
    while again(parts, name, result):
        result = _run_to_end(parts, tree, node, name)
    if result.score is None or result.status is not Status.FINISHED:
        raise StateError(
            f"{parts.store.folder(name)}: the test split could not be read: {result.message}; "
            "see log.txt there, then resume the run"
        )
    score = TestScore(score=result.score, se=result.score_se or 0.0, items=result.items)
    return emit(parts, tree, TestScored(node=node.id, score=score))


def _run_to_end(parts: Parts, tree: Tree, node: Node, name: str) -> PhaseResult:
    folder = parts.store.folder(name)
    if parts.executor.attach(folder).state != "running":
        weights = weights_of(parts, tree, node.id)
        parts.executor.submit(parts.store.prepare(name, evaluate_job(tree, node, weights, "test")))
    states: Mapping[Path, JobState] = {}
    while (state := states.get(folder, JobState(state="running"))).state == "running":
        states = parts.executor.poll(POLL_S)
        parts.observer.changed(tree, {})
    return outcome(parts, name, state, [])
