"""What a decision may know. With several workers the order in which phases end is luck; decisions must not see it.

The decision on the k-th phase, and the stopper's judgement of it, know the outcomes of phases up to the (k - W)-th,
W being the number of workers; later ones count as running even when they have ended. So a search with W workers keeps
them busy, and the same seed gives the same tree whatever the machine's load, a kill or a resume did to the order.
"""

from __future__ import annotations

from dataclasses import replace

from llmzero.domain.events import Tree


def horizon(tree: Tree, sequence: int) -> int:
    """The last phase whose outcome the decision on phase number `sequence` knows; the base (0) always is."""
    return max(0, sequence - tree.config.workers)


def ready(tree: Tree) -> bool:
    """Whether everything the next decision may know has happened."""
    last = horizon(tree, len(tree.nodes))
    return all(n.result is not None for n in tree.nodes.values() if n.sequence <= last)


def known(tree: Tree, sequence: int) -> Tree:
    """The tree as the decision on phase number `sequence` sees it."""
    last = horizon(tree, sequence)
    nodes = {
        n.id: n if n.sequence <= last else replace(n, result=None, verdict=None, lost="") for n in tree.nodes.values()
    }
    return replace(tree, nodes=nodes)
