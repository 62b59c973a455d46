"""Requests as an OpenAI-compatible endpoint wants them, and its answers as replies. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from llmzero.domain.llm import ChatMessage, Image, Part, Reply, Request, Text, ToolCall, Usage

EMPTY = "empty reply"
NO_COMPLETION = "no chat completion"

IMAGE_DETAIL = "high"
"""A plot's labels are small; at low detail models receive it at 512 pixels."""


def body(request: Request, *, images: bool, response_format: bool, tools: bool = True) -> dict[str, Any]:
    """`messages` and, where asked for, `response_format` or `tools` of a chat completion.

    Without response_format the schema is told in words at the end, without tools they are at the end of the first
    message; without images their titles stay.
    """
    messages = [_message(m, images=images, tools=tools) for m in request.messages]
    if request.tools and not tools:
        return {"messages": [_with_text(messages[0], told_tools(request.tools)), *messages[1:]]}
    if request.tools:
        functions = [{"type": "function", "function": {**tool, "strict": True}} for tool in request.tools]
        return {"messages": messages, "tools": functions}
    if not request.schema:
        return {"messages": messages}
    if response_format:
        schema = {"name": request.name, "schema": dict(request.schema), "strict": True}
        return {"messages": messages, "response_format": {"type": "json_schema", "json_schema": schema}}
    told = f"Answer with one JSON object and nothing else. Its JSON schema:\n{json.dumps(request.schema)}"
    return {"messages": [*messages[:-1], _with_text(messages[-1], told)]}


def told_tools(tools: Sequence[Mapping[str, Any]]) -> str:
    """Tools in words, for endpoints that take none."""
    listed = "\n".join(f"- {t['name']}: {t['description']} Arguments: {json.dumps(t['parameters'])}" for t in tools)
    return f"{CALL_IN_WORDS}\n{listed}"


CALL_IN_WORDS = (
    'Call a tool by answering with one JSON object and nothing else: {"tool": NAME, "arguments": {...}}. The tools:'
)


def _message(message: ChatMessage, *, images: bool, tools: bool) -> dict[str, Any]:
    """Without `tools`, calls are the words the model was asked for and their results are the user's."""
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    said = tuple(part for part in message.parts if not isinstance(part, ToolCall))
    if message.role == "tool":
        answers = {"role": "tool", "tool_call_id": message.answers} if tools else {"role": "user"}
        return {**answers, "content": _content(said, images=False)}
    if not calls:
        return {"role": message.role, "content": _content(said, images=images)}
    if not tools:
        words = (*said, *(Text(f'{{"tool": {json.dumps(c.name)}, "arguments": {c.arguments}}}') for c in calls))
        return {"role": message.role, "content": _content(words, images=images)}
    content = _content(said, images=images) if said else None
    return {"role": message.role, "content": content, "tool_calls": [_tool_call(call) for call in calls]}


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _content(parts: tuple[Part, ...], *, images: bool) -> str | list[dict[str, Any]]:
    """Plain text where there is no picture to send: every endpoint takes that."""
    if not images or not any(isinstance(p, Image) for p in parts):
        return "\n".join(_words(part) for part in parts)
    return [_part(p) for p in parts]


def _words(part: Part) -> str:
    return f"[picture left out: {part.title}]" if isinstance(part, Image) else getattr(part, "text", "")


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Image):
        url = f"data:image/png;base64,{base64.b64encode(part.png).decode('ascii')}"
        return {"type": "image_url", "image_url": {"url": url, "detail": IMAGE_DETAIL}}
    return {"type": "text", "text": _words(part)}


def _with_text(message: dict[str, Any], text: str) -> dict[str, Any]:
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": f"{content}\n\n{text}"}
    return {**message, "content": [*content, {"type": "text", "text": text}]}


def reply_of(completion: object) -> Reply:
    """The first choice of a chat completion's JSON; `error` says why it is no answer. Takes any JSON value."""
    usage = usage_of(_get(completion, "usage"))
    choices = _get(completion, "choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = _get(choice, "message")
    reason, refusal, content = _get(choice, "finish_reason"), _get(message, "refusal"), _get(message, "content")
    text, calls = content if isinstance(content, str) else "", _calls(_get(message, "tool_calls"))
    error = ""
    if refusal or reason == "content_filter":
        error = f"refused: {str(refusal or 'content filter')[:200]}"
    elif reason == "length":
        error = f"cut off after {usage.completion_tokens} tokens: raise llm.max_completion_tokens"
    elif choice is None:
        error = f"{NO_COMPLETION}: {str(_get(completion, 'error') or completion)[:200]}"
    elif not text.strip() and not calls:
        error = EMPTY
    return Reply(text=text, calls=calls, error=error, model=str(_get(completion, "model") or ""), usage=usage)


def _calls(given: object) -> tuple[ToolCall, ...]:
    """A message's tool calls as they came; what has no function in it is none."""
    functions = [(_get(call, "id"), _get(call, "function")) for call in given] if isinstance(given, list) else []
    return tuple(
        ToolCall(str(call_id or ""), str(_get(function, "name") or ""), _text_of(_get(function, "arguments")))
        for call_id, function in functions
        if isinstance(function, dict)
    )


def _text_of(arguments: object) -> str:
    """Some servers send the object itself where the API wants its text."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def usage_of(usage: object) -> Usage:
    """Token counts, 0 where an endpoint does not tell."""
    return Usage(
        prompt_tokens=_count(usage, "prompt_tokens"),
        cached_tokens=_count(_get(usage, "prompt_tokens_details"), "cached_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
    )


def _get(holder: object, name: str) -> Any:
    return holder.get(name) if isinstance(holder, dict) else None


def _count(holder: object, name: str) -> int:
    value = _get(holder, name)
    return value if isinstance(value, int) and value >= 0 else 0
