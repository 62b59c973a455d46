"""What is said to a language model and what it says back. Pure: no client, no file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Text:
    """A part of a message."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in a message: PNG bytes, and what it shows in a few words."""

    png: bytes
    title: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.png).hexdigest()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool a model calls, as part of its message: `arguments` is the JSON text it wrote."""

    id: str
    name: str
    arguments: str


Part = Text | Image | ToolCall


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation. `answers` is the id of the tool call whose result a `tool` message is."""

    role: Role
    parts: tuple[Part, ...]
    answers: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call. `schema` is the JSON schema of the reply, `name` its name; `tools` what the model may call instead,
    each with name, description and parameters (a JSON schema).

    `purpose` is propose, repair or judge; `about` the node it is about: the parent of a proposal, the phase judged (of
    a skill agent: the phase decided on or judged).
    """

    purpose: str
    about: str = ""
    messages: tuple[ChatMessage, ...]
    name: str = "reply"
    schema: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Mapping[str, Any], ...] = ()

    @property
    def digest(self) -> str:
        """What tells requests apart: every word, every picture, the schema, the tools. The key of a recorded call."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()[:20]

    def as_json(self) -> dict[str, Any]:
        """The request as it is kept: pictures by their digest."""
        about = {"purpose": self.purpose, "about": self.about, "name": self.name, "schema": dict(self.schema)}
        tools = {"tools": [dict(tool) for tool in self.tools]} if self.tools else {}
        return {**about, "messages": [_message(m) for m in self.messages], **tools}


def _message(message: ChatMessage) -> dict[str, Any]:
    answers = {"answers": message.answers} if message.answers else {}
    return {"role": message.role, "parts": [_part(p) for p in message.parts], **answers}


def _part(part: Part) -> dict[str, str]:
    if isinstance(part, Image):
        return {"image": part.digest, "title": part.title}
    if isinstance(part, ToolCall):
        return {"call": part.name, "id": part.id, "arguments": part.arguments}
    return {"text": part.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of a call; `cached_tokens` are those of `prompt_tokens` that the provider had in its prompt cache."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Usage)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's answer, words or tool calls, or why there is none: `error` is empty for an answer.

    `notes` say what had to be done without (pictures, response_format); `usage` adds up all `attempts`, but for the
    `lost` ones: sent, perhaps billed, and without a word on their tokens.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    error: str = ""
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    notes: tuple[str, ...] = ()
    attempts: int = 1
    lost: int = 0
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars per million tokens of a model; cached prompt tokens cost `cached_usd` where it is given."""

    prompt_usd: float
    completion_usd: float
    cached_usd: float | None = None

    def of(self, usage: Usage) -> float:
        """Dollars of a usage."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        rate = self.prompt_usd if self.cached_usd is None else self.cached_usd
        fresh = usage.prompt_tokens - cached
        return (fresh * self.prompt_usd + cached * rate + usage.completion_tokens * self.completion_usd) / 1e6
