"""What one call makes of an endpoint's trouble: an error of one line, after bounded tries, whatever happens."""

from __future__ import annotations

from typing import Any

import pytest
from llm_kit import Endpoint
from llm_replies import drip, drop, empty, http_error, malformed, raw, refusal, slow, text, truncate

from llmzero.agents.llm import client
from llmzero.domain.config import LLMConfig
from llmzero.domain.llm import ChatMessage, Reply, Request, Text

ASK = Request(purpose="propose", messages=(ChatMessage("user", (Text("hello"),)),))


def asked(endpoint: Endpoint, **settings: Any) -> Reply:
    config = LLMConfig(model="m", base_url=endpoint.base_url, **{"retries": 1, **settings})
    made = client.OpenAIClient(config, sleep=lambda wait_s: None)
    try:
        return made.complete(ASK)
    finally:
        made.close()


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (truncate(40), "RemoteProtocolError"),
        (truncate(0), "RemoteProtocolError"),
        (drop(), "disconnected"),
        (slow(30, text("late")), "no answer within llm.timeout_s"),
        (drip(0.05, text("so slow")), "no answer within llm.timeout_s"),
        (malformed(), "JSON"),
        (raw("<html>a proxy's page</html>", content_type="text/html"), "JSON"),
        (raw(b"\xff\xfe\x00"), "UnicodeDecodeError"),
        (raw("[]"), "no chat completion"),
        (empty(), "empty reply"),
        (http_error(429, None, "slow down", retry_after=0), "HTTP 429"),
    ],
    ids=["cut", "cut at once", "dropped", "silent", "dripping", "half", "html", "bytes", "list", "empty", "429"],
)
def test_trouble_is_tried_again_and_then_one_line(trouble: Any, said: str) -> None:
    with Endpoint(trouble) as endpoint:
        reply = asked(endpoint, timeout_s=0.5)
        assert len(endpoint.chats) == reply.attempts == 2
    assert said in reply.error and "\n" not in reply.error and not reply.text


@pytest.mark.parametrize(
    ("trouble", "said"),
    [(http_error(401, None, "no"), "HTTP 401"), (refusal("I cannot\nhelp with that"), "refused: I cannot help")],
    ids=["401", "refusal"],
)
def test_what_no_further_try_can_change_is_said_at_once(trouble: Any, said: str) -> None:
    with Endpoint(trouble) as endpoint:
        reply = asked(endpoint)
        assert len(endpoint.chats) == reply.attempts == 1
    assert reply.error.startswith(said) and "\n" not in reply.error


def test_an_answer_after_trouble_is_an_answer() -> None:
    with Endpoint([truncate(40), text("here", usage=(7, 3))]) as endpoint:
        reply = asked(endpoint)
    assert (reply.text, reply.error, reply.attempts) == ("here", "", 2)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (7, 3)
