"""What model calls took: by call, agent and node, wherever a run is shown; and the ceiling in dollars."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import test_llm_agents as agents
from llm_kit import Endpoint
from llm_replies import Drop, Slow, Truncate, empty, http_error, json_reply, text

from llmzero.agents.llm import client
from llmzero.agents.llm.counting import request_tokens
from llmzero.agents.llm.recorder import MARGIN, RecordedLLM, read_calls, reserve_usd
from llmzero.cli import main
from llmzero.domain.config import LLMConfig
from llmzero.domain.llm import ChatMessage, Price, Reply, Request, Text, Usage
from llmzero.domain.types import ROOT

PRICES = """
[llm.prices.fake-model]
prompt_usd = 1.0
completion_usd = 100.0
cached_usd = 0.1
"""
CENT = Price(prompt_usd=1.0, completion_usd=100.0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BACKOFF_S", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", agents.CANARY)


def answer(index: int, body: Any) -> Any:
    """1,000 prompt tokens, 400 of them cached, and 50: 0.00564 dollars a call."""
    if body["response_format"]["json_schema"]["name"] == "verdict":
        return json_reply({"action": "continue", "reason": "it climbs"}, usage=(1000, 50), cached=400)
    return json_reply(agents.proposal(index), usage=(1000, 50), cached=400)


USD = (600 * 1.0 + 400 * 0.1 + 50 * 100.0) / 1e6


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 0
    return capsys.readouterr().out


def test_tokens_and_dollars_are_told_by_run_agent_and_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Endpoint(answer) as endpoint:
        _, root = agents.run(tmp_path, endpoint, "--stopper", "agent", "--json", settings=agents.SETTINGS + PRICES)
        asked = len(endpoint.chats)
    ended = json.loads(capsys.readouterr().out)["cost"]["llm"]
    assert asked > 4 and ended["calls"] == ended["tries"] == asked
    assert (ended["prompt_tokens"], ended["cached_tokens"], ended["completion_tokens"]) == (
        1000 * asked,
        400 * asked,
        50 * asked,
    )
    assert ended["usd"] == pytest.approx(USD * asked) and ended["unpriced"] == 0
    assert ended["by_agent"]["proposer"]["calls"] == 4
    assert ended["by_agent"]["stopper"]["calls"] == asked - 4
    assert sum(each["calls"] for each in ended["by_node"].values()) == asked and "" not in ended["by_node"]
    place = (root.name, "--out", str(tmp_path))
    assert json.loads(said(capsys, "show", *place, "--json"))["cost"]["llm"] == ended
    assert f"{asked} calls (4 proposer, {asked - 4} stopper), {1000 * asked:,} + " in said(capsys, "show", *place)
    node = json.loads(said(capsys, "show", root.name, "n2", "--out", str(tmp_path), "--json"))["llm"]
    assert node["by_agent"]["proposer"]["calls"] == 1
    assert node["calls"] == ended["by_node"]["n2"]["calls"] == 1 + node["by_agent"]["stopper"]["calls"]
    assert f"{node['calls']} calls" in said(capsys, "show", root.name, "n2", "--out", str(tmp_path))
    transcript = json.loads(said(capsys, "show", root.name, "n2", "--out", str(tmp_path), "--transcript", "--json"))
    assert transcript["ledger"] == node and len(transcript["calls"]) == node["calls"]
    assert "1000 + 50 tokens (400 cached), $0.0056" in said(capsys, "show", root.name, "n2", *place[1:], "--transcript")
    assert '"by_node":{"n1":' in (root / "report" / "index.html").read_text()


def test_a_model_without_a_price_is_counted_in_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Endpoint(answer) as endpoint:
        _, root = agents.run(tmp_path, endpoint, "--stopper", "rule")
    assert "4 calls, 4,000 + 200 tokens (1,600 cached), no price known" in capsys.readouterr().out
    entry = json.loads(said(capsys, "show", root.name, "--out", str(tmp_path), "--json"))["cost"]["llm"]
    assert (entry["prompt_tokens"], entry["usd"], entry["unpriced"]) == (4000, None, 4)


def test_a_run_that_asked_nobody_says_nothing_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "settings.toml").write_text(agents.SETTINGS)
    words = ("search", "--out", str(tmp_path), "--config", str(tmp_path / "settings.toml"), "--nodes", "1", "--json")
    assert json.loads(said(capsys, *words))["cost"]["llm"] is None
    assert "call" not in said(capsys, "show", "latest", "--out", str(tmp_path))


def test_a_repair_belongs_to_the_node_it_led_to_and_not_to_its_parent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Endpoint(agents.bad_then_good("no JSON")) as endpoint:
        _, root = agents.run(tmp_path, endpoint, "--stopper", "rule", "--nodes", "2")
    nodes = json.loads(said(capsys, "show", root.name, "--out", str(tmp_path), "--json"))["cost"]["llm"]["by_node"]
    assert {node: entry["calls"] for node, entry in nodes.items()} == {"n1": 2, "n2": 1}
    assert ROOT not in nodes


def test_the_forecast_is_near_what_the_search_then_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Endpoint(answer) as endpoint:
        words = ("--stopper", "agent", "--nodes", "8", "--json")
        assert agents.main(["search", "--dry-run", *flags_of(tmp_path, endpoint), *words]) == 0
        forecast = json.loads(capsys.readouterr().out)["llm"]["expected"]
        _, root = agents.run(tmp_path, endpoint, *words)
    counted = sum(call.counted_tokens for call in read_calls(root / "calls"))
    made = len(endpoint.chats)
    assert forecast["calls"] == made, "nothing was stopped, repaired or tried again"
    assert forecast["prompt_tokens"] == pytest.approx(counted, rel=0.15)
    assert main(["search", "--dry-run", *flags_of(tmp_path, endpoint), *words]) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])["llm"]
    assert f"run {root.name}" in again["basis"] and again["expected"]["prompt_tokens"] == 1000 * made


def flags_of(out: Path, endpoint: Endpoint) -> list[str]:
    (out / "settings.toml").write_text(agents.SETTINGS)
    flags = ["--llm-model", "fake-model", "--llm-base-url", endpoint.base_url]
    return [*flags, "--config", str(out / "settings.toml"), "--out", str(out)]


def test_the_calls_of_500_nodes_are_read_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Endpoint(answer) as endpoint:
        _, root = agents.run(tmp_path, endpoint, "--stopper", "rule", "--nodes", "2")
    first = json.loads(next((root / "calls").glob("*.json")).read_text())
    for i in range(2000):  # 500 nodes, a proposal and three judgements each
        (root / "calls" / f"{i:020d}.json").write_text(json.dumps({**first, "digest": f"{i:020d}"}))
    began = time.process_time()
    shown = json.loads(said(capsys, "show", root.name, "--out", str(tmp_path), "--json"))["cost"]["llm"]
    assert shown["calls"] == 2002 and shown["by_node"][""]["calls"] == 2000
    assert time.process_time() - began < 5, "about half a second"


# --- the ceiling


@dataclass
class Slowly:
    """`ports.LLM` that takes its time; each answer costs what a whole reply costs. Counts what is in flight."""

    usage: Usage
    attempts: int = 1
    lost: int = 0
    delay_s: float = 0.05
    now: int = 0
    most: int = 0
    made: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(self, request: Request) -> Reply:
        with self.lock:
            self.now += 1
            self.made += 1
            self.most = max(self.most, self.now)
        time.sleep(self.delay_s)
        with self.lock:
            self.now -= 1
        return Reply(text="{}", usage=self.usage, attempts=self.attempts, lost=self.lost)


def asked(number: int) -> Request:
    return Request(purpose="judge", name="verdict", messages=(ChatMessage("user", (Text(f"question {number}"),)),))


def together(llm: RecordedLLM, calls: int) -> list[Reply]:
    replies: list[Reply] = []
    threads = [threading.Thread(target=lambda i=i: replies.append(llm.complete(asked(i)))) for i in range(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies


def config_of(usd: float, retries: int = 0) -> LLMConfig:
    return LLMConfig(model="m", usd=usd, retries=retries, max_completion_tokens=100, prices={"m": CENT})


def test_calls_in_flight_are_reserved(tmp_path: Path) -> None:
    """A call may cost a cent; under a ceiling of four and a bit, four of sixteen at the same time are made."""
    inner = Slowly(Usage(prompt_tokens=5, completion_tokens=100))
    config = config_of(0.0415)
    replies = together(RecordedLLM(inner, tmp_path, config), 16)
    assert inner.made == inner.most == 4
    assert sum("the ceiling of $0.0415 is reached" in r.error for r in replies) == 12
    assert sum(call.usd or 0.0 for call in read_calls(tmp_path)) <= 0.0415


def test_a_reservation_covers_every_try(tmp_path: Path) -> None:
    """Each try of a call may be billed in full: with three further ones a ceiling of four cents allows one call."""
    config, most = config_of(0.0415, retries=3), Usage(prompt_tokens=4 * 5, completion_tokens=4 * 100)
    inner = Slowly(most, attempts=4)
    together(RecordedLLM(inner, tmp_path, config), 8)
    assert inner.made == 1
    assert 0.04 < sum(call.usd or 0.0 for call in read_calls(tmp_path)) <= 0.0415
    assert CENT.of(most) <= reserve_usd(config, request_tokens(asked(0)))


def test_tries_without_a_token_count_count_in_full_under_the_ceiling(tmp_path: Path) -> None:
    """A provider may bill a try that broke off; what is told in dollars stays what the endpoint told."""
    config = config_of(0.0415, retries=1)
    inner = Slowly(Usage(prompt_tokens=5, completion_tokens=100), attempts=2, lost=1, delay_s=0)
    llm = RecordedLLM(inner, tmp_path, config)
    for number in range(4):
        llm.complete(asked(number))
    assert inner.made == 2, "two calls of two cents each, half of it lost"
    assert "the ceiling" in RecordedLLM(inner, tmp_path, config).complete(asked(9)).error, "also after a restart"
    assert sum(call.usd or 0.0 for call in read_calls(tmp_path)) == pytest.approx(0.02, rel=0.01)


@pytest.mark.parametrize(
    ("action", "lost"),
    [
        (Drop(), 2),
        (Truncate(40, json_reply({})), 2),
        (Slow(5.0, json_reply({})), 2),
        (http_error(503, "busy", "busy"), 0),
        (text("", usage=(10, 0)), 0),
        (text("", usage=(0, 0)), 2),
        (text("fine", usage=(0, 0)), 1),
        (text("fine", usage=(10, 5)), 0),
    ],
    ids=["dropped", "truncated", "timeout", "503", "empty", "empty, untold", "untold", "told"],
)
def test_the_client_says_which_tries_had_no_token_count(action: Any, lost: int) -> None:
    with Endpoint(action) as endpoint:
        config = LLMConfig(model="m", base_url=endpoint.base_url, retries=1, timeout_s=0.5)
        llm = client.OpenAIClient(config)
        assert llm.complete(asked(1)).lost == lost
        llm.close()
    down = client.OpenAIClient(config)
    assert down.complete(asked(1)).lost == 0, "nothing was sent to a port that nobody listens on"
    down.close()


def test_what_is_spent_is_never_out_of_sight_between_two_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first call is being written down, a second one must already see what it cost."""
    from llmzero.agents.llm import recorder

    inner, config = Slowly(Usage(prompt_tokens=5, completion_tokens=100), delay_s=0), config_of(0.015)
    llm, write, seen = RecordedLLM(inner, tmp_path, config), recorder._write, []

    def asking(path: Path, content: bytes) -> None:
        if not seen:
            seen.append(None)
            seen[0] = llm.complete(asked(2)).error
        write(path, content)

    monkeypatch.setattr(recorder, "_write", asking)
    assert llm.complete(asked(1)).error == ""
    assert "the ceiling" in seen[0] and inner.made == 1


def test_a_reservation_learns_from_what_the_endpoint_counts(tmp_path: Path) -> None:
    """Where prompts cost ten times what we count (dear pictures, another tokenizer), later calls are reserved so."""
    config = LLMConfig(model="m", usd=1.0, retries=0, max_completion_tokens=1, prices={"m": CENT})
    counted = request_tokens(asked(1))
    inner = Slowly(Usage(prompt_tokens=10 * counted, completion_tokens=1), delay_s=0)
    llm = RecordedLLM(inner, tmp_path, config)
    llm.complete(asked(1))
    for again in (llm, RecordedLLM(inner, tmp_path, config)):
        reserved = again._reserve(counted)
        assert reserved is not None and reserved >= CENT.of(Usage(prompt_tokens=10 * counted, completion_tokens=1))
    dear = CENT.of(Usage(prompt_tokens=10 * counted, completion_tokens=1))
    assert reserve_usd(config, counted) < dear, f"a margin of {MARGIN} alone is less"


def test_two_workers_and_a_slow_endpoint_stay_under_the_ceiling(tmp_path: Path) -> None:
    """Proposals, and judgements in threads of their own, each billed the longest reply; some tries come back empty."""

    def script(index: int, body: Any) -> Any:
        bad = [text("", usage=(9000, 400)), http_error(503, "busy", "busy"), empty()]
        good = answer(index, body)
        whole = text(good.message["content"], usage=(9000, 400))
        return Slow(0.05, bad[index % 3] if index % 2 else whole)

    ceiling = 1.0
    more = f"\nusd = {ceiling}\nmax_completion_tokens = 400\n{PRICES}"
    with Endpoint(script) as endpoint:
        words = ("--nodes", "12", "--stopper", "agent", "--workers", "2")
        code, root = agents.run(tmp_path, endpoint, *words, settings=agents.SETTINGS + more)
    assert code == 0
    calls = read_calls(root / "calls")
    spent = sum(call.usd or 0.0 for call in calls)
    assert any(call.reply.attempts > 1 and call.usd for call in calls), "tries were billed that led nowhere"
    assert any("the ceiling" in call.reply.error for call in calls), "the ceiling was reached"
    assert ceiling / 2 < spent <= ceiling
