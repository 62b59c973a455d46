"""A scriptable OpenAI-compatible endpoint on a loopback port; what it answers is in `llm_replies`."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any, assert_never

from llm_replies import (
    Action,
    Body,
    Completion,
    Drip,
    Drop,
    Raw,
    Refuse,
    Script,
    Slow,
    Truncate,
    action_at,
    completion_json,
    http_error,
    is_png_url,
    raw,
)

CHAT = "/v1/chat/completions"
ROLES = ("developer", "system", "user", "assistant", "tool")
MESSAGE_FIELDS = {"role", "content", "name", "refusal", "tool_calls", "tool_call_id"}
FIELDS = set(
    re.findall(
        r"\w+",
        """frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages metadata model n
        parallel_tool_calls presence_penalty prompt_cache_key reasoning_effort response_format safety_identifier seed
        service_tier stop store temperature tool_choice tools top_logprobs top_p user verbosity""",
    )
)


@dataclass(frozen=True)
class Request:
    """As received: header names in lower case, the body parsed (None: not JSON, or none), a monotonic time."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    at_s: float


class Endpoint:
    """Serves while entered. `strict` answers 400 to a chat request that OpenAI would not take.

    `listing` is what GET /v1/models answers instead of naming `models`. A script that raises drops the connection, and
    leaving the block raises its error.
    """

    def __init__(
        self,
        script: Script,
        *,
        strict: bool = False,
        models: tuple[str, ...] = ("fake-model",),
        listing: Action | None = None,
    ) -> None:
        self.script, self.strict, self.models, self.listing = script, strict, models, listing
        self.requests: list[Request] = []
        self.errors: list[BaseException] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def chats(self) -> list[Request]:
        return [request for request in self.requests if (request.method, request.path) == ("POST", CHAT)]

    def __enter__(self) -> Endpoint:
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="endpoint")
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.stop()
        self._thread.join()
        if self.errors and error is None:
            raise self.errors[0]
        if self.errors and error is not None:
            error.add_note(f"the endpoint's script failed: {self.errors[0]!r}")


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that server_close joins them
    request_queue_size = 128

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.lock, self.closing = endpoint, threading.Lock(), threading.Event()
        self.open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Without HTTPServer's look-up of the host's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.socket.getsockname()[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.lock:
            self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.lock:
            self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self.endpoint.errors.append(error)

    def stop(self) -> None:
        """Idle keep-alive connections end here, and with them the threads that read them."""
        self.shutdown()
        self.closing.set()
        with self.lock:
            for connection in self.open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: _Server

    def log_message(self, *args: Any) -> None: ...

    def do_GET(self) -> None:
        index = self._record(None)
        if self._endpoint.listing is not None:
            return self._act(self._endpoint.listing, index, {})
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in self._endpoint.models]
        found = raw(json.dumps({"object": "list", "data": models}))
        return self._send(found if self.path == "/v1/models" else http_error(404, None, f"no {self.path} here"))

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            body = json.loads(sent)
        except ValueError:
            body = None
        index = self._record(body)
        if self.path != CHAT:
            return self._send(http_error(404, None, f"no {self.path} here"))
        wrong = next(problems(body), None) if self._endpoint.strict else None
        if wrong or not isinstance(body, dict):
            return self._send(http_error(400, None, wrong or "the body is no JSON object"))
        return self._act(action_at(self._endpoint.script, index, body), index, body)

    @property
    def _endpoint(self) -> Endpoint:
        return self.server.endpoint

    def _record(self, body: Any) -> int:
        """The index of this request among the chat requests."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.server.lock:
            index = len(self._endpoint.chats)
            self._endpoint.requests.append(Request(self.command, self.path, headers, body, time.monotonic()))
            self._request_id = f"req-{len(self._endpoint.requests)}"
        return index

    def _act(self, action: Action, index: int, body: Body) -> None:
        match action:
            case Completion():
                self._send(_completion(action, index, body))
            case Raw():
                self._send(action)
            case Drop():
                self.close_connection = True
            case Truncate(sent_bytes, of):
                self._send(_completion(of, index, body), sent_bytes=sent_bytes)
                self.close_connection = True
            case Slow(delay_s, then):
                self._act(Drop() if self.server.closing.wait(delay_s) else then, index, body)
            case Drip(gap_s, of):
                self._send(_completion(of, index, body), gap_s=gap_s)
            case Refuse(when, error, then):
                self._act(error if when(body) else then, index, body)
            case _:
                assert_never(action)

    def _send(self, answer: Raw, *, sent_bytes: int | None = None, gap_s: float = 0.0) -> None:
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(len(answer.content))}.items():
            self.send_header(name, value)
        self.send_header("x-request-id", self._request_id)
        self.end_headers()
        sent = answer.content[:sent_bytes]
        step = 1 if gap_s else max(1, len(sent))
        for start in range(0, len(sent), step):
            self.wfile.write(sent[start : start + step])
            self.wfile.flush()
            if self.server.closing.wait(gap_s):
                break
        self.wfile.flush()


def _completion(action: Completion, index: int, body: Body) -> Raw:
    return raw(json.dumps(completion_json(action, index, body)))


def problems(body: Any) -> Iterator[str]:
    """What makes this no multimodal chat completion request."""
    if not isinstance(body, dict):
        yield "the body is no JSON object"
        return
    yield from (f"unknown parameter: {name!r}" for name in sorted(body.keys() - FIELDS))
    if not (isinstance(body.get("model"), str) and body["model"]):
        yield "model: missing"
    messages = body.get("messages")
    if not (isinstance(messages, list) and messages):
        yield "messages: expected a non-empty array"
        return
    for i, message in enumerate(messages):
        yield from (f"messages[{i}]{problem}" for problem in _message_problems(message))
    if "response_format" in body:
        yield from (f"response_format{problem}" for problem in _format_problems(body["response_format"]))


def _message_problems(message: Any) -> Iterator[str]:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        yield f".role: expected one of {', '.join(ROLES)}"
        return
    yield from (f": unknown field {name!r}" for name in sorted(message.keys() - MESSAGE_FIELDS))
    if message["role"] == "tool" and not message.get("tool_call_id"):
        yield ".tool_call_id: missing"
    content = message.get("content")
    if isinstance(content, str) or (content is None and message.get("tool_calls")):
        return
    if not (isinstance(content, list) and content):
        yield ".content: expected a string or a non-empty array of parts"
        return
    for i, part in enumerate(content):
        yield from (f".content[{i}]{problem}" for problem in _part_problems(part, message["role"]))


def _part_problems(part: Any, role: str) -> Iterator[str]:
    match part:
        case {"type": "text", "text": str(), **rest} if not rest:
            return
        case {"type": "image_url", "image_url": {"url": str(url), **options}, **rest} if not rest:
            if role != "user":
                yield f": images are for the user's messages, this is the {role}'s"
            if options.keys() - {"detail"} or options.get("detail", "auto") not in ("low", "high", "auto"):
                yield ".image_url.detail: expected low, high or auto, and nothing else next to url"
            if not is_png_url(url):
                yield ".image_url.url: expected a base64 data URI of a PNG"
        case _:
            yield ": expected a text part or an image_url part"


def _format_problems(given: Any) -> Iterator[str]:
    match given:
        case {
            "type": "json_schema",
            "json_schema": {"name": str(name), "schema": {"type": "object"} as schema} as spec,
        }:
            if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
                yield ".json_schema.name: expected up to 64 of a-z, A-Z, 0-9, _ and -"
            if spec.get("strict"):
                yield from (f".json_schema.schema{problem}" for problem in _schema_problems(schema))
        case _:
            yield ": expected type json_schema with a name and an object schema"


def _schema_problems(schema: Any) -> Iterator[str]:
    """What strict structured outputs refuse, in this schema and those inside."""
    if isinstance(schema, list):
        for i, inner in enumerate(schema):
            yield from (f"[{i}]{problem}" for problem in _schema_problems(inner))
    if not isinstance(schema, dict):
        return
    if "properties" in schema or schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield ": additionalProperties must be false"
        if missing := sorted(set(schema.get("properties", {})) - set(schema.get("required", []))):
            yield f": required must include {', '.join(missing)}"
    for key in ("properties", "$defs"):
        for name, inner in schema.get(key, {}).items():
            yield from (f".{name}{problem}" for problem in _schema_problems(inner))
    for key in ("items", "anyOf"):
        yield from (f".{key}{problem}" for problem in _schema_problems(schema.get(key)))
