"""Every call on disk before its answer is used: a resumed search asks nothing twice, a replay asks nothing at all."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmzero.agents.llm.counting import request_tokens
from llmzero.domain.codec import from_json, to_json
from llmzero.domain.config import LLMConfig
from llmzero.domain.errors import StateError
from llmzero.domain.llm import Image, Price, Reply, Request, Usage
from llmzero.ports import LLM

MARGIN = 1.25
"""A reservation's prompt tokens over those counted: tokenizers differ, and pictures cost more at some providers."""
NOT_RECORDED = "not recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call as it is kept: the request with pictures by digest, the reply, dollars (None without a price).

    `counted_tokens` are the prompt tokens of one try by our own counting; `reply.usage` has those the endpoint told.
    """

    digest: str
    at: str
    request: Mapping[str, Any]
    reply: Reply
    usd: float | None = None
    counted_tokens: int = 0

    @property
    def purpose(self) -> str:
        return str(self.request.get("purpose", ""))


def read_calls(folder: Path) -> tuple[Call, ...]:
    """All whole records of a folder, oldest first; damaged ones are left out (they are made again)."""
    calls = [call for path in folder.glob("*.json") if (call := _read(path)) is not None]
    return tuple(sorted(calls, key=lambda c: (c.at, c.digest)))


def _read(path: Path) -> Call | None:
    with suppress(OSError, ValueError):
        return from_json(Call, json.loads(path.read_text("utf-8")))
    return None


def price_of(config: LLMConfig, model: str = "") -> Price | None:
    """The price of the configured model, or of the name the endpoint answered with."""
    return config.prices.get(config.model) or config.prices.get(model)


def try_usd(config: LLMConfig, counted_tokens: int) -> float:
    """The most one try of so many prompt tokens may cost, with the longest reply; 0 without a price."""
    prompt = math.ceil(MARGIN * counted_tokens)
    price, most = price_of(config), Usage(prompt_tokens=prompt, completion_tokens=config.max_completion_tokens)
    return price.of(most) if price else 0.0


def reserve_usd(config: LLMConfig, counted_tokens: int) -> float:
    """The most a call may cost, every try of it billed in full."""
    return (1 + config.retries) * try_usd(config, counted_tokens)


def charged_usd(config: LLMConfig, call: Call) -> float:
    """What a call counts for under the ceiling: what was told, and each lost try at the most it may have cost."""
    return (call.usd or 0.0) + call.reply.lost * try_usd(config, call.counted_tokens)


def _undercount(call: Call) -> float:
    """How many times the counted tokens of a call's tries the endpoint told; 0 where either is unknown."""
    counted = call.counted_tokens * max(1, call.reply.attempts - call.reply.lost)
    return call.reply.usage.prompt_tokens / counted if counted else 0.0


class RecordedLLM:
    """`ports.LLM` that keeps each call in `folder` and answers a call it knows from there; `inner` None = offline."""

    def __init__(self, inner: LLM | None, folder: Path, config: LLMConfig) -> None:
        self._inner = inner
        self._folder = folder
        self._config = config
        self._lock = threading.Lock()
        calls = read_calls(folder) if inner is not None else ()
        self._spent_usd = sum(charged_usd(config, call) for call in calls)
        self._reserved_usd = 0.0
        self._undercount = max([1.0, *(_undercount(call) for call in calls)])

    def close(self) -> None:
        """Close the model's connections, where it has some."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()

    def complete(self, request: Request) -> Reply:
        """The recorded reply of this very request, else a new one, recorded before it is returned."""
        known = _read(self._folder / f"{request.digest}.json")
        if known is not None:
            return known.reply
        if self._inner is None:
            return Reply(error=NOT_RECORDED)
        counted = request_tokens(request)
        reserved = self._reserve(counted)
        if reserved is None:
            refused = Reply(error=f"the ceiling of ${self._config.usd:g} is reached", attempts=0)
            return self._keep(self._call(request, refused, counted), request)
        usd = 0.0
        try:
            call = self._call(request, self._inner.complete(request), counted)
            usd = charged_usd(self._config, call)
        finally:
            self._settle(reserved, usd)
        self._undercount = max(self._undercount, _undercount(call))
        return self._keep(call, request)

    def _reserve(self, counted: int) -> float | None:
        """Dollars set aside for a call; None where they could take the run over its ceiling."""
        with self._lock:
            usd = reserve_usd(self._config, math.ceil(counted * self._undercount))
            if self._config.usd and self._spent_usd + self._reserved_usd + usd > self._config.usd:
                return None
            self._reserved_usd += usd
            return usd

    def _settle(self, reserved: float, usd: float) -> None:
        """What was set aside becomes what was spent, in one step: no other call may see neither."""
        with self._lock:
            self._reserved_usd -= reserved
            self._spent_usd += usd

    def _call(self, request: Request, reply: Reply, counted: int) -> Call:
        price = price_of(self._config, reply.model)
        return Call(
            digest=request.digest,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            request=request.as_json(),
            reply=reply,
            usd=None if price is None else price.of(reply.usage),
            counted_tokens=counted,
        )

    def _keep(self, call: Call, request: Request) -> Reply:
        for image in _images(request):
            _write(self._folder / "images" / f"{image.digest}.png", image.png)
        _write(self._folder / f"{call.digest}.json", json.dumps(to_json(call), indent=1).encode())
        return call.reply


def _images(request: Request) -> Iterable[Image]:
    return (part for message in request.messages for part in message.parts if isinstance(part, Image))


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all; a picture that is there already is the same one."""
    if path.suffix == ".png" and path.exists():
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StateError(f"{path}: the call cannot be recorded: {error.strerror}; free space, then resume") from error
