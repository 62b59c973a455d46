"""Views of a tree that everybody needs: paths, the best node, transitions, strategies. Derived, never stored."""

from __future__ import annotations

from collections.abc import Iterator

from llmzero.domain.events import Tree
from llmzero.domain.types import ROOT, EvalPoint, HyperParams, Node, NodeId, Scalar, Status, Strategy, Transition


def path_to(tree: Tree, node: NodeId) -> tuple[Node, ...]:
    """Nodes from the root to `node`, both included."""
    path: list[Node] = []
    at: NodeId | None = node
    while at is not None:
        path.append(tree.nodes[at])
        at = tree.nodes[at].parent
    return tuple(reversed(path))


def finished(tree: Tree) -> Iterator[Node]:
    """Nodes that finished with a score, the root included."""
    return (n for n in tree.nodes.values() if n.result and n.result.status is Status.FINISHED and n.score is not None)


def best_node(tree: Tree) -> Node | None:
    """The finished node with the highest score whose weights are whole; the earlier one on a tie.

    None before the base is measured.
    """
    return max((n for n in finished(tree) if n.resumable), key=lambda n: (n.score or 0.0, -n.sequence), default=None)


def running(tree: Tree) -> tuple[Node, ...]:
    return tuple(n for n in tree.nodes.values() if n.result is None)


def total_steps(tree: Tree, node: NodeId) -> int:
    """Steps trained from the base to the end of `node` (planned ones while it runs)."""
    return sum(n.result.steps_done if n.result else n.phase.steps for n in path_to(tree, node))


def path_curve(tree: Tree, node: NodeId) -> tuple[EvalPoint, ...]:
    """The validation curve of the whole path, at total steps from the base.

    A phase that kept its best checkpoint hands over an earlier state, but its steps were paid for: steps add up whole.
    """
    points: list[EvalPoint] = []
    offset = 0
    for each in path_to(tree, node):
        if each.result is None:
            break
        points += [EvalPoint(offset + p.step, p.score, p.se) for p in each.result.curve]
        offset += each.result.steps_done
    return tuple(points)


def diff(old: HyperParams, new: HyperParams) -> tuple[tuple[str, Scalar, Scalar], ...]:
    """(field, old, new) for every hyperparameter that differs, in declaration order."""
    before, after = old.flat(), new.flat()
    names = list(dict.fromkeys([*before, *after]))
    return tuple((n, before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n))


def transition(tree: Tree, child: NodeId) -> Transition | None:
    """What changed from the parent to `child`; None for the root."""
    node = tree.nodes[child]
    if node.parent is None:
        return None
    parent = tree.nodes[node.parent]
    change = node.score - parent.score if node.score is not None and parent.score is not None else None
    return Transition(parent=parent.id, child=child, changes=phase_diff(parent, node), score_change=change)


def phase_diff(parent: Node, child: Node) -> tuple[tuple[str, Scalar, Scalar], ...]:
    """Changed hyperparameters, and steps and kl_anchor where they differ (the root has no steps to compare)."""
    other: list[tuple[str, Scalar, Scalar]] = []
    if parent.id != ROOT and parent.phase.steps != child.phase.steps:
        other.append(("steps", parent.phase.steps, child.phase.steps))
    if parent.id != ROOT and parent.phase.kl_anchor != child.phase.kl_anchor:
        other.append(("kl_anchor", parent.phase.kl_anchor, child.phase.kl_anchor))
    return (*diff(parent.phase.hyper, child.phase.hyper), *other)


def strategy_of(tree: Tree, node: NodeId) -> Strategy:
    """The strategy that ends in `node`."""
    path = path_to(tree, node)
    last = path[-1]
    return Strategy(
        nodes=tuple(n.id for n in path if n.id != ROOT),
        phases=tuple(n.phase for n in path if n.id != ROOT),
        score=last.score,
        score_se=last.result.score_se if last.result else None,
        total_steps=total_steps(tree, node),
    )
