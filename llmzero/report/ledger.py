"""What a run's model calls took, in all, by agent and by node: derived from the recorded calls, never stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llmzero.domain.events import Tree
from llmzero.domain.llm import Usage
from llmzero.domain.types import NodeId

Calls = Sequence[Mapping[str, Any]]
"""Recorded calls as JSON (`agents.llm.recorder.Call`)."""

AGENTS = {"proposal": "proposer", "verdict": "stopper"}
"""Who asked, by the name of the reply's schema."""


def agent_of(call: Mapping[str, Any]) -> str:
    """proposer, stopper, or skill for a conversation with tools."""
    request = call["request"]
    return "skill" if request.get("tools") else AGENTS.get(request.get("name", ""), "other")


def calls_by_node(tree: Tree, calls: Calls) -> dict[NodeId, list[Mapping[str, Any]]]:
    """Calls of each node: its proposal's, and every judgement of it. "" has those no node came of (a lost decision)."""
    named = {digest: node for node in tree.nodes for digest in _named(tree, node)}
    found: dict[NodeId, list[Mapping[str, Any]]] = {}
    for call in calls:
        about = call["request"].get("about", "")
        judged = about if agent_of(call) != "proposer" and about in tree.nodes else ""
        found.setdefault(named.get(call["digest"], judged), []).append(call)
    return found


def _named(tree: Tree, node: NodeId) -> tuple[str, ...]:
    known = tree.nodes[node]
    return (*known.proposal.calls, *(known.verdict.calls if known.verdict else ()))


def ledger(calls: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Calls, tokens and dollars in all, and the same under `by_agent`.

    `usd` is None where no call had a price, `unpriced` how many had none. `tries` counts a call's repetitions too,
    `lost` those without a word on their tokens, `refused` the calls that were not made because of the ceiling.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for call in calls:
        groups.setdefault(agent_of(call), []).append(call)
    by_agent = {name: _entry(groups[name]) for name in sorted(groups)}
    return {**_entry([call for group in groups.values() for call in group]), "by_agent": by_agent}


def _entry(calls: Calls) -> dict[str, Any]:
    made = [c for c in calls if c["reply"]["attempts"]]
    usage = sum((usage_of(c) for c in made), Usage())
    prices = [c["usd"] for c in made if c["usd"] is not None]
    return {
        "calls": len(made),
        "tries": sum(c["reply"]["attempts"] for c in made),
        "failed": sum(bool(c["reply"]["error"]) for c in made),
        "lost": sum(c["reply"]["lost"] for c in made),
        "refused": len(calls) - len(made),
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "completion_tokens": usage.completion_tokens,
        "usd": sum(prices) if prices else None,
        "unpriced": len(made) - len(prices),
    }


def usage_of(call: Mapping[str, Any]) -> Usage:
    return Usage(**call["reply"]["usage"])


def run_ledger(tree: Tree, calls: Calls) -> dict[str, Any]:
    """`ledger` of a whole run, with `by_node`."""
    nodes = calls_by_node(tree, calls)
    return {**ledger(calls), "by_node": {node: _entry(nodes[node]) for node in [*tree.nodes, ""] if node in nodes}}


def ledger_text(entry: Mapping[str, Any]) -> str:
    """`12 calls (8 proposer, 4 stopper), 34,000 + 2,100 tokens (20,000 cached), $0.12`"""
    agents = entry.get("by_agent", {})
    counts = ", ".join(f"{each['calls']} {name}" for name, each in agents.items())
    who = f" ({counts})" if len(agents) > 1 else ""
    cached = f" ({entry['cached_tokens']:,} cached)" if entry["cached_tokens"] else ""
    failed = f", {entry['failed']} without an answer" if entry["failed"] else ""
    refused = f", {entry['refused']} not made at the ceiling" if entry["refused"] else ""
    lost = f" ({entry['lost']} tries without a token count)" if entry["lost"] else ""
    tokens = f"{entry['prompt_tokens']:,} + {entry['completion_tokens']:,} tokens{cached}{lost}"
    calls = f"{entry['calls']} {'call' if entry['calls'] == 1 else 'calls'}"
    return f"{calls}{who}{failed}{refused}, {tokens}, {usd_text(entry)}"


def usd_text(entry: Mapping[str, Any]) -> str:
    if entry["usd"] is None:
        return "no price known"
    some = f" ({entry['unpriced']} calls without a price)" if entry["unpriced"] else ""
    return f"${entry['usd']:.4f}{some}"
