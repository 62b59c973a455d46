"""What a search may use, and what it has used. Pure: worker time is read from results, so a resumed run adds up."""

from __future__ import annotations

from llmzero.domain.events import Tree
from llmzero.domain.types import ROOT


def used_hours(tree: Tree) -> float:
    """Worker hours of all ended phases."""
    return sum(n.result.cost.wall_s for n in tree.nodes.values() if n.result) / 3600


def exhausted(tree: Tree) -> str:
    """Which budget has run out; empty while another phase may start."""
    config = tree.config
    trained = sum(1 for n in tree.nodes if n != ROOT)
    if trained >= config.nodes:
        return f"all {config.nodes} nodes used"
    if config.hours and used_hours(tree) >= config.hours:
        return f"{used_hours(tree):.2f} of {config.hours:g} worker hours used"
    return ""
