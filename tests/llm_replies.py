"""What a fake endpoint answers (`llm_kit.Endpoint`): each action is one way a real server behaves, good or bad."""

from __future__ import annotations

import base64
import binascii
import json
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Body = dict[str, Any]
Server = Literal["vllm", "ollama", "llama.cpp"]
JSON_HEADERS = {"Content-Type": "application/json"}
IMAGE_TOKENS = 300
PNG_URL = "data:image/png;base64,"


@dataclass(frozen=True)
class Completion:
    """A chat completion of one choice. Without `usage` the token counts are estimated from the request."""

    message: Mapping[str, Any]
    usage: tuple[int, int] | None = None
    cached_tokens: int = 0
    finish_reason: str = "stop"


@dataclass(frozen=True)
class Raw:
    """These bytes, whatever they are."""

    content: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: JSON_HEADERS)


@dataclass(frozen=True)
class Drop:
    """The connection closes before any byte of an answer."""


@dataclass(frozen=True)
class Truncate:
    """Content-Length announces the whole body; the connection closes after `sent_bytes` of it."""

    sent_bytes: int
    of: Completion


@dataclass(frozen=True)
class Slow:
    """Nothing for `delay_s`, then another action."""

    delay_s: float
    then: Action


@dataclass(frozen=True)
class Drip:
    """The body comes one byte every `gap_s`: a read timeout above the gap never fires."""

    gap_s: float
    of: Completion


@dataclass(frozen=True)
class Refuse:
    """An error for the requests that `when` picks; another action for the rest."""

    when: Callable[[Body], bool]
    error: Raw
    then: Action


Action = Completion | Raw | Drop | Truncate | Slow | Drip | Refuse
Reply = Callable[[int, Body], Action]
Script = Reply | Sequence[Action] | Action
"""Called with the index of the chat request and its body (from many threads at once), or actions in order, the last
repeated, or one action for ever."""


def text(
    content: str | None,
    usage: tuple[int, int] | None = None,
    cached: int = 0,
    finish_reason: str = "stop",
    **message: Any,
) -> Completion:
    """`usage` is (prompt, completion) tokens; `message` adds fields such as `reasoning_content`."""
    said = {"role": "assistant", "content": content, "refusal": None, **message}
    return Completion(said, usage, cached, finish_reason)


def json_reply(value: Any, **how: Any) -> Completion:
    """The model's text is this value as JSON."""
    return text(json.dumps(value), **how)


def refusal(reason: str) -> Completion:
    return text(None, refusal=reason)


def empty() -> Completion:
    return text("")


def length_cut(content: str) -> Completion:
    return text(content, finish_reason="length")


def tool_calls(calls: Sequence[tuple[str, Mapping[str, Any] | str]]) -> Completion:
    """Each call is (name, arguments); arguments given as a string go out as they are, valid JSON or not."""
    made = [
        {
            "id": f"call_{i}",
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for i, (name, given) in enumerate(calls)
    ]
    return text(None, finish_reason="tool_calls", tool_calls=made)


def raw(content: str | bytes, status: int = 200, content_type: str = "application/json") -> Raw:
    """A body that need not be a completion: a proxy's HTML page, an error under status 200, a missing `choices`."""
    given = content.encode() if isinstance(content, str) else content
    return Raw(given, status, {"Content-Type": content_type})


def malformed() -> Raw:
    """Status 200 and a JSON content type over half a JSON document."""
    return raw('{"id": "chatcmpl-1", "choices": [{"message": {"cont')


def http_error(
    status: int, code: str | int | None, message: str, retry_after: float | str | None = None, type_: str | None = None
) -> Raw:
    """An OpenAI error object; `retry_after` is seconds, or an HTTP date as a string."""
    kind = type_ or ("server_error" if status >= 500 else "requests" if status == 429 else "invalid_request_error")
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    wait = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Raw(json.dumps(body).encode(), status, {**JSON_HEADERS, **wait})


def drop() -> Drop:
    return Drop()


def truncate(sent_bytes: int) -> Truncate:
    return Truncate(sent_bytes, text("never received whole"))


def slow(delay_s: float, then: Action) -> Slow:
    return Slow(delay_s, then)


def drip(gap_s: float, of: Completion) -> Drip:
    return Drip(gap_s, of)


def no_image_support(then: Action, server: Server = "vllm", model: str = "fake-model") -> Refuse:
    """A text model refusing images, in the words and with the status of that server; `llama.cpp` says 500."""
    errors = {
        "vllm": http_error(400, 400, f"{model} is not a multimodal model", type_="BadRequestError"),
        "ollama": http_error(400, None, "this model is missing data required for image input"),
        "llama.cpp": http_error(
            500, 500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
        ),
    }
    return Refuse(has_image, errors[server], then)


def no_response_format(then: Action) -> Refuse:
    """OpenAI's answer for a model without structured outputs."""
    message = "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."
    return Refuse(lambda body: "response_format" in body, http_error(400, None, message), then)


def mixture(seed: int, share: float, bad: Sequence[Action], good: Script) -> Reply:
    """A bad action for `share` of the requests, else the good one: a function of the seed and the request's index."""

    def reply(index: int, body: Body) -> Action:
        rng = random.Random(f"{seed}/{index}")
        return rng.choice(bad) if rng.random() < share else action_at(good, index, body)

    return reply


def action_at(script: Script, index: int, body: Body) -> Action:
    if isinstance(script, Sequence):
        return script[min(index, len(script) - 1)]
    return script(index, body) if callable(script) else script


def image_parts(body: Body) -> list[Any]:
    """The `image_url` parts of all messages."""
    contents = [message.get("content") for message in body.get("messages", [])]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [part for part in parts if part.get("type") == "image_url"]


def has_image(body: Body) -> bool:
    return bool(image_parts(body))


def png_url() -> str:
    """One grey pixel."""
    data = b"\x89PNG\r\n\x1a\n"
    for name, body in ((b"IHDR", b"\0\0\0\1\0\0\0\1\x08\0\0\0\0"), (b"IDAT", zlib.compress(b"\0\x80")), (b"IEND", b"")):
        data += len(body).to_bytes(4) + name + body + zlib.crc32(name + body).to_bytes(4)
    return PNG_URL + base64.b64encode(data).decode()


def is_png_url(url: str) -> bool:
    """A whole PNG: every chunk's checksum holds, from IHDR to IEND, and the pixel data inflates."""
    names: list[bytes] = []
    pixels = b""
    try:
        data = base64.b64decode(url.removeprefix(PNG_URL), validate=True)
        at = 8
        while at < len(data):
            size = int.from_bytes(data[at : at + 4])
            named, body = data[at + 4 : at + 8 + size], data[at + 8 : at + 8 + size]
            if zlib.crc32(named) != int.from_bytes(data[at + 8 + size : at + 12 + size]):
                return False
            names, pixels, at = [*names, named[:4]], pixels + (body if named[:4] == b"IDAT" else b""), at + 12 + size
        ends = names[:1] + names[-1:]
        whole = data.startswith(b"\x89PNG\r\n\x1a\n") and ends == [b"IHDR", b"IEND"] and zlib.decompress(pixels)
    except (binascii.Error, zlib.error):
        return False
    return bool(whole) and url.startswith(PNG_URL)


def estimated_prompt_tokens(body: Body) -> int:
    """A quarter of the characters of the messages as JSON, image data left out, and 300 for each image."""
    images = image_parts(body)
    data_chars = sum(len(json.dumps(part["image_url"]["url"])) - 2 for part in images)
    return (len(json.dumps(body["messages"])) - data_chars) // 4 + IMAGE_TOKENS * len(images)


def _estimated_completion_tokens(action: Completion) -> int:
    calls = [call["function"]["name"] + call["function"]["arguments"] for call in action.message.get("tool_calls", [])]
    said = [action.message.get("content"), action.message.get("refusal"), *calls]
    return sum(-(-len(part or "") // 4) for part in said)


def completion_json(action: Completion, index: int, body: Body) -> Body:
    """The response body of a completion to this request."""
    prompt, completion = action.usage or (estimated_prompt_tokens(body), _estimated_completion_tokens(action))
    return {
        "id": f"chatcmpl-{index}",
        "object": "chat.completion",
        "created": 1_700_000_000 + index,
        "model": body.get("model"),
        "choices": [
            {"index": 0, "message": dict(action.message), "finish_reason": action.finish_reason, "logprobs": None}
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": action.cached_tokens},
        },
    }
