"""The parts of the skill agent: requests with tools, the conversation's algebra, purity, both plug-in contracts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from llmzero.agents.cards import load_cards
from llmzero.agents.llm import skill_stopper
from llmzero.agents.llm.prompt import Briefing
from llmzero.agents.llm.skill import SkillAgent, SkillStopper, at
from llmzero.agents.llm.skill_talk import Answer, Asked, Talk, answered, begin, news, opened, said, shown
from llmzero.agents.llm.skill_tools import tool_specs
from llmzero.agents.llm.wire import body, reply_of
from llmzero.agents.playbook import PlaybookProposer
from llmzero.domain.config import LLMConfig, RunConfig, StopConfig
from llmzero.domain.errors import UsageError
from llmzero.domain.events import CheckpointLost, PhaseFinished, PhaseProposed, RunStarted, Tree, apply, fold
from llmzero.domain.llm import ChatMessage, Image, Reply, Request, Text, ToolCall
from llmzero.domain.types import ROOT, PhaseResult, Status
from llmzero.profiles import nano_space
from llmzero.search.budget import end_reason
from llmzero.search.phases import BASE_PROPOSAL, BASE_SELECTION, base_phase, next_phase
from llmzero.search.uct import select, selection_of
from llmzero.testing import ProposerContract, StopperContract

SYSTEM = ChatMessage("system", (Text("Steer."),))
CONFIG = RunConfig(space=nano_space(), agent="skill", seed=3, nodes=9, stop=StopConfig(grace_steps=20))


# --- requests


def test_a_request_without_tools_has_the_digest_it_always_had() -> None:
    """Runs recorded before there were tools replay: their calls are found by digest."""
    messages = (
        ChatMessage("system", (Text("Watch."),)),
        ChatMessage("user", (Text("n3"), Image(b"\x89PNG picture", "a plot"))),
        ChatMessage("assistant", (Text("?"),)),
    )
    schema = {"type": "object", "properties": {}}
    request = Request(purpose="judge", about="n3", messages=messages, name="verdict", schema=schema)
    assert request.digest == "6669ca19665ddfbae268"


@pytest.mark.parametrize(
    "change",
    [
        lambda m: (*m[:2], ChatMessage("assistant", (ToolCall("call00001", "read", '{"node": "n2"}'),)), m[3]),
        lambda m: (*m[:2], ChatMessage("assistant", (ToolCall("call00001", "look", '{"node": "n1"}'),)), m[3]),
        lambda m: (*m[:3], ChatMessage("tool", (Text("0.5"),), answers="call00002")),
    ],
)
def test_calls_and_what_they_answer_tell_requests_apart(change: Callable[[Any], Any]) -> None:
    call = ToolCall("call00001", "read", '{"node": "n1"}')
    messages = (
        SYSTEM,
        ChatMessage("user", (Text("Go."),)),
        ChatMessage("assistant", (call,)),
        ChatMessage("tool", (Text("0.5"),), answers="call00001"),
    )
    request = Request(purpose="propose", messages=messages, tools=tool_specs(check_ins=True, pictures=True))
    assert replace(request, messages=change(messages)).digest != request.digest
    assert replace(request, tools=request.tools[:-1]).digest != request.digest
    json.dumps(request.as_json())


def test_without_tools_calls_and_results_are_words() -> None:
    call = ToolCall("call00001", "read", '{"node": "n1"}')
    messages = (SYSTEM, ChatMessage("assistant", (Text("Hm."), call)), ChatMessage("tool", (Text("0.5"),), answers="x"))
    request = Request(purpose="propose", messages=messages, tools=tool_specs(check_ins=False, pictures=False))
    sent = body(request, images=True, response_format=True, tools=False)
    assert "tools" not in sent and [m["role"] for m in sent["messages"]] == ["system", "assistant", "user"]
    assert sent["messages"][1]["content"] == 'Hm.\n{"tool": "read", "arguments": {"node": "n1"}}'
    assert "- read_metrics: " in sent["messages"][0]["content"]


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ([{"id": "a", "function": {"name": "f", "arguments": "{}"}}], (ToolCall("a", "f", "{}"),)),
        ([{"function": {"name": "f", "arguments": {"x": 1}}}], (ToolCall("", "f", '{"x": 1}'),)),
        ([{"id": 7, "function": {}}, "no", {"function": None}], (ToolCall("7", "", "null"),)),
    ],
)
def test_tool_calls_of_any_server_are_read(calls: Any, found: tuple[ToolCall, ...]) -> None:
    completion = {"choices": [{"message": {"content": None, "tool_calls": calls}, "finish_reason": "tool_calls"}]}
    reply = reply_of(completion)
    assert reply.calls == found and reply.error == ""


@pytest.mark.parametrize("calls", [None, [], "x", {}, ["x"]])
def test_neither_words_nor_calls_are_an_empty_reply(calls: Any) -> None:
    assert reply_of({"choices": [{"message": {"content": "", "tool_calls": calls}}]}).error == "empty reply"


# --- the conversation


def asked(talk: Talk, *calls: ToolCall, text: str = "") -> tuple[Talk, tuple[Asked, ...]]:
    return said(talk, Reply(text=text, calls=calls))


def test_an_act_stays_open_until_the_news() -> None:
    talk, (call,) = asked(begin(SYSTEM, "Go."), ToolCall("x", "launch_phase", "{}"))
    talk = news(opened(talk, call), "n1 is running")
    assert [(m.role, m.answers) for m in talk.messages[2:]] == [("assistant", ""), ("tool", "call00001")]
    talk = news(news(talk, "n1 ended"), "Decide.")
    assert [m.role for m in talk.messages[4:]] == ["user"], "what a user says in a row is one message"
    assert [part.text for part in talk.messages[4].parts if isinstance(part, Text)] == ["n1 ended", "Decide."]


def test_ids_are_numbered_and_what_endpoints_refuse_is_mended() -> None:
    talk, first = asked(begin(SYSTEM, "Go."), ToolCall("call_0", "read metrics!", "{}"), ToolCall("call_0", "", "[1]"))
    talk = shown(answered(answered(talk, first[0], Answer("a")), first[1], Answer("b")), (Image(b"p", "plot"),))
    _, second = asked(talk, ToolCall("call_0", "finish", "not json"))
    assert [each.call for each in first] == [
        ToolCall("call00001", "read_metrics_", "{}"),
        ToolCall("call00002", "unnamed", "{}"),
    ]
    assert first[1].problem and not first[0].problem
    assert second[0].call.id == "call00003" and second[0].problem == "the arguments are not one JSON object"
    assert [m.role for m in talk.messages[2:]] == ["assistant", "tool", "tool", "user"]


@pytest.mark.parametrize(
    "text",
    [
        '{"tool": "finish", "arguments": {"reason": "x"}}',
        'I see.\n```json\n{"tool": "finish", "arguments": {"reason": "x"}}\n```',
        '<think>{"tool": "no"}</think> {"tool": "finish", "arguments": {"reason": "x"}}',
    ],
)
def test_calls_in_words_are_understood(text: str) -> None:
    talk, calls = asked(begin(SYSTEM, "Go."), text=text)
    assert [(c.call.name, c.arguments) for c in calls] == [("finish", {"reason": "x"})]
    assert news(opened(talk, calls[0]), "Done.").messages[-1].role == "user"


@pytest.mark.parametrize("text", ["{", "[]", '{"tool": 3}', '{"name": "finish"}', "finish", '{"a":' * 50_000])
def test_other_words_are_no_call(text: str) -> None:
    assert asked(begin(SYSTEM, "Go."), text=text)[1] == ()


# --- the agent, over a model that is a function of what it was told


class Model:
    """`ports.LLM` that reads the last message; counts its answers."""

    def __init__(self, say: Callable[[str, Request], Reply]) -> None:
        self.say, self.requests = say, []  # type: ignore[var-annotated]

    def complete(self, request: Request) -> Reply:
        self.requests.append(request)
        return self.say("\n".join(p.text for p in request.messages[-1].parts if isinstance(p, Text)), request)


def call(name: str, **arguments: Any) -> Reply:
    return Reply(calls=(ToolCall("x", name, json.dumps(arguments)),))


def launching(told: str, request: Request) -> Reply:
    """Starts from the phase that ended last; every launch with another learning rate."""
    if "is running, step" in told:
        return call("keep_training", reason="it climbs")
    launched = sum(isinstance(p, ToolCall) for m in request.messages for p in m.parts)
    ended = [t for t in told.splitlines() if t.startswith("n") and " finished at step" in t]
    changes = [{"parameter": "learning_rate", "value": 1e-5 * (1 + launched), "reason": "more"}]
    words = {"pathology": "slow", "diagnosis": "slow", "evidence": [], "rationale": "up", "expected_effect": "up"}
    parent = ended[-1].split()[0] if ended else "n0"
    return call("launch_phase", parent=parent, changes=changes, steps=None, kl_anchor=None, confidence=0.5, **words)


def agent(
    model: Model, *, check_ins: bool = True, config: RunConfig = CONFIG, rows_of: Any = lambda n: ()
) -> SkillAgent:
    briefing = Briefing(config=config, cards=load_cards(), task="a task")
    return SkillAgent(model, briefing, rows_of, check_extra=lambda hyper: None, seed=3, check_ins=check_ins)


def begun(config: RunConfig = CONFIG) -> Tree:
    tree = fold([RunStarted(run="r", config=config)])
    tree = apply(tree, PhaseProposed(phase=base_phase(tree), selection=BASE_SELECTION, proposal=BASE_PROPOSAL))
    return apply(tree, PhaseFinished(node=ROOT, result=PhaseResult(status=Status.FINISHED, score=0.4, score_se=0.02)))


def grown(tree: Tree, proposer: SkillAgent, count: int) -> Tree:
    for _ in range(count):
        selection = selection_of(tree, proposer)
        proposal = proposer.propose(tree, selection.parent, tree.config.space)
        phase, proposal = next_phase(tree, selection, proposal)
        tree = apply(tree, PhaseProposed(phase=phase, selection=selection, proposal=proposal))
        done = PhaseResult(
            status=Status.FINISHED, steps_done=phase.steps, score=0.4 + 0.01 * len(tree.nodes), score_se=0.02
        )
        tree = apply(tree, PhaseFinished(node=phase.id, result=done))
    return tree


def test_the_agent_chooses_the_parent_and_signs_the_phase() -> None:
    tree = grown(begun(), agent(Model(launching)), 3)
    assert [tree.nodes[f"n{k}"].parent for k in (1, 2, 3)] == ["n0", "n1", "n2"]
    assert {n.selection.kind for n in tree.nodes.values() if n.id != ROOT} == {"agent"}
    assert tree.nodes["n3"].selection.reason == "up"


def test_a_new_agent_tells_the_same_conversation_and_an_old_one_asks_nothing_twice() -> None:
    model = Model(launching)
    old = agent(model)
    tree = grown(begun(), old, 4)
    asked = len(model.requests)
    assert asked == 4
    for _ in range(2):
        again = old.select(tree)
    assert len(model.requests) == asked + 1, "the memo answers"
    fresh = Model(launching)
    assert agent(fresh).select(tree) == again
    assert [r.digest for r in fresh.requests] == [r.digest for r in model.requests]


def test_the_memo_is_no_state() -> None:
    """Asked about one tree, then another, then the first again, an agent answers as a new one would."""
    one = grown(begun(), agent(Model(launching)), 3)
    other = grown(begun(replace(CONFIG, nodes=7)), agent(Model(launching)), 2)
    reused = agent(Model(launching))
    for tree in (one, other, one, at(one, 2), one):
        assert reused.propose(tree, "n1", tree.config.space) == agent(Model(launching)).propose(
            tree, "n1", tree.config.space
        )


def test_the_tree_as_it_was_knows_nothing_later() -> None:
    tree = grown(begun(), agent(Model(launching)), 3)
    tree = apply(tree, CheckpointLost(node="n1", reason="gone"))
    then = at(tree, 2)
    assert list(then.nodes) == ["n0", "n1"] and then.nodes["n1"].children == () and then.nodes["n1"].lost == ""


def test_weights_lost_later_do_not_change_what_was_decided_before() -> None:
    tree = grown(begun(), agent(Model(launching)), 3)
    lost = apply(tree, CheckpointLost(node="n1", reason="gone"))
    before, after = Model(launching), Model(launching)
    agent(before).select(tree)
    agent(after).select(lost)
    assert [r.digest for r in after.requests] == [r.digest for r in before.requests]


def test_lost_weights_are_refused_in_the_decision_at_hand() -> None:
    tree = apply(grown(begun(), agent(Model(launching)), 1), CheckpointLost(node="n1", reason="gone"))
    model = Model(
        lambda told, request: call("finish", reason="no use") if "are lost" in told else launching(told, request)
    )
    assert agent(model).ended(tree) == "the agent ended the search: no use"


def test_a_budget_ends_the_search_before_the_agent_is_asked() -> None:
    tree = grown(begun(replace(CONFIG, nodes=2)), agent(Model(launching)), 2)
    model = Model(launching)
    assert end_reason(tree, agent(model)) == "all 2 nodes used" and not model.requests


def test_uct_and_the_playbook_decide_where_the_model_does_not() -> None:
    tree = begun()
    silent = agent(Model(lambda told, request: Reply(error="HTTP 500")))
    assert silent.select(tree) is None and selection_of(tree, silent) == select(tree)
    made = silent.propose(tree, ROOT, tree.config.space)
    expected = PlaybookProposer(3).propose(tree, ROOT, tree.config.space)
    assert made.changes == expected.changes and made.notes[-1] == "fallback: HTTP 500" and len(made.calls) == 1


def test_proposers_without_a_choice_leave_the_search_to_uct() -> None:
    tree = begun()
    plain = PlaybookProposer(3)
    assert selection_of(tree, plain) == select(tree) and end_reason(tree, plain) == ""


def test_the_stopper_of_another_proposer_is_refused() -> None:
    with pytest.raises(UsageError, match="needs --agent skill"):
        skill_stopper(proposer=PlaybookProposer(3))


def test_tools_follow_the_run() -> None:
    names = lambda **how: [t["name"] for t in tool_specs(**how)]  # noqa: E731
    assert names(check_ins=False, pictures=False) == ["read_metrics", "launch_phase", "finish"]
    assert len(names(check_ins=True, pictures=True)) == 6
    blind = agent(Model(launching), config=replace(CONFIG, llm=LLMConfig(images="off")))
    blind.select(begun())
    model: Any = blind._llm
    assert "look_at_plot" not in [t["name"] for t in model.requests[0].tools]


def test_no_title_and_no_open_object_in_the_schemas() -> None:
    for tool in tool_specs(check_ins=True, pictures=True):
        text = json.dumps(tool["parameters"])
        assert '"title"' not in text and text.count('"additionalProperties": false') == text.count('"type": "object"')


# --- contracts


class TestProposer(ProposerContract):
    count = 5

    def make(self) -> SkillAgent:  # type: ignore[override]
        return agent(Model(launching), check_ins=False)


def watching(told: str, request: Request) -> Reply:
    """Stops what is at 0 at its last evaluation."""
    rows = [line for line in told.splitlines() if line.startswith("| ") and "±" in line]
    if rows and rows[-1].split("|")[3].strip().startswith("0.000"):
        return call("stop_phase", reason="it is at zero")
    return launching(told, request)


class TestStopper(StopperContract):
    def make(self) -> SkillStopper:  # type: ignore[override]
        return SkillStopper(agent(Model(watching)))

    def test_it_was_asked_and_stopped_something(self) -> None:
        from llmzero.testing.stoppers import _moments

        verdicts = [moment.judged_by(self.make()) for moment in _moments()]
        assert {v.action for v in verdicts} == {"continue", "stop"}
        assert any(v.reason == "agent: it is at zero" and v.calls for v in verdicts)
