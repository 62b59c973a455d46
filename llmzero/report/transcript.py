"""Model calls as text: what was asked, what came back, what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llmzero.report.ledger import agent_of, ledger, ledger_text, usage_of
from llmzero.report.words import clean, duration

MAX_TEXT = 20_000
"""Characters shown of one message; the record has all of them."""


def transcript_text(calls: Sequence[Mapping[str, Any]]) -> str:
    """The calls one after the other; the system message, the same for all, once."""
    if not calls:
        return "no model was asked here"
    seen: set[str] = set()
    blocks = [_call_text(call, seen) for call in calls]
    return "\n\n".join([*blocks, ledger_text(ledger(calls))])


def _call_text(call: Mapping[str, Any], seen: set[str]) -> str:
    reply = call["reply"]
    usage = usage_of(call)
    cost = ", no price" if call["usd"] is None else f", ${call['usd']:.4f}"
    cached = f" ({usage.cached_tokens} cached)" if usage.cached_tokens else ""
    head = (
        f"=== {agent_of(call)}: {clean(call['request']['purpose'], 40)} {call['digest']}  {clean(call['at'], 40)}  "
        f"{clean(reply['model'], 60)}  {usage.prompt_tokens} + {usage.completion_tokens} tokens{cached}{cost}, "
        f"{duration(reply['latency_s'])}"
    )
    asked = [_message_text(m, seen) for m in call["request"]["messages"]]
    said = f"--- no answer: {clean(reply['error'], 400)}" if reply["error"] else "--- reply"
    called = [f"calls {clean(c['name'], 60)} {clean(c['arguments'], MAX_TEXT)}" for c in reply.get("calls", ())]
    return "\n".join([head, *filter(None, asked), said, *filter(None, [_lines(reply["text"])]), *called])


def _message_text(message: Mapping[str, Any], seen: set[str]) -> str:
    text = "\n".join(_part_text(part) for part in message["parts"])
    if text in seen:
        return f"--- {message['role']}: as above"
    seen.add(text)
    return f"--- {message['role']}\n{text}"


def _part_text(part: Mapping[str, Any]) -> str:
    if "text" in part:
        return _lines(part["text"])
    if "call" in part:
        return f"calls {clean(part['call'], 60)} {clean(part['arguments'], MAX_TEXT)}"
    return f"[{clean(part['title'], 80)}: images/{part['image']}.png]"


def _lines(text: str) -> str:
    """Line by line without control characters."""
    cut = text[:MAX_TEXT]
    return "\n".join(clean(line) if line.strip() else "" for line in cut.splitlines())
