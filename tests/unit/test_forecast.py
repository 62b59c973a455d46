"""The dry run's forecast of model calls: what it rests on, its bounds, and that it asks nobody."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmzero import wiring
from llmzero.agents.llm.counting import pixel_tokens
from llmzero.agents.llm.prompt import MAX_BEST, MAX_SIBLINGS, MAX_STAGES
from llmzero.cli import main
from llmzero.domain.config import LLMConfig, RunConfig
from llmzero.domain.llm import Price
from llmzero.forecast import QUESTIONS_A_PHASE, forecast, late_tree, proposer_tokens, questions, stopper_tokens
from llmzero.settings import load_settings

PRICE = Price(prompt_usd=1.0, completion_usd=4.0, cached_usd=0.1)


def config_of(**llm: Any) -> RunConfig:
    return replace(load_settings(None, {}, {}), llm=LLMConfig(model="m", **llm), nodes=20)


def told(config: RunConfig, *agents: str, past: Any = None) -> dict[str, Any]:
    found = forecast(config, wiring.make_briefing(config), agents=agents, past=past)
    assert found is not None
    return found


def test_without_a_model_there_is_nothing_to_forecast() -> None:
    config = config_of()
    assert forecast(config, wiring.make_briefing(config), agents=("playbook", "rule")) is None


def test_a_conversation_that_grows_is_not_forecast() -> None:
    found = told(config_of(), "skill", "skill")
    assert (found["not_forecast"], found["expected"], found["worst"]) == (["skill"], None, None)


def test_calls_are_one_a_phase_and_one_an_evaluation_that_may_be_asked_about() -> None:
    config = config_of()  # 60 steps, evaluated every 10, judged from step 20 on
    assert questions(config) == 4
    assert told(config, "llm", "rule")["expected"]["calls"] == 20
    assert told(config, "llm", "agent")["expected"]["calls"] == 20 + 80
    assert told(config, "playbook", "both")["expected"]["calls"] == round(20 * QUESTIONS_A_PHASE)
    short = replace(config, steps=20)
    assert told(short, "playbook", "agent")["expected"]["calls"] == 0


def test_the_worst_case_has_every_repair_and_every_try_at_full_length() -> None:
    config = config_of(retries=3, max_completion_tokens=1000, prices={"m": PRICE})
    worst = told(config, "llm", "rule")["worst"]
    assert (worst["calls"], worst["tries"], worst["completion_tokens"]) == (20 * 3, 20 * 3 * 4, 20 * 3 * 4 * 1000)
    assert worst["usd"] == pytest.approx((worst["prompt_tokens"] + 4 * worst["completion_tokens"]) / 1e6)
    longest = told(config, "playbook", "agent")["worst"]["calls"]
    assert longest == 20 * 2 * questions(replace(config, steps=240)), "a proposal may ask for four times the steps"


def test_dollars_are_unknown_without_a_price() -> None:
    free, priced = told(config_of(), "llm", "both"), told(config_of(prices={"m": PRICE}), "llm", "both")
    assert free["expected"]["usd"] is free["worst"]["usd"] is None
    expected = priced["expected"]
    tokens = expected["prompt_tokens"], expected["completion_tokens"]
    assert expected["usd"] == pytest.approx((tokens[0] + 4 * tokens[1]) / 1e6)
    assert 0 < expected["usd_cached"] < expected["usd"] < priced["worst"]["usd"]
    assert (
        told(config_of(prices={"m": replace(PRICE, cached_usd=None)}), "llm", "both")["expected"]["usd_cached"] is None
    )


def test_prompts_are_counted_from_this_run_and_grow_with_its_budget_only_up_to_a_bound() -> None:
    config = config_of()
    briefing = wiring.make_briefing(config)
    first, late, same = proposer_tokens(config, briefing)
    assert same < first < late
    assert len(late_tree(replace(config, nodes=6))[0].nodes) == 6
    most = MAX_STAGES - 1 + MAX_SIBLINGS + MAX_BEST
    assert len(late_tree(config)[0].nodes) == 1 + most <= config.nodes
    _, later, _ = proposer_tokens(replace(config, nodes=5000), briefing)
    assert late <= later < 1.05 * late
    blind = replace(config, llm=replace(config.llm, images="off"))
    assert proposer_tokens(blind, briefing)[1] == late - pixel_tokens(1024, 1050)
    assert stopper_tokens(blind, briefing)[1] == stopper_tokens(config, briefing)[1] - pixel_tokens(1024, 640)


def test_an_earlier_run_of_the_same_model_is_the_better_basis() -> None:
    entry = {"calls": 6, "tries": 8, "prompt_tokens": 50_000, "completion_tokens": 2000}
    found = told(config_of(prices={"m": PRICE}), "llm", "rule", past=("old-run", 5, {"proposer": entry}))
    assert "run old-run, by the phase" in found["basis"]
    assert (found["expected"]["calls"], found["expected"]["prompt_tokens"]) == (24, 200_000)
    assert found["expected"]["usd"] == pytest.approx(0.2 + 0.032)


def test_the_dry_run_says_it_without_a_key_and_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    settings = tmp_path / "settings.toml"
    words = [
        "search",
        "--dry-run",
        "--out",
        str(tmp_path),
        "--config",
        str(settings),
        "--llm-base-url",
        "http://x.test/v1",
    ]
    settings.write_text('[llm]\nmodel = "m"\n')
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "dollars unknown: no price of this model" in text and "expected 8" not in text.split("calls     m at")[0]
    settings.write_text('[llm]\nmodel = "m"\nusd = 0.5\n[llm.prices."m"]\nprompt_usd = 1.0\ncompletion_usd = 4.0\n')
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "no more than the ceiling of $0.5" in text and "unknown" not in text.split("space")[0]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["llm"]
    assert found["ceiling_usd"] == 0.5 and set(found["by_agent"]) == {"proposer", "stopper"}
    assert main(["search", "--dry-run", "--out", str(tmp_path), "--agent", "playbook", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["llm"] is None
