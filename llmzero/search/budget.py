"""What a search may use, and what it has used. Pure: worker time is read from results, so a resumed run adds up."""

from __future__ import annotations

from llmzero.domain.events import Tree
from llmzero.domain.types import ROOT
from llmzero.ports import Proposer, SelfDirected
from llmzero.search.horizon import known


def used_hours(tree: Tree) -> float:
    """Worker hours of all ended phases."""
    return sum(n.result.cost.wall_s for n in tree.nodes.values() if n.result) / 3600


def end_reason(tree: Tree, proposer: Proposer) -> str:
    """Why no further phase may start: a budget, or the proposer's own word; empty while one may."""
    ended = exhausted(tree)
    return ended or (proposer.ended(known(tree, len(tree.nodes))) if isinstance(proposer, SelfDirected) else "")


def exhausted(tree: Tree) -> str:
    """Which budget has run out; empty while another phase may start."""
    config = tree.config
    trained = sum(1 for n in tree.nodes if n != ROOT)
    if trained >= config.nodes:
        return f"all {config.nodes} nodes used"
    if config.hours and used_hours(tree) >= config.hours:
        return f"{used_hours(tree):.2f} of {config.hours:g} worker hours used"
    return ""
