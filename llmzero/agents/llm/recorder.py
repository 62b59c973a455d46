"""Every call on disk before its answer is used: a resumed search asks nothing twice, a replay asks nothing at all."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmzero.domain.codec import from_json, to_json
from llmzero.domain.config import LLMConfig
from llmzero.domain.errors import StateError
from llmzero.domain.llm import Image, Price, Reply, Request, Text, Usage
from llmzero.ports import LLM

IMAGE_TOKENS = 1500
"""Assumed of a picture when a call is reserved; providers count between 300 and 1,500 at this size."""
CHARS_PER_TOKEN = 3
"""Assumed when a call is reserved: few enough to be safe."""
NOT_RECORDED = "not recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call as it is kept: the request with pictures by digest, the reply, dollars (None without a price)."""

    digest: str
    at: str
    request: Mapping[str, Any]
    reply: Reply
    usd: float | None = None

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


def reserve_usd(config: LLMConfig, request: Request) -> float:
    """The most a call may cost, all its tries together."""
    price = price_of(config)
    if price is None:
        return 0.0
    parts = [part for message in request.messages for part in message.parts]
    chars = sum(len(p.text) for p in parts if isinstance(p, Text)) + len(json.dumps(dict(request.schema)))
    prompt = chars // CHARS_PER_TOKEN + IMAGE_TOKENS * sum(isinstance(p, Image) for p in parts)
    return price.of(Usage(prompt_tokens=prompt, completion_tokens=config.max_completion_tokens))


class RecordedLLM:
    """`ports.LLM` that keeps each call in `folder` and answers a call it knows from there; `inner` None = offline."""

    def __init__(self, inner: LLM | None, folder: Path, config: LLMConfig) -> None:
        self._inner = inner
        self._folder = folder
        self._config = config
        self._lock = threading.Lock()
        self._spent_usd = sum(call.usd or 0.0 for call in read_calls(folder))
        self._reserved_usd = 0.0

    def complete(self, request: Request) -> Reply:
        """The recorded reply of this very request, else a new one, recorded before it is returned."""
        known = _read(self._folder / f"{request.digest}.json")
        if known is not None:
            return known.reply
        if self._inner is None:
            return Reply(error=NOT_RECORDED)
        reserved = reserve_usd(self._config, request)
        if not self._reserve(reserved):
            return self._keep(request, Reply(error=f"the ceiling of ${self._config.usd:g} is reached", attempts=0))
        try:
            reply = self._inner.complete(request)
        finally:
            with self._lock:
                self._reserved_usd -= reserved
        return self._keep(request, reply)

    def _reserve(self, usd: float) -> bool:
        with self._lock:
            if self._config.usd and self._spent_usd + self._reserved_usd + usd > self._config.usd:
                return False
            self._reserved_usd += usd
            return True

    def _keep(self, request: Request, reply: Reply) -> Reply:
        price = price_of(self._config, reply.model)
        usd = None if price is None else price.of(reply.usage)
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        call = Call(digest=request.digest, at=at, request=request.as_json(), reply=reply, usd=usd)
        for image in _images(request):
            _write(self._folder / "images" / f"{image.digest}.png", image.png)
        _write(self._folder / f"{call.digest}.json", json.dumps(to_json(call), indent=1).encode())
        with self._lock:
            self._spent_usd += usd or 0.0
        return reply


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
