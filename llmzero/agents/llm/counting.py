"""About how many tokens a request is, without anybody's tokenizer: for reservations, forecasts and benchmarks."""

from __future__ import annotations

import json
import math
import re
from typing import assert_never

from llmzero.domain.llm import Image, Part, Request, Text, ToolCall

PIECE = re.compile(r"[A-Za-z]{1,8}|[0-9]|\n+|[!-/:-@\[-`{-~]{1,2}|[^\x00-\x7f]")
"""What counts as one token: up to eight letters, a digit, a pair of signs, a character of any other script. Tables of
numbers are mostly the middle two; benchmarks/tokens.md compares the rule with a large model's own tokenizer."""
PIXELS_PER_TOKEN = 750
"""Of a picture: width times height through this, one provider's published rule. Others count patches or tiles."""


def text_tokens(text: str) -> int:
    """Tokens of a text, as PIECE counts them."""
    return len(PIECE.findall(text))


def image_tokens(png: bytes) -> int:
    """Tokens of a PNG by the pixels its header tells."""
    return pixel_tokens(*(int.from_bytes(png[at : at + 4], "big") for at in (16, 20)))


def pixel_tokens(width: int, height: int) -> int:
    return math.ceil(width * height / PIXELS_PER_TOKEN)


def request_text(request: Request) -> str:
    """The words of a request in the order a provider's prompt has them: schema and tools, then the messages."""
    given = json.dumps([dict(request.schema), *(dict(tool) for tool in request.tools)])
    words = (_words(part) for message in request.messages for part in message.parts)
    return "\n".join([given, *filter(None, words)])


def _words(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case Image():
            return ""
        case ToolCall():
            return f"{part.name} {part.arguments}"
        case _:
            assert_never(part)


def request_image_tokens(request: Request) -> int:
    parts = (part for message in request.messages for part in message.parts)
    return sum(image_tokens(part.png) for part in parts if isinstance(part, Image))


def request_tokens(request: Request) -> int:
    """Prompt tokens of one try of a request, pictures and schema included."""
    return text_tokens(request_text(request)) + request_image_tokens(request)
