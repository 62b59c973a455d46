"""The growing conversation of the skill agent, as values: every function gives a new one, longer at its end.

A tool call that acts (launches, stops, ends) stays open: its result is the next news. Calls may also come as words,
from endpoints without tools; their results are the user's words then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llmzero.domain.llm import ChatMessage, Image, Reply, Text, ToolCall

MAX_SAID = 4000
"""Characters kept of a model's words beside its calls."""
MAX_CALLS = 8
"""Calls answered of one reply."""


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation. `open_call` is the id of the tool call whose result is still to come, `calls` how many there
    were: ids are numbered here, because endpoints repeat theirs."""

    messages: tuple[ChatMessage, ...]
    open_call: str = ""
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A tool call taken apart: `problem` says why its arguments cannot be read."""

    call: ToolCall
    arguments: Mapping[str, Any]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool gives back."""

    text: str
    images: tuple[Image, ...] = ()


def begin(system: ChatMessage, text: str) -> Talk:
    return Talk((system, ChatMessage("user", (Text(text),))))


def news(talk: Talk, text: str) -> Talk:
    """What happened: the result of the open call, else the user's words."""
    if talk.open_call:
        return replace(_told(talk, talk.open_call, Answer(text)), open_call="")
    return _heard(talk, (Text(text),))


def said(talk: Talk, reply: Reply) -> tuple[Talk, tuple[Asked, ...]]:
    """The conversation with the model's reply, and the calls in it."""
    asked = [_asked(call, talk.calls + i) for i, call in enumerate(reply.calls[:MAX_CALLS], start=1)]
    words = (Text(reply.text[:MAX_SAID]),) if reply.text.strip() else ()
    message = ChatMessage("assistant", (*words, *(each.call for each in asked)))
    after = Talk((*talk.messages, message), calls=talk.calls + len(asked))
    return after, tuple(asked) or _asked_in_words(reply.text)


def answered(talk: Talk, asked: Asked, answer: Answer) -> Talk:
    """The conversation with a call's result; its pictures follow once every call of the reply has one (`shown`)."""
    return _told(talk, asked.call.id, answer)


def shown(talk: Talk, images: Sequence[Image]) -> Talk:
    """Pictures, which only the user may send."""
    return (
        _heard(talk, tuple(part for image in images for part in (Text(f"{image.title}:"), image))) if images else talk
    )


def opened(talk: Talk, asked: Asked) -> Talk:
    """The call acts: its result comes later, as news."""
    return replace(talk, open_call=asked.call.id)


def _told(talk: Talk, call: str, answer: Answer) -> Talk:
    if not call:
        return _heard(talk, (Text(answer.text),))
    return replace(talk, messages=(*talk.messages, ChatMessage("tool", (Text(answer.text),), answers=call)))


def _heard(talk: Talk, parts: tuple[Text | Image, ...]) -> Talk:
    """The user's words; two messages of a user in a row are one, for templates that want turns."""
    last = talk.messages[-1]
    if last.role == "user":
        return replace(talk, messages=(*talk.messages[:-1], ChatMessage("user", (*last.parts, *parts))))
    return replace(talk, messages=(*talk.messages, ChatMessage("user", parts)))


def _asked(call: ToolCall, number: int) -> Asked:
    """The call as it can be sent back: endpoints refuse odd names, repeated ids and arguments that are no JSON."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "unnamed"
    arguments = _object(call.arguments)
    problem = "" if arguments is not None else "the arguments are not one JSON object"
    sent = json.dumps(arguments or {})
    return Asked(ToolCall(f"call{number:05d}", name, sent), arguments or {}, problem)


def _asked_in_words(text: str) -> tuple[Asked, ...]:
    """The call a model without tools writes as JSON: bare, in a code fence, or after its thoughts."""
    bare = re.sub(r"<think>.*?</think>", "", text, flags=re.DOTALL)
    value = _object(bare[bare.find("{") : bare.rfind("}") + 1])
    if value is None or not isinstance(value.get("tool"), str):
        return ()
    arguments = value.get("arguments", {})
    known = isinstance(arguments, dict)
    problem = "" if known else "arguments is not a JSON object"
    return (Asked(ToolCall("", str(value["tool"]), ""), arguments if known else {}, problem),)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
