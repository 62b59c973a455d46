"""Scores to values, and values up the tree. Pure; see docs/design/uct.md for the formulas and their sources."""

from __future__ import annotations

from typing import Literal

from llmzero.domain.events import Tree
from llmzero.domain.statistics import mean
from llmzero.domain.strategy import finished
from llmzero.domain.types import Node, NodeId, Status


def values(tree: Tree) -> dict[NodeId, float]:
    """The value in [0, 1] of every node that has ended: its score, min-max normalised over the finished nodes.

    A failed node is worth 0. A stopped one is worth the score it was stopped at, on the same scale and clipped to it.
    While all finished scores are equal every finished node is worth 0.5.
    """
    scores = [n.score for n in finished(tree) if n.score is not None]
    low, high = (min(scores), max(scores)) if scores else (0.0, 0.0)
    return {n.id: _value(n, low, high) for n in tree.nodes.values() if n.result is not None}


def _value(node: Node, low: float, high: float) -> float:
    if node.score is None or node.status == Status.FAILED:
        return 0.0
    if high <= low:
        return 0.5 if node.status == Status.FINISHED else 0.0
    return min(max((node.score - low) / (high - low), 0.0), 1.0)


def visits(tree: Tree) -> dict[NodeId, int]:
    """Nodes in each subtree, its own root and running nodes included (the counts of WU-UCT, Liu et al. 2020)."""
    counts = dict.fromkeys(tree.nodes, 1)
    for node in reversed(list(tree.nodes.values())):
        if node.parent is not None:
            counts[node.parent] += counts[node.id]
    return counts


def backup(tree: Tree, how: Literal["mean", "max"]) -> dict[NodeId, float]:
    """Q of every node: mean (or maximum) of the values in its subtree; 0 while nothing in it has ended."""
    below: dict[NodeId, list[float]] = {n: [] for n in tree.nodes}
    own = values(tree)
    combine = max if how == "max" else mean
    for node in reversed(list(tree.nodes.values())):
        if node.id in own:
            below[node.id].append(own[node.id])
        if node.parent is not None:
            below[node.parent] += below[node.id] if how == "mean" else below[node.id] and [max(below[node.id])]
    return {n: combine(v) if v else 0.0 for n, v in below.items()}


def best_so_far(tree: Tree) -> list[tuple[NodeId, float]]:
    """Each node that set a new best by more than its own standard error, in the order they were proposed."""
    records: list[tuple[NodeId, float]] = []
    for node in finished(tree):
        score = node.score or 0.0
        error = (node.result.score_se or 0.0) if node.result else 0.0
        if not records or score > records[-1][1] + error:
            records.append((node.id, score))
    return records
