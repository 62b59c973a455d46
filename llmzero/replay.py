"""Every decision of a run, derived again from its journal: the same, or the first that is not.

Offline and without side effects: the proposer and the stopper are given what they were given then, and a model's
replies come from the run's own records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llmzero.domain.codec import to_json
from llmzero.domain.events import Event, PhaseFinished, PhaseProposed, RunFinished, StopDecided, Tree, apply, fold
from llmzero.domain.series import MetricRow
from llmzero.domain.types import ROOT, NodeId
from llmzero.ports import EarlyStopper, Proposer
from llmzero.search.budget import end_reason
from llmzero.search.horizon import known
from llmzero.search.judging import first_stop
from llmzero.search.phases import next_phase
from llmzero.search.uct import selection_of

RowsOf = Callable[[NodeId], Sequence[MetricRow]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision derived again. `difference` is empty where it is the recorded one, else names the field and both."""

    kind: str
    node: NodeId
    difference: str = ""


def replay(events: Sequence[Event], proposer: Proposer, stopper: EarlyStopper, rows_of: RowsOf) -> Iterator[Decision]:
    """The run's decisions in their order: select, propose, stop or let run, end."""
    tree: Tree | None = None
    for event in events:
        if tree is not None:
            yield from _decisions(tree, event, proposer, stopper, rows_of)
        tree = fold([event]) if tree is None else apply(tree, event)


def _decisions(
    tree: Tree, event: Event, proposer: Proposer, stopper: EarlyStopper, rows_of: RowsOf
) -> Iterator[Decision]:
    if isinstance(event, PhaseProposed) and event.phase.id != ROOT:
        yield from _expansion(tree, event, proposer)
    elif isinstance(event, StopDecided):
        found = first_stop(tree, event.node, stopper, rows_of(event.node))
        yield Decision(kind="stop", node=event.node, difference=_differ(event.verdict, found, "verdict"))
    elif isinstance(event, PhaseFinished) and event.node != ROOT and tree.nodes[event.node].verdict is None:
        found = first_stop(tree, event.node, stopper, rows_of(event.node))
        yield Decision(kind="let run", node=event.node, difference=_differ(None, found, "verdict"))
    elif isinstance(event, RunFinished):
        reason = end_reason(tree, proposer)
        yield Decision(kind="end", node=ROOT, difference=_differ(event.reason, reason, "reason"))


def _expansion(tree: Tree, event: PhaseProposed, proposer: Proposer) -> Iterator[Decision]:
    node = event.phase.id
    seen = known(tree, len(tree.nodes))
    selection = selection_of(seen, proposer)
    yield Decision(kind="select", node=node, difference=_differ(event.selection, selection, "selection"))
    proposal = proposer.propose(seen, event.selection.parent, tree.config.space)
    phase, proposal = next_phase(tree, event.selection, proposal)
    difference = _differ(event.proposal, proposal, "proposal") or _differ(event.phase, phase, "phase")
    yield Decision(kind="propose", node=node, difference=difference)


def _differ(recorded: Any, derived: Any, name: str) -> str:
    """The first field that differs; "" where none does."""
    return _first(to_json(recorded), to_json(derived), name)


def _first(recorded: Any, derived: Any, where: str) -> str:
    if isinstance(recorded, dict) and isinstance(derived, dict):
        keys = list(dict.fromkeys([*recorded, *derived]))
        found = (_first(recorded.get(k), derived.get(k), f"{where}.{k}") for k in keys)
        return next((text for text in found if text), "")
    if isinstance(recorded, list) and isinstance(derived, list) and len(recorded) == len(derived):
        pairs = enumerate(zip(recorded, derived, strict=True))
        return next((text for i, (a, b) in pairs if (text := _first(a, b, f"{where}[{i}]"))), "")
    return "" if recorded == derived else f"{where}: recorded {recorded!r}, derived {derived!r}"
