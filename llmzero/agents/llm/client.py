"""One endpoint: bounded retries, doing without what it cannot take. Trouble is a reply's `error`, never raised."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from llmzero.agents.llm.wire import EMPTY, NO_COMPLETION, body, reply_of
from llmzero.domain.config import LLMConfig
from llmzero.domain.errors import UsageError
from llmzero.domain.llm import Image, Reply, Request, Usage

BACKOFF_S = 1.0
"""Wait before the first further try; doubled each time."""
MAX_WAIT_S = 60.0
"""Longest wait before a try, whatever a Retry-After asks for."""
TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses that a further try may change."""
REFUSALS = frozenset({400, 404, 415, 422, 500, 501})
"""HTTP statuses endpoints answer pictures or a response_format with when they take none (llama.cpp: 500)."""
MAX_REPLY_BYTES = 10_000_000
CHECK_S = 10.0
"""Longest wait for a first sign of life, before a search begins."""
SECRET_HOLDER = "OPENAI_API_KEY"


@dataclass(slots=True)
class _Abilities:
    """What the endpoint was found to take; learned once, for the life of the process."""

    images: bool
    response_format: bool = True
    tools: bool = True
    new_cap_name: bool = True

    def notes(self, request: Request) -> tuple[str, ...]:
        gone = (
            ("no pictures: the endpoint takes none", _has_images(request) and not self.images),
            ("no response_format: the endpoint refuses it, JSON was asked for in words", not self.response_format),
            ("no tools: the endpoint takes none, they were told in words", bool(request.tools) and not self.tools),
        )
        return tuple(text for text, holds in gone if holds)


@dataclass(frozen=True, slots=True)
class _Trouble:
    """What went wrong in one try; `unbilled` where it was refused or never sent."""

    text: str
    retry: bool = False
    wait_s: float | None = None
    status: int = 0
    unbilled: bool = False


class OpenAIClient:
    """`ports.LLM` at any OpenAI-compatible endpoint. Thread-safe as far as the openai client is."""

    def __init__(self, config: LLMConfig, *, sleep: Callable[[float], None] = time.sleep) -> None:
        import openai

        self._config = config
        self._sleep = sleep
        self._able = _Abilities(images=config.images == "auto")
        self._key = _key()
        self._client = openai.OpenAI(
            api_key=self._key or "none",
            base_url=config.base_url or None,
            max_retries=0,
            timeout=config.timeout_s,
        )

    def close(self) -> None:
        self._client.close()

    def check(self) -> None:
        """UsageError where the endpoint cannot be reached or refuses the key; what else it says is no matter yet."""
        import openai

        limit_s = min(CHECK_S, self._config.timeout_s)
        try:
            with self._client.models.with_streaming_response.list(timeout=limit_s):
                return
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            does = f"refuses the key in {SECRET_HOLDER}" if self._key else f"wants a key: set {SECRET_HOLDER}"
            raise UsageError(f"llm: {self._where()} {does} (HTTP {error.status_code})") from None
        except openai.APIStatusError:
            return  # an endpoint need not list its models
        except _expected() as error:
            late = isinstance(error, openai.APITimeoutError)
            text = f"no answer within {limit_s:g} s" if late else self._clean(_first_line(error))
            raise UsageError(f"llm: {self._where()} cannot be reached: {text}") from None

    def _where(self) -> str:
        return self._config.base_url or "api.openai.com"

    def complete(self, request: Request) -> Reply:
        """One answer within `retries` further tries; the usage of every try is added up."""
        began, usage, tries, lost = time.monotonic(), Usage(), 0, 0
        while True:
            tries += 1
            reply, trouble = self._once(request)
            usage = usage + reply.usage
            lost += reply.usage == Usage() and not (trouble and trouble.unbilled)
            if trouble is None or tries > self._config.retries or not trouble.retry:
                break
            self._sleep(_wait_s(trouble, tries))
        notes = self._able.notes(request)
        took_s = time.monotonic() - began
        return replace(reply, usage=usage, notes=notes, attempts=tries, lost=lost, latency_s=round(took_s, 3))

    def _once(self, request: Request) -> tuple[Reply, _Trouble | None]:
        """One try, repeated at once with less for as long as the endpoint refuses something it need not take."""
        while True:
            try:
                reply = reply_of(self._send(request))
            except _expected() as error:
                trouble = _trouble(error)
                if trouble.status in REFUSALS and self._do_without(trouble.text, request):
                    continue
                return Reply(error=self._clean(trouble.text)), trouble
            reply = replace(reply, error=self._clean(reply.error))
            again = reply.error.startswith((EMPTY, NO_COMPLETION))
            return reply, _Trouble(reply.error, retry=again) if reply.error else None

    def _send(self, request: Request) -> object:
        """The JSON value of one try. The client's timeout is one of silence, so the whole is timed here."""
        able, deadline = self._able, time.monotonic() + self._config.timeout_s
        cap = "max_completion_tokens" if able.new_cap_name else "max_tokens"
        given: dict[str, Any] = {"model": self._config.model, cap: self._config.max_completion_tokens}
        if self._config.temperature is not None:
            given["temperature"] = self._config.temperature
        sent = body(request, images=able.images, response_format=able.response_format, tools=able.tools)
        received = bytearray()
        with self._client.chat.completions.with_streaming_response.create(**given, **sent) as response:
            for chunk in response.iter_bytes():
                received += chunk
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no whole answer within {self._config.timeout_s:g} s")
                if len(received) > MAX_REPLY_BYTES:
                    raise ValueError(f"a reply of more than {MAX_REPLY_BYTES} bytes")
        return json.loads(received)

    def _do_without(self, complaint: str, request: Request) -> bool:
        """Drop what the complaint is about, once and for good; whether there was something to drop."""
        able, words = self._able, complaint.lower()
        if able.new_cap_name and "max_completion_tokens" in words:
            able.new_cap_name = False
        elif able.images and _has_images(request) and any(w in words for w in IMAGE_WORDS):
            able.images = False
        elif able.tools and request.tools and any(w in words for w in TOOL_WORDS):
            able.tools = False
        elif able.response_format and request.schema and any(w in words for w in FORMAT_WORDS):
            able.response_format = False
        else:
            return False
        return True

    def _clean(self, text: str) -> str:
        """One line without the key: endpoints like to repeat it in their errors."""
        line = " ".join(text.split())
        return line.replace(self._key, "[key]") if len(self._key) >= 4 else line


def _key() -> str:
    """The key, if any; one that no HTTP header can hold would come back in the error of every call."""
    key = os.environ.get(SECRET_HOLDER, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"{SECRET_HOLDER}: holds a character that no HTTP header can hold; set it again")
    return key


def _has_images(request: Request) -> bool:
    return any(isinstance(part, Image) for message in request.messages for part in message.parts)


IMAGE_WORDS = ("image", "vision", "multimodal", "mmproj")
TOOL_WORDS = ("tool", "function", "jinja")
FORMAT_WORDS = ("response_format", "json_schema", "structured output", "grammar", "guided", "strict")


def _expected() -> tuple[type[Exception], ...]:
    """What a try may raise: the client's errors, and what it lets through of a reply or a request nobody can read."""
    import openai

    return (
        openai.OpenAIError,
        OSError,
        ValueError,
        TypeError,
        RecursionError,
        *_network_errors("HTTPError", "StreamError"),
    )


def _network_errors(*names: str) -> tuple[type[Exception], ...]:
    """Errors of the HTTP library below the client, whichever it is: it lets through what breaks off in a body."""
    import openai

    modules = (kind.__module__.partition(".")[0] for kind in openai.DefaultHttpxClient.__mro__)
    library = sys.modules[next(name for name in modules if name != "openai")]
    return tuple(getattr(library, name) for name in names if hasattr(library, name))


def _trouble(error: Exception) -> _Trouble:
    import openai

    if isinstance(error, openai.APIStatusError):
        status = error.status_code
        text = f"HTTP {status}: {_first_line(error)}"
        wait_s = _retry_after(error.response.headers)
        return _Trouble(text, retry=status in TRANSIENT, wait_s=wait_s, status=status, unbilled=True)
    unsent = isinstance(error.__cause__, _network_errors("ConnectError", "ConnectTimeout"))
    if isinstance(error, openai.APITimeoutError | TimeoutError):
        return _Trouble("no answer within llm.timeout_s", retry=True, unbilled=unsent)
    return _Trouble(f"{type(error).__name__}: {_first_line(error)}", retry=True, unbilled=unsent)


def _first_line(error: Exception) -> str:
    cause = error.__cause__ if str(error) == "Connection error." and error.__cause__ else error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0][:300]


def _retry_after(headers: Any) -> float | None:
    """Seconds of a Retry-After header; dates and nonsense count as absent."""
    try:
        wait_s = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return wait_s if 0 <= wait_s < float("inf") else None


def _wait_s(trouble: _Trouble, tries: int) -> float:
    doubled = BACKOFF_S * 2.0 ** (tries - 1)
    return min(MAX_WAIT_S, doubled if trouble.wait_s is None else max(trouble.wait_s, 0.0))
