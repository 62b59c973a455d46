"""The journal's vocabulary and what each word does to the tree. tree = fold(events); nothing else is state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from llmzero.domain.codec import from_json, to_json
from llmzero.domain.config import RunConfig
from llmzero.domain.types import Node, NodeId, Phase, PhaseResult, Proposal, Selection, Status, TestScore, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """First event of every journal."""

    run: str
    config: RunConfig
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseProposed:
    """The intent: written before the worker starts, so that a crash never trains a phase twice."""

    phase: Phase
    selection: Selection
    proposal: Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDecided:
    """The stopper ended a phase; its result will read `stopped` whatever the worker still does."""

    node: NodeId
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFinished:
    """A phase's outcome, of any status."""

    node: NodeId
    result: PhaseResult


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLost:
    """A finished node's weights are missing or damaged: it is never resumed from again."""

    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TestScored:
    """The held-out test score of one node, after the search."""

    __test__ = False

    node: NodeId
    score: TestScore


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The search ended by itself; `reason` names the budget that ran out."""

    reason: str


Event = RunStarted | PhaseProposed | StopDecided | PhaseFinished | CheckpointLost | TestScored | RunFinished

NODE_ID = re.compile(r"n(0|[1-9]\d{0,8})", flags=re.ASCII)
"""Node ids are names of folders, so a journal may hold no others."""

EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (RunStarted, PhaseProposed, StopDecided, PhaseFinished, CheckpointLost, TestScored, RunFinished)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Everything known of a run. Nodes are in the order they were proposed."""

    run: str = ""
    config: RunConfig = field(default_factory=RunConfig)
    started_at: str = ""
    nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    test_scores: Mapping[NodeId, TestScore] = field(default_factory=dict)
    ended: str = ""


def apply(tree: Tree, event: Event) -> Tree:
    """The tree after one more event. Raises ValueError on an event that cannot follow."""
    nodes = dict(tree.nodes)
    return replace(_step(replace(tree, nodes=nodes), nodes, event), nodes=nodes)


def fold(events: Iterable[Event]) -> Tree:
    """The tree of a whole journal, in time linear in its length."""
    nodes: dict[NodeId, Node] = {}
    tree = Tree(nodes=nodes)
    for event in events:
        tree = _step(tree, nodes, event)
    return tree


def _step(tree: Tree, nodes: dict[NodeId, Node], event: Event) -> Tree:
    match event:
        case RunStarted():
            return replace(tree, run=event.run, config=event.config, started_at=event.at)
        case PhaseProposed():
            _add(nodes, event)
        case StopDecided():
            nodes[event.node] = replace(_running(nodes, event.node), verdict=event.verdict)
        case PhaseFinished():
            node = _running(nodes, event.node)
            status = Status.STOPPED if node.verdict and event.result.status is Status.FINISHED else event.result.status
            nodes[event.node] = replace(node, result=replace(event.result, status=status))
        case CheckpointLost():
            nodes[event.node] = replace(nodes[event.node], lost=event.reason)
        case TestScored():
            return replace(tree, test_scores={**tree.test_scores, event.node: event.score})
        case RunFinished():
            return replace(tree, ended=event.reason)
        case _:
            assert_never(event)
    return tree


def _add(nodes: dict[NodeId, Node], event: PhaseProposed) -> None:
    phase = event.phase
    if phase.id in nodes:
        raise ValueError(f"node {phase.id} proposed twice")
    if phase.parent is not None:
        if phase.parent not in nodes:
            raise ValueError(f"node {phase.id} has an unknown parent {phase.parent}")
        parent = nodes[phase.parent]
        nodes[parent.id] = replace(parent, children=(*parent.children, phase.id))
    nodes[phase.id] = Node(
        id=phase.id,
        parent=phase.parent,
        sequence=len(nodes),
        phase=phase,
        selection=event.selection,
        proposal=event.proposal,
    )


def _running(nodes: dict[NodeId, Node], node: NodeId) -> Node:
    found = nodes.get(node)
    if found is None:
        raise ValueError(f"node {node} was never proposed")
    if found.result is not None:
        raise ValueError(f"node {node} finished twice")
    return found


def event_to_json(event: Event) -> dict[str, Any]:
    """One journal line."""
    return {"event": type(event).__name__, **to_json(event)}


def event_from_json(line: Mapping[str, Any]) -> Event:
    """The event of a journal line; raises ValueError naming what is wrong."""
    rest = dict(line)
    name = rest.pop("event", None)
    if name not in EVENTS:
        raise ValueError(f"unknown event {str(name)[:60]!r}")
    event = from_json(EVENTS[name], rest)
    if isinstance(event, PhaseProposed) and not NODE_ID.fullmatch(event.phase.id):
        raise ValueError(f"{event.phase.id[:60]!r} is no node id (n0, n1, ...)")
    return event
