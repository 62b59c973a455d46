"""Model calls as text: what was asked, what came back, what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llmzero.domain.events import Tree
from llmzero.domain.llm import Usage
from llmzero.domain.types import NodeId
from llmzero.report.words import clean, duration

MAX_TEXT = 20_000
"""Characters shown of one message; the record has all of them."""


def calls_of(tree: Tree, node: NodeId, calls: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The recorded calls behind a node: its proposal's, its verdict's, and every judgement of it while it ran."""
    known = tree.nodes[node]
    named = {*known.proposal.calls, *(known.verdict.calls if known.verdict else ())}
    judged = ("judge", "repair")
    return [
        c
        for c in calls
        if c["digest"] in named or (c["request"]["purpose"] in judged and c["request"].get("about") == node)
    ]


def ledger(calls: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Calls, tokens and dollars in all; `usd` None where no call had a price, `unpriced` how many had none."""
    rows = list(calls)
    usage = sum((_usage(c) for c in rows), Usage())
    prices = [c["usd"] for c in rows if c["usd"] is not None]
    return {
        "calls": len(rows),
        "failed": sum(bool(c["reply"]["error"]) for c in rows),
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "completion_tokens": usage.completion_tokens,
        "usd": sum(prices) if prices else None,
        "unpriced": len(rows) - len(prices),
    }


def _usage(call: Mapping[str, Any]) -> Usage:
    return Usage(**call["reply"]["usage"])


def transcript_text(calls: Sequence[Mapping[str, Any]]) -> str:
    """The calls one after the other; the system message, the same for all, once."""
    if not calls:
        return "no model was asked here"
    seen: set[str] = set()
    blocks = [_call_text(call, seen) for call in calls]
    return "\n\n".join([*blocks, ledger_text(ledger(calls))])


def _call_text(call: Mapping[str, Any], seen: set[str]) -> str:
    reply = call["reply"]
    usage = _usage(call)
    cost = "" if call["usd"] is None else f", ${call['usd']:.4f}"
    head = (
        f"=== {clean(call['request']['purpose'], 40)} {call['digest']}  {clean(call['at'], 40)}  "
        f"{clean(reply['model'], 60)}  {usage.prompt_tokens} + {usage.completion_tokens} tokens{cost}, "
        f"{duration(reply['latency_s'])}"
    )
    asked = [_message_text(m, seen) for m in call["request"]["messages"]]
    said = f"--- no answer: {clean(reply['error'], 400)}" if reply["error"] else "--- reply"
    return "\n".join([head, *filter(None, asked), said, _lines(reply["text"])])


def _message_text(message: Mapping[str, Any], seen: set[str]) -> str:
    text = "\n".join(_part_text(part) for part in message["parts"])
    if text in seen:
        return f"--- {message['role']}: as above"
    seen.add(text)
    return f"--- {message['role']}\n{text}"


def _part_text(part: Mapping[str, Any]) -> str:
    return _lines(part["text"]) if "text" in part else f"[{clean(part['title'], 80)}: images/{part['image']}.png]"


def _lines(text: str) -> str:
    """Line by line without control characters."""
    cut = text[:MAX_TEXT]
    return "\n".join(clean(line) if line.strip() else "" for line in cut.splitlines())


def ledger_text(entry: Mapping[str, Any]) -> str:
    """`12 calls, 34,000 + 2,100 tokens (20,000 cached), $0.12`"""
    cached = f" ({entry['cached_tokens']:,} cached)" if entry["cached_tokens"] else ""
    failed = f", {entry['failed']} without an answer" if entry["failed"] else ""
    usd = "no price known" if entry["usd"] is None else f"${entry['usd']:.4f}"
    some = f" ({entry['unpriced']} calls without a price)" if entry["usd"] is not None and entry["unpriced"] else ""
    tokens = f"{entry['prompt_tokens']:,} + {entry['completion_tokens']:,} tokens{cached}"
    return f"{entry['calls']} calls{failed}, {tokens}, {usd}{some}"
