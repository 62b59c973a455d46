"""Which node is expanded next. Pure functions of the tree; see docs/design/uct.md.

UCT(child) = Q(child) + c * sqrt(ln N(parent) / N(child))          Kocsis & Szepesvari 2006, UCB1 on trees
children(node) <= max(1, floor(C * N(node)**alpha))                progressive widening, Coulom 2007
"""

from __future__ import annotations

import math

from llmzero.domain.config import SearchConfig
from llmzero.domain.events import Tree
from llmzero.domain.types import ROOT, Node, NodeId, Selection
from llmzero.ports import Proposer, SelfDirected
from llmzero.search.fresh import fresh_start_reason
from llmzero.search.value import backup, visits


def selection_of(tree: Tree, proposer: Proposer) -> Selection:
    """The node the next phase starts from: the proposer's own choice where it makes one, else the tree policy's."""
    own = proposer.select(tree) if isinstance(proposer, SelfDirected) else None
    return own or select(tree)


def select(tree: Tree) -> Selection:
    """The node the next phase starts from: a forced fresh start where one is due, else by UCT from the root."""
    reason = fresh_start_reason(tree)
    if reason:
        return Selection(parent=ROOT, kind="fresh", reason=reason)
    counts, q = visits(tree), backup(tree, tree.config.search.backup)
    node, trail = tree.nodes[ROOT], [ROOT]
    while True:
        open_children = [tree.nodes[c] for c in node.children if tree.nodes[c].resumable]
        allowed = allowed_children(counts[node.id], tree.config.search)
        if len(node.children) < allowed or not open_children:
            return Selection(parent=node.id, kind="uct", reason=_reason(node, allowed, trail))
        node = max(
            open_children,
            key=lambda c: (uct_score(q[c.id], counts[c.id], counts[_parent(c)], tree.config.search), -c.sequence),
        )
        trail.append(node.id)


def uct_score(q: float, child_visits: int, parent_visits: int, config: SearchConfig) -> float:
    """UCB1 applied to a tree; visits count running phases too."""
    return q + config.exploration * math.sqrt(math.log(parent_visits) / child_visits)


def allowed_children(node_visits: int, config: SearchConfig) -> int:
    """How many children a node of so many visits may have."""
    return max(1, math.floor(config.widening_constant * math.pow(node_visits, config.widening_exponent)))


def _parent(node: Node) -> NodeId:
    return node.parent or ROOT


def _reason(node: Node, allowed: int, trail: list[NodeId]) -> str:
    way = " > ".join(trail)
    if len(node.children) < allowed:
        return f"{way}: {len(node.children)} of {allowed} children allowed at its visits"
    return f"{way}: none of its {len(node.children)} children can be resumed from"
