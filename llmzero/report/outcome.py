"""The result of a run: the best strategy against the base, on validation and on the held-out test, with intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from llmzero.domain.events import Tree
from llmzero.domain.strategy import best_node, path_to, phase_diff
from llmzero.domain.types import ROOT, Node, NodeId
from llmzero.report.words import changed_text, clean, signed, spoken

Json = dict[str, Any]


def difference(old: Node, new: Node) -> Json | None:
    """Score difference of two nodes with its 95% interval; None where either has no score."""
    if old.score is None or new.score is None:
        return None
    return interval(old.score, _se(old), new.score, _se(new))


def _se(node: Node) -> float:
    return (node.result.score_se if node.result else None) or 0.0


def interval(old: float, old_se: float, new: float, new_se: float) -> Json:
    """`new - old` with a normal 95% interval.

    The two are taken as independent. They share their items, which mostly makes the true interval narrower.
    """
    half = 1.959964 * math.hypot(old_se, new_se)
    return {
        "from": old,
        "from_se": old_se,
        "to": new,
        "to_se": new_se,
        "difference": new - old,
        "low": new - old - half,
        "high": new - old + half,
    }


def headline(tree: Tree) -> Json:
    """The run's result in one sentence, and the numbers it rests on."""
    best, base = best_node(tree), tree.nodes.get(ROOT)
    if best is None or base is None or base.score is None or best.id == ROOT:
        return {"text": _no_gain(tree), "validation": None, "test": None, "how": []}
    validation, test = difference(base, best), held_out(tree, best.id)
    depth = len(path_to(tree, best.id)) - 1
    text = f"A strategy of {depth} {'phase' if depth == 1 else 'phases'} takes {clean(tree.config.task, 60)} from"
    text += f" {base.score:.3f} to {best.score:.3f} on validation"
    text += "" if test else f" ({interval_text(validation)})"
    if test:
        text += f"; held-out test {test['from']:.3f} to {test['to']:.3f} ({interval_text(test)})"
    return {"text": text + ".", "validation": validation, "test": test, "how": _gains(tree, best.id)}


def _no_gain(tree: Tree) -> str:
    base = tree.nodes.get(ROOT)
    if base is None or base.score is None:
        failed = base is not None and base.result is not None
        return "The base model could not be measured." if failed else "No score yet: the base model is being measured."
    ended = [n for n in tree.nodes.values() if n.result and n.id != ROOT]
    count = "the one phase" if len(ended) == 1 else f"{len(ended)} phases"
    what = f"{count} so far did not beat it" if ended else "no phase has ended yet"
    if ended and all(n.status == "failed" for n in ended):
        what = f"{count} so far failed"
    return f"The base model scores {base.score:.3f} on {clean(tree.config.task, 60)}; {what}."


def interval_text(change: Mapping[str, float] | None) -> str:
    if change is None:
        return ""
    return f"{signed(change['difference'])}, 95% interval {signed(change['low'])} to {signed(change['high'])}"


def held_out(tree: Tree, best: NodeId) -> Json | None:
    """Base against `best` on the held-out test; None before both were measured there."""
    old, new = tree.test_scores.get(ROOT), tree.test_scores.get(best)
    if old is None or new is None or best == ROOT:
        return None
    return interval(old.score, old.se, new.score, new.se)


def _gains(tree: Tree, best: NodeId) -> list[Json]:
    """What each stage of the best strategy changed and gained, in order."""
    path = path_to(tree, best)
    return [_gain(i, a, b) for i, (a, b) in enumerate(itertools.pairwise(path), start=1)]


def _gain(stage: int, parent: Node, node: Node) -> Json:
    return {
        "stage": stage,
        "node": node.id,
        "pathology": spoken(node.proposal.pathology),
        "changes": changed_text(node, phase_diff(parent, node)),
        "gain": (difference(parent, node) or {}).get("difference"),
    }
