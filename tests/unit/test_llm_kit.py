"""What the openai client makes of each answer the fake endpoint can give: the facts `agents/llm` has to handle."""

from __future__ import annotations

import contextlib
import json
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llm_replies as replies
import openai
import pytest
from llm_kit import FIELDS, Endpoint
from llm_replies import Action, Body, Script

MESSAGES = [{"role": "user", "content": "hello"}]
OK = replies.text("fine")
SCHEMA: Body = {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}
FORMAT: Body = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}


def shown(url: str = "", detail: str = "low") -> list[Body]:
    image = {"type": "image_url", "image_url": {"url": url or replies.png_url(), "detail": detail}}
    return [{"role": "user", "content": [{"type": "text", "text": "look"}, image]}]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's HTTP library reads the proxy variables."""
    monkeypatch.setenv("NO_PROXY", "*")


def client(endpoint: Endpoint, **options: Any) -> Any:
    return openai.OpenAI(**{"base_url": endpoint.base_url, "api_key": "test", "max_retries": 0, **options})


def ask(script: Script, *, strict: bool = False, timeout_s: float = 20, **asked: Any) -> Any:
    with Endpoint(script, strict=strict) as endpoint, client(endpoint, timeout=timeout_s) as api:
        return api.chat.completions.create(**{"model": "fake-model", "messages": MESSAGES, **asked})


def say(api: openai.OpenAI) -> Any:
    return api.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])


def message(script: Script, **asked: Any) -> Any:
    return ask(script, **asked).choices[0].message


def failure(script: Script, **asked: Any) -> Any:
    with pytest.raises(Exception) as caught:
        ask(script, **asked)
    return caught.value


def test_text_and_its_usage() -> None:
    got = ask(replies.text("hi", usage=(1200, 34), cached=1024))
    assert (got.choices[0].message.content, got.choices[0].finish_reason) == ("hi", "stop")
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.total_tokens) == (1200, 34, 1234)
    assert got.usage.prompt_tokens_details.cached_tokens == 1024
    assert (got.model, got._request_id) == ("fake-model", "req-1")


def test_usage_is_estimated_without_the_image_data() -> None:
    bare = json.dumps(shown()).replace(replies.png_url(), "")
    assert ask(OK, messages=shown()).usage.prompt_tokens == len(bare) // 4 + 300
    assert ask(OK).usage.prompt_tokens == len(json.dumps(MESSAGES)) // 4
    assert ask(replies.empty()).usage.completion_tokens == 0


def test_answers_of_a_model() -> None:
    said = message(replies.refusal("I will not"))
    assert (said.content, said.refusal) == (None, "I will not")
    assert message(replies.empty()).content == ""
    assert json.loads(message(replies.json_reply({"a": 1})).content) == {"a": 1}
    assert message(replies.text("4", reasoning_content="2+2")).reasoning_content == "2+2", "a field of some servers"
    cut = ask(replies.length_cut('{"a": ')).choices[0]
    assert (cut.finish_reason, cut.message.content) == ("length", '{"a": '), "no exception"


def test_tool_calls_come_with_their_arguments_unparsed() -> None:
    choice = ask(replies.tool_calls([("look", {"node": "n1"}), ("look", "{bad")])).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    calls = [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls]
    assert calls == [("call_0", "look", '{"node": "n1"}'), ("call_1", "look", "{bad")]


@pytest.mark.parametrize("content", ["", '{"cut', b'{"a": "\xff"}', "[" * 99_999])
def test_a_body_that_is_no_json_leaks_the_parsers_error(content: str | bytes) -> None:
    got = failure(replies.raw(content))
    assert isinstance(got, ValueError | RecursionError)
    assert not isinstance(got, openai.OpenAIError)
    assert isinstance(failure(replies.malformed()), json.JSONDecodeError)


def test_create_may_return_no_completion_at_all() -> None:
    assert [ask(replies.raw(content)) for content in ("null", "[1]", '"x"')] == [None, [1], "x"]
    assert ask(replies.raw("<html>", content_type="text/html")) == "<html>"


@pytest.mark.parametrize("content", ["{}", '{"choices": "none"}', '{"error": {"message": "upstream died"}}'])
def test_the_shape_of_a_completion_is_not_checked(content: str) -> None:
    got = ask(replies.raw(content))
    assert isinstance(got, openai.types.chat.ChatCompletion)
    assert not isinstance(got.choices, list)
    assert got.usage is None


def test_a_raw_response_parses_nothing() -> None:
    with Endpoint(replies.malformed()) as endpoint, client(endpoint) as api:
        got = api.chat.completions.with_raw_response.create(model="m", messages=MESSAGES)
    assert got.content == replies.malformed().content
    assert (got.status_code, got.headers["X-Request-Id"], got.retries_taken) == (200, "req-1", 0)


NAMED = [error for error in openai.APIStatusError.__subclasses__() if hasattr(error, "status_code")]
OTHERS = [(402, openai.APIStatusError), (413, openai.APIStatusError), (503, openai.InternalServerError)]


@pytest.mark.parametrize(("status", "error"), [*((error.status_code, error) for error in NAMED), *OTHERS])
def test_an_error_status_and_its_class(status: int, error: Any) -> None:
    got = failure(replies.http_error(status, "some_code", "no"))
    assert type(got) is error
    assert (got.status_code, got.code, got.body["message"]) == (status, "some_code", "no")
    assert (str(got), got.request_id) == (f"Error code: {status} - no", "req-1")


@pytest.mark.parametrize("wait", [7, 0.25, "Wed, 21 Oct 2065 07:28:00 GMT"])
def test_retry_after_is_a_header_of_the_response(wait: float | str) -> None:
    got = failure(replies.http_error(429, "rate_limit_exceeded", "slow down", retry_after=wait))
    assert got.response.headers["retry-after"] == str(wait)
    assert failure(replies.http_error(429, None, "slow down")).response.headers.get("Retry-After") is None


def test_an_error_body_of_another_shape() -> None:
    page = failure(replies.raw("<html>bad gateway</html>", status=502, content_type="text/html"))
    assert (str(page), page.body, page.code) == ("Error code: 502", "<html>bad gateway</html>", None)
    flat = failure(replies.raw('{"message": "no image", "code": 400}', status=400))
    assert (str(flat), flat.code) == ("Error code: 400 - no image", "400")
    bare = failure(replies.raw('{"error": "model not found"}', status=404))
    assert (str(bare), bare.body) == ("Error code: 404", "model not found")


@pytest.mark.parametrize("action", [replies.drop(), replies.truncate(0), replies.truncate(20)])
def test_a_broken_connection(action: Action) -> None:
    got = failure(action)
    assert type(got) is openai.APIConnectionError
    assert (str(got), got.body, hasattr(got, "response")) == ("Connection error.", None, False)
    assert type(got.__cause__).__name__ == "RemoteProtocolError", "of httpx2"


def test_a_slow_answer_is_a_timeout_and_a_connection_error() -> None:
    assert message(replies.slow(0.05, OK)).content == "fine"
    got = failure(replies.slow(60, OK), timeout_s=0.2)
    assert type(got) is openai.APITimeoutError
    assert isinstance(got, openai.APIConnectionError)


def test_the_timeout_is_between_bytes_not_for_the_call() -> None:
    began_s = time.monotonic()
    assert message(replies.drip(0.002, OK), timeout_s=0.2).content == "fine"
    assert time.monotonic() - began_s > 0.4


def test_errors_with_a_response_do_not_survive_a_pickle() -> None:
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(failure(replies.http_error(500, None, "no"))))


def limited(wait_s: float) -> Action:
    return replies.http_error(429, "rate_limit_exceeded", "slow down", retry_after=wait_s)


@pytest.mark.parametrize(("action", "requests"), [(limited(0.01), 3), (limited(121), 1), (replies.malformed(), 1)])
def test_the_clients_own_retries_are_two_unless_turned_off(action: Action, requests: int) -> None:
    with Endpoint(action) as endpoint, client(endpoint, max_retries=openai.DEFAULT_MAX_RETRIES) as api:
        for tried in (api, api.with_options(max_retries=0, timeout=5)):
            with pytest.raises((openai.APIStatusError, ValueError)):
                say(tried)
    counts = [request.headers["x-stainless-retry-count"] for request in endpoint.requests]
    assert counts == [*map(str, range(requests)), "0"]


def test_a_server_refuses_what_its_model_lacks_and_nothing_else() -> None:
    statuses: dict[replies.Server, int] = {"vllm": 400, "ollama": 400, "llama.cpp": 500}
    for server, status in statuses.items():
        script = replies.no_image_support(OK, server)
        assert failure(script, messages=shown()).status_code == status
        assert message(script).content == "fine"
    script = replies.no_response_format(OK)
    assert "response_format" in str(failure(script, response_format=FORMAT))
    assert message(script).content == "fine"


def test_the_script_by_index_and_in_order() -> None:
    def echo(index: int, body: Body) -> Action:
        return replies.text(f"{index} {body['messages'][0]['content']}")

    for script, said in ((echo, ["0 hello", "1 hello", "2 hello"]), ([replies.text("a"), OK], ["a", "fine", "fine"])):
        with Endpoint(script) as endpoint, client(endpoint) as api:
            got = [say(api) for _ in said]
            assert [one.choices[0].message.content for one in got] == said


def test_a_mixture_is_bad_for_its_share_and_the_same_again() -> None:
    bad: list[Action] = [replies.drop(), replies.empty()]
    first, again, other = ([replies.mixture(s, 0.3, bad, OK)(i, {}) for i in range(1000)] for s in (1, 1, 2))
    assert first == again != other
    assert 250 < sum(action in bad for action in first) < 350
    assert all(action in first for action in bad)


def test_requests_are_recorded() -> None:
    with Endpoint(OK, models=("a", "b")) as endpoint, client(endpoint) as api:
        assert [model.id for model in api.models.list()] == ["a", "b"]
        api.chat.completions.create(model="m", messages=MESSAGES, extra_headers={"X-Title": "llmzero"})
        with pytest.raises(openai.NotFoundError):
            api.embeddings.create(model="m", input="x", encoding_format="float")
    assert [request.path for request in endpoint.requests] == ["/v1/models", "/v1/chat/completions", "/v1/embeddings"]
    (chat,) = endpoint.chats
    assert (chat.headers["authorization"], chat.headers["x-title"]) == ("Bearer test", "llmzero")
    assert chat.body == {"model": "m", "messages": MESSAGES}
    assert endpoint.requests[0].at_s <= chat.at_s <= time.monotonic()


def test_many_at_once_on_kept_connections() -> None:
    with Endpoint(OK) as endpoint, client(endpoint) as api, ThreadPoolExecutor(16) as pool:
        list(pool.map(say, [api] * 64))
    assert len(endpoint.chats) == 64


def test_leaving_ends_idle_connections_and_slow_answers_at_once() -> None:
    before = set(threading.enumerate())
    with ThreadPoolExecutor(1) as pool, Endpoint([OK, replies.slow(60, OK)]) as endpoint:
        api = client(endpoint)
        say(api)
        waiting = pool.submit(say, api)
        while len(endpoint.chats) < 2:
            time.sleep(0.001)
        began_s = time.monotonic()
    assert isinstance(waiting.exception(), openai.APIConnectionError)
    assert time.monotonic() - began_s < 5
    assert set(threading.enumerate()) <= before
    with api, pytest.raises(openai.APIConnectionError) as caught:
        say(api)
    assert type(caught.value.__cause__).__name__ == "ConnectError", "nobody listens any more"


def test_a_script_that_raises_is_heard() -> None:
    def broken(index: int, body: Body) -> Action:
        raise LookupError("no such reply")

    with pytest.raises(openai.APIConnectionError) as caught:
        ask(broken)
    assert "no such reply" in caught.value.__notes__[0]
    heard, hidden = pytest.raises(LookupError), contextlib.suppress(openai.APIConnectionError)
    with heard, Endpoint(broken) as endpoint, client(endpoint) as api, hidden:
        say(api)


def test_strict_takes_what_openai_takes() -> None:
    called = message(replies.tool_calls([("look", {})])).to_dict()
    messages = [*shown(), called, {"role": "tool", "tool_call_id": "call_0", "content": "seen"}]
    assert message(OK, strict=True, messages=messages, response_format=FORMAT, temperature=0).content == "fine"
    known = openai.types.chat.completion_create_params.CompletionCreateParamsNonStreaming.__annotations__
    assert known.keys() >= FIELDS


def schema(**changed: Any) -> Body:
    return {"response_format": {**FORMAT, "json_schema": {**FORMAT["json_schema"], "schema": {**SCHEMA, **changed}}}}


REFUSED = [
    ({"messages": []}, "messages: expected"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": "x", "images": []}]}, "'images'"),
    ({"messages": [{**shown()[0], "role": "system"}]}, "images are for the user"),
    ({"messages": shown("https://example.org/a.png")}, "image_url.url"),
    ({"messages": shown(replies.png_url()[:-24])}, "image_url.url"),
    ({"messages": shown(detail="huge")}, "image_url.detail"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    (schema(additionalProperties=True), "additionalProperties must be false"),
    (schema(required=[]), "required must include a"),
    (schema(properties={"a": {"type": "array", "items": {"type": "object"}}}), "schema.a.items: additional"),
    ({"extra_body": {"top_k": 5}}, "'top_k'"),
]


@pytest.mark.parametrize(("asked", "wrong"), REFUSED)
def test_strict_refuses_the_rest(asked: Body, wrong: str) -> None:
    got = failure(OK, strict=True, **asked)
    assert type(got) is openai.BadRequestError
    assert wrong in str(got)
