"""Before a search begins its endpoint is asked for a sign of life: trouble is one line, and no run folder is made."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest
from llm_kit import Endpoint
from llm_replies import drop, http_error, json_reply, raw, slow, text

from llmzero.agents.llm import client
from llmzero.cli import main
from llmzero.domain.events import Tree, fold
from llmzero.search import controller
from llmzero.store.journal import read_journal

KEY = "sk-canary-0123456789abcdef"
SMALL = ["--trainer", "sim", "--nodes", "2", "--steps", "20"]
CONTINUE = json_reply({"action": "continue", "reason": "it still climbs"})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BACKOFF_S", 0.01)
    monkeypatch.setattr(client, "CHECK_S", 0.5)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("OPENAI_BASE_URL", "LLMZERO_LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)


def search(out: Path, base_url: str, *words: str) -> int:
    return main(["search", *SMALL, "--llm-model", "m", "--llm-base-url", base_url, "--out", str(out), *words])


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def nothing_was_made(out: Path) -> bool:
    return not out.exists() or not any(out.iterdir())


def tree_of(out: Path) -> Tree:
    return fold(read_journal(next(out.glob("*/journal.jsonl"))))


@pytest.mark.parametrize(
    ("listing", "said"),
    [
        (http_error(401, "invalid_api_key", f"Incorrect key {KEY}"), "refuses the key in OPENAI_API_KEY (HTTP 401)"),
        (http_error(403, None, "forbidden"), "refuses the key in OPENAI_API_KEY (HTTP 403)"),
        (drop(), "cannot be reached"),
        (slow(30, text("too late")), "cannot be reached: no answer within 0.5 s"),
    ],
    ids=["401", "403", "dropped", "silent"],
)
def test_a_search_that_could_ask_nobody_does_not_begin(
    listing: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Endpoint(CONTINUE, listing=listing) as endpoint:
        assert search(tmp_path, endpoint.base_url) == 2
        assert endpoint.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert len(endpoint.requests) == 1, "asked once"
        shown = capsys.readouterr().err
        assert shown.startswith(f"llmzero: llm: {endpoint.base_url} {said}") and shown.count("\n") == 1
    assert KEY not in shown
    assert nothing_was_made(tmp_path)


def test_an_endpoint_that_is_not_there_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert search(tmp_path, f"http://127.0.0.1:{closed_port()}/v1") == 2
    assert time.monotonic() - began < 30, "no waits, no further tries"
    assert "cannot be reached: " in capsys.readouterr().err
    assert nothing_was_made(tmp_path)


def test_without_a_key_the_line_says_to_set_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with Endpoint(CONTINUE, listing=http_error(401, None, "who are you")) as endpoint:
        assert search(tmp_path, endpoint.base_url) == 2
    assert "wants a key: set OPENAI_API_KEY (HTTP 401)" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["sk-prix-en-€", "sk-two\nlines"], ids=["not ASCII", "a line break"])
def test_a_key_that_no_header_can_hold_is_refused_unsaid(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with Endpoint(CONTINUE) as endpoint:
        assert search(tmp_path, endpoint.base_url) == 2
        assert not endpoint.requests
    shown = capsys.readouterr().err
    assert "OPENAI_API_KEY: holds a character" in shown and "sk-" not in shown
    assert nothing_was_made(tmp_path)


@pytest.mark.parametrize(
    "listing",
    [
        http_error(404, None, "no such page"),
        http_error(405, None, "no GET here"),
        http_error(500, None, "oops"),
        raw("<html>a proxy's page</html>", content_type="text/html"),
        raw("{half"),
    ],
    ids=["404", "405", "500", "html", "malformed"],
)
def test_an_endpoint_need_not_list_its_models(listing: Any, tmp_path: Path) -> None:
    with Endpoint(CONTINUE, listing=listing) as endpoint:
        assert search(tmp_path, endpoint.base_url, "--agent", "playbook", "--stopper", "agent", "--nodes", "1") == 0
    assert tree_of(tmp_path).ended


def test_a_dry_run_and_rules_alone_ask_nobody(tmp_path: Path) -> None:
    with Endpoint(CONTINUE, listing=http_error(401, None, "no")) as endpoint:
        assert search(tmp_path, endpoint.base_url, "--dry-run") == 0
        assert nothing_was_made(tmp_path)
        assert search(tmp_path, endpoint.base_url, "--agent", "playbook", "--stopper", "rule", "--nodes", "1") == 0
        assert not endpoint.requests


def test_a_resumed_run_goes_on_with_the_rules_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has begun: what is left of it may need no call at all, and must not wait for an endpoint that is gone."""
    with monkeypatch.context() as once, Endpoint(text("no json")) as endpoint:
        once.setattr(controller, "read_test", interrupt)
        assert search(tmp_path, endpoint.base_url, "--nodes", "1") == 130
    assert not tree_of(tmp_path).ended
    capsys.readouterr()
    assert main(["resume", "latest", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().err
    assert "cannot be reached" in shown and "going on, with the rules" in shown
    assert tree_of(tmp_path).ended
    assert main(["resume", "latest", "--out", str(tmp_path)]) == 0
    assert "cannot be reached" not in capsys.readouterr().err, "a run that has ended asks nothing more"


def interrupt(*_: Any) -> Tree:
    raise KeyboardInterrupt


def test_a_run_leaves_no_connection_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, closed = [], []
    init, close = client.OpenAIClient.__init__, client.OpenAIClient.close

    def counted(self: client.OpenAIClient, *words: Any, **more: Any) -> None:
        made.append(self)
        init(self, *words, **more)

    def counted_close(self: client.OpenAIClient) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(client.OpenAIClient, "__init__", counted)
    monkeypatch.setattr(client.OpenAIClient, "close", counted_close)
    with Endpoint(CONTINUE) as endpoint:
        assert search(tmp_path, endpoint.base_url) == 0
    assert len(made) == 2, "one that asks for a sign of life, one for the run"
    assert {*map(id, made)} == {*map(id, closed)}
