"""Forced fresh starts: a branch begins at the base again, so that one bad opening cannot trap the search."""

from __future__ import annotations

from llmzero.domain.events import Tree
from llmzero.domain.types import ROOT
from llmzero.search.value import best_so_far


def fresh_start_reason(tree: Tree) -> str:
    """Why the next phase must start from the base; empty when it need not."""
    config = tree.config.search
    expansions = [n for n in tree.nodes.values() if n.id != ROOT]
    openings = [n for n in expansions if n.parent == ROOT]
    if not openings:
        return ""
    since_opening = len(expansions) - 1 - expansions.index(openings[-1])
    if config.fresh_every and since_opening >= config.fresh_every:
        return f"{since_opening} expansions since the last start from the base"
    records = best_so_far(tree)
    best = tree.nodes[records[-1][0]].sequence if records else 0
    stale = sum(1 for n in expansions if n.sequence > best and n.result is not None)
    if config.fresh_patience and min(stale, since_opening) >= config.fresh_patience:
        return f"stagnation: {stale} expansions without a score above {records[-1][1]:.3f} by more than its error"
    return ""
