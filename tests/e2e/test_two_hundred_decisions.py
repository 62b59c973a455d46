"""Two hundred decisions of a model that errs three times in ten: journal, calls and the endpoint's log agree."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from llm_kit import Endpoint
from llm_replies import (
    Action,
    Body,
    drop,
    empty,
    http_error,
    json_reply,
    malformed,
    mixture,
    refusal,
    text,
    truncate,
)

from llmzero.agents.llm import client
from llmzero.agents.llm.recorder import Call, read_calls
from llmzero.cli import main
from llmzero.domain.events import StopDecided, fold
from llmzero.domain.types import ROOT, Proposal
from llmzero.store.journal import read_journal

NODES = 200
SETTINGS = f"""
nodes = {NODES}
steps = 4
trainer = "sim"
workers = 4
agent = "llm"
stopper = "agent"
[eval]
every = 2
[stop]
grace_steps = 2
[llm]
model = "fake-model"
retries = 1
images = "off"
"""
UNKNOWN = {"parameter": "learnig_rate", "value": 0.1, "reason": "a slip"}


def proposal(rng: random.Random, **values: Any) -> dict[str, Any]:
    """A learning rate nobody proposed before."""
    return {
        "pathology": "slow_progress",
        "diagnosis": "The reward rises slowly.",
        "evidence": [],
        "changes": [{"parameter": "learning_rate", "value": 10 ** rng.uniform(-4.9, -3.1), "reason": "the slope"}],
        "rationale": "Another step size.",
        "steps": None,
        "kl_anchor": None,
        "expected_effect": "a faster rise",
        "confidence": 0.5,
        **values,
    }


LOST: dict[str, Action] = {
    "malformed": malformed(),
    "empty": empty(),
    "503": http_error(503, "overloaded", "busy"),
    "dropped": drop(),
    "truncated": truncate(120),
}
"""Tried again by the client."""
MISFIT: dict[str, Action] = {
    "prose": text("I would lower the rate."),
    "half an object": text('{"pathology": "slow_progress", "diagn'),
    "another schema": json_reply({"learning_rate": 1e-4}),
    "unknown parameter": json_reply(proposal(random.Random(0), changes=[UNKNOWN])),
}
"""Shown to the model again."""
FINAL: dict[str, Action] = {"refused": refusal("I cannot help with that.")}
BAD = {**LOST, **MISFIT, **FINAL}


@dataclass
class Script:
    """Answers, and keeps a log of what kind each answer was."""

    log: dict[int, str] = field(default_factory=dict)

    def __call__(self, index: int, body: Body) -> Action:
        action = mixture(8, 0.3, list(BAD.values()), self.sound)(index, body)
        self.log[index] = next((name for name, bad in BAD.items() if bad is action), "sound")
        return action

    def sound(self, index: int, body: Body) -> Action:
        rng = random.Random(index)
        if body["response_format"]["json_schema"]["name"] == "verdict":
            return json_reply({"action": rng.choice(("continue", "stop")), "reason": "by the table"})
        return json_reply(proposal(rng))

    def count(self, kinds: dict[str, Action]) -> int:
        return sum(name in kinds for name in self.log.values())


@dataclass(frozen=True)
class Played:
    """One search: what the endpoint saw, what lies in calls/, what the journal holds."""

    root: Path
    script: Script
    bodies: list[Body]
    calls: dict[str, Call]
    proposals: list[Proposal]
    stops: list[StopDecided]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    out, script = tmp_path_factory.mktemp("runs"), Script()
    (out / "settings.toml").write_text(SETTINGS)
    with pytest.MonkeyPatch.context() as patch, Endpoint(script, strict=True) as endpoint:
        patch.setattr(client, "BACKOFF_S", 0.001)
        flags = ["--config", str(out / "settings.toml"), "--llm-base-url", endpoint.base_url, "--out", str(out)]
        assert main(["search", *flags]) == 0
        bodies = [chat.body for chat in endpoint.chats]
    root = next(path.parent for path in out.glob("*/journal.jsonl"))
    events = read_journal(root / "journal.jsonl")
    tree = fold(events)
    assert tree.ended
    return Played(
        root=root,
        script=script,
        bodies=bodies,
        calls={call.digest: call for call in read_calls(root / "calls")},
        proposals=[node.proposal for node in tree.nodes.values() if node.id != ROOT],
        stops=[event for event in events if isinstance(event, StopDecided)],
    )


def fits(call: Call) -> bool:
    """Whether the recorded words are one of the script's sound answers."""
    return not call.reply.error and call.reply.text not in {bad.message["content"] for bad in misfits()}


def misfits() -> list[Any]:
    return list(MISFIT.values())


def of_agent(played: Played, name: str) -> list[Call]:
    return [call for call in played.calls.values() if call.request["name"] == name]


def test_the_search_makes_every_decision(played: Played) -> None:
    assert len(played.proposals) == NODES
    share = 1 - sum(kind == "sound" for kind in played.script.log.values()) / len(played.script.log)
    assert 0.2 < share < 0.4 and set(played.script.log.values()) == {*BAD, "sound"}


def test_every_request_is_on_record(played: Played) -> None:
    assert len(played.bodies) == len(played.script.log) == sum(c.reply.attempts for c in played.calls.values())
    asked_again = {json.dumps(b["messages"]) for b in played.bodies if "cannot be used" in str(b["messages"][-1])}
    assert len(asked_again) == sum(call.purpose == "repair" for call in played.calls.values())
    told = [digest for proposal in played.proposals for digest in proposal.calls]
    assert sorted(told) == sorted(call.digest for call in of_agent(played, "proposal"))


def test_every_bad_reply_is_accounted_for(played: Played) -> None:
    """Lost ones were tried again or ended their call, refusals ended it, misfits went back to the model."""
    calls, log = played.calls.values(), played.script
    errors = Counter("refused" if c.reply.error.startswith("refused") else "lost" for c in calls if c.reply.error)
    assert log.count(FINAL) == errors["refused"] > 0
    assert log.count(LOST) == errors["lost"] + sum(call.reply.attempts - 1 for call in calls)
    assert log.count(MISFIT) == sum(not call.reply.error and not fits(call) for call in calls)
    assert log.count({"sound": empty()}) == sum(fits(call) for call in calls)


def test_every_repair_and_fallback_is_in_the_journal(played: Played) -> None:
    counted: Counter[str] = Counter()
    for proposal in played.proposals:
        *before, last = [played.calls[digest] for digest in proposal.calls]
        assert not any(each.reply.error or fits(each) for each in before), "a call is only followed by a repair"
        repaired, fallback = f"repaired in {len(before)} turn", "fallback: "
        if not fits(last):
            assert last.reply.error or len(before) == 2, "given up without cause"
            assert proposal.proposer == "playbook" and proposal.notes[-1].startswith(fallback)
            assert last.reply.error in proposal.notes[-1]
        else:
            assert proposal.proposer == "llm" and not any(note.startswith(fallback) for note in proposal.notes)
            assert any(note.startswith(repaired) for note in proposal.notes) == bool(before)
        counted["fallback" if not fits(last) else "repaired" if before else "at once"] += 1
    print(dict(counted), Counter(played.script.log.values()))
    assert counted.total() == NODES and set(counted) == {"fallback", "repaired", "at once"}


def test_a_phase_stops_where_the_model_said_so(played: Played) -> None:
    verdicts = [call for call in of_agent(played, "verdict") if fits(call)]
    said_stop = {call.request["about"] for call in verdicts if json.loads(call.reply.text)["action"] == "stop"}
    assert {stop.node for stop in played.stops} == said_stop and said_stop
    assert all(fits(played.calls[stop.verdict.calls[-1]]) for stop in played.stops)


def test_all_of_it_replays_without_the_endpoint(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(played.root), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["first"] is None and report["identical"] == report["decisions"] >= 3 * NODES
