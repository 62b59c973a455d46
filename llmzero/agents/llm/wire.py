"""Requests as an OpenAI-compatible endpoint wants them, and its answers as replies. Pure."""

from __future__ import annotations

import base64
import json
from typing import Any

from llmzero.domain.llm import Image, Reply, Request, Text, Usage

EMPTY = "empty reply"
NO_COMPLETION = "no chat completion"

IMAGE_DETAIL = "high"
"""A plot's labels are small; at low detail models receive it at 512 pixels."""


def body(request: Request, *, images: bool, response_format: bool) -> dict[str, Any]:
    """`messages` and, where asked for, `response_format` of a chat completion.

    Without response_format the schema is told in words at the end; without images their titles stay.
    """
    messages = [{"role": m.role, "content": _content(m.parts, images=images)} for m in request.messages]
    if not request.schema:
        return {"messages": messages}
    if response_format:
        schema = {"name": request.name, "schema": dict(request.schema), "strict": True}
        return {"messages": messages, "response_format": {"type": "json_schema", "json_schema": schema}}
    told = f"Answer with one JSON object and nothing else. Its JSON schema:\n{json.dumps(request.schema)}"
    return {"messages": [*messages[:-1], _with_text(messages[-1], told)]}


def _content(parts: tuple[Text | Image, ...], *, images: bool) -> str | list[dict[str, Any]]:
    """Plain text where there is no picture to send: every endpoint takes that."""
    if not images or not any(isinstance(p, Image) for p in parts):
        return "\n".join(p.text if isinstance(p, Text) else f"[picture left out: {p.title}]" for p in parts)
    return [_part(p) for p in parts]


def _part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    url = f"data:image/png;base64,{base64.b64encode(part.png).decode('ascii')}"
    return {"type": "image_url", "image_url": {"url": url, "detail": IMAGE_DETAIL}}


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
    text = content if isinstance(content, str) else ""
    error = ""
    if refusal or reason == "content_filter":
        error = f"refused: {str(refusal or 'content filter')[:200]}"
    elif reason == "length":
        error = f"cut off after {usage.completion_tokens} tokens: raise llm.max_completion_tokens"
    elif choice is None:
        error = f"{NO_COMPLETION}: {str(_get(completion, 'error') or completion)[:200]}"
    elif not text.strip():
        error = EMPTY
    return Reply(text=text, error=error, model=str(_get(completion, "model") or ""), usage=usage)


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
