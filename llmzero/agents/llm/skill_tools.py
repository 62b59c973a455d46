"""The skill agent's tools: what they are told to be, and what a call of one does. Reading changes nothing; an act is
only parsed here, by the code that reads a proposer's replies, and carried out by the search.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from llmzero.agents.evidence import evidence_of
from llmzero.agents.llm.replies import ExtraCheck, Misfit, parse_proposal, proposal_schema
from llmzero.agents.llm.skill_talk import Answer, Asked
from llmzero.agents.llm.skill_text import metrics_text
from llmzero.agents.plots import overlay_png, path_png
from llmzero.domain.errors import did_you_mean
from llmzero.domain.events import Tree
from llmzero.domain.llm import Image
from llmzero.domain.series import METRICS, MetricRow
from llmzero.domain.types import ROOT, EvalPoint, NodeId, Proposal

MAX_REASON = 400

STARTING = ("launch_phase", "finish")
WATCHING = ("keep_training", "stop_phase")
WORDS = {
    "read_metrics": "A phase's hyperparameters and a table of its metrics (all, or those named).",
    "look_at_plot": "A picture: the training of the whole path from the base to a phase; of a running phase, its "
    "validation over the best strategy's.",
    "launch_phase": "Train a phase from a finished phase or from the base n0. `changes` lists only what differs from "
    "the parent. The result comes when there is something to decide, or when the phase ends.",
    "keep_training": "Let the running phase go on.",
    "stop_phase": "End the running phase now; its weights are not kept.",
    "finish": "End the search before its budget is used up.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A call that does something: the phase to launch, or why to finish, stop or go on."""

    kind: Literal["launch_phase", "finish", "keep_training", "stop_phase"]
    reason: str = ""
    parent: NodeId = ROOT
    proposal: Proposal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What a call is carried out on: the tree as the agent knows it, and the phase that runs, if one does.

    `may_start` refuses a parent in one line; `rows` and `curve` are the running phase's so far.
    """

    tree: Tree
    rows_of: Callable[[NodeId], Sequence[MetricRow]]
    check_extra: ExtraCheck
    may_start: Callable[[NodeId, tuple[str, ...]], str]
    running: NodeId = ""
    curve: tuple[EvalPoint, ...] = ()

    @property
    def acts(self) -> tuple[str, ...]:
        return WATCHING if self.running else STARTING


def tool_specs(*, check_ins: bool, pictures: bool) -> tuple[dict[str, Any], ...]:
    """The tools of a run, the same in every call."""
    left_out = {*(() if check_ins else WATCHING), *(() if pictures else ("look_at_plot",))}
    specs = {name: dict(model.model_json_schema()) for name, model in _models().items()} | {"launch_phase": _launch()}
    return tuple(
        {"name": name, "description": words, "parameters": specs[name]}
        for name, words in WORDS.items()
        if name not in left_out
    )


def carried_out(asked: Asked, desk: Desk, calls: tuple[str, ...], *, alone: bool) -> Answer | Act:
    """The result of a call, or the act it asks for. `calls` are the digests of the decision's model calls so far."""
    name = asked.call.name
    if name not in WORDS:
        return Answer(f"error: there is no tool {name[:60]!r}: {did_you_mean(name[:60], WORDS)}")
    if asked.problem:
        return Answer(f"error: {asked.problem}")
    if name in (*STARTING, *WATCHING) and name not in desk.acts:
        return Answer(f"error: {_state(desk)}: call {' or '.join(desk.acts)}")
    if name in desk.acts and not alone:
        return Answer(f"error: nothing was done: call {name} alone, once you know what the other calls gave")
    found = _launched(asked.arguments, desk, calls) if name == "launch_phase" else _simple(name, asked.arguments, desk)
    return Answer(f"error: {found.problem}") if isinstance(found, Misfit) else found


def _state(desk: Desk) -> str:
    return f"{desk.running} is running" if desk.running else "no phase is running"


def _launched(arguments: Mapping[str, Any], desk: Desk, calls: tuple[str, ...]) -> Act | Misfit:
    parent = arguments.get("parent")
    problem = _unknown(parent, desk) or desk.may_start(str(parent), calls)
    if problem:
        return Misfit(f"parent: {problem}")
    node = str(parent)
    ev = evidence_of(desk.tree, node, desk.tree.config.space)
    proposal = parse_proposal(json.dumps({k: v for k, v in arguments.items() if k != "parent"}), ev, desk.check_extra)
    if isinstance(proposal, Misfit):
        return proposal
    signed = replace(proposal, proposer="skill")
    return Act(
        kind="launch_phase", reason=_one_line(signed.rationale or signed.diagnosis), parent=node, proposal=signed
    )


def _unknown(node: object, desk: Desk) -> str:
    if not isinstance(node, str) or node not in desk.tree.nodes:
        return f"no phase {str(node)[:60]!r}: {did_you_mean(str(node)[:60], desk.tree.nodes)}"
    return ""


def _simple(name: str, arguments: Mapping[str, Any], desk: Desk) -> Answer | Act | Misfit:
    from pydantic import ValidationError

    try:
        given: Any = _models()[name].model_validate(arguments)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return Misfit(f"{'.'.join(map(str, first['loc'])) or name}: {first['msg']}")
    match name:
        case "finish" if len(desk.tree.nodes) < 2:
            return Misfit("nothing was trained yet: launch at least one phase")
        case "finish" | "keep_training" | "stop_phase":
            return Act(kind=name, reason=_one_line(given.reason))
    if problem := _unknown(given.node, desk):
        return Misfit(problem)
    return _looked(given.node, desk) if name == "look_at_plot" else _read(given.node, given.metrics, desk)


def _looked(node: NodeId, desk: Desk) -> Answer | Misfit:
    if node == ROOT:
        return Misfit(f"{ROOT} is the base model: it has no training to look at")
    if node == desk.running:
        image = Image(
            overlay_png(desk.tree, node, desk.curve), f"validation of {node} over the best completed strategy"
        )
    else:
        image = Image(path_png(desk.tree, node, desk.rows_of), f"training of the path to {node}")
    return Answer("the picture follows", (image,))


def _read(node: NodeId, names: list[str] | None, desk: Desk) -> Answer | Misfit:
    wrong = next((name for name in names or () if name not in METRICS), None)
    if wrong is not None:
        return Misfit(f"no metric {wrong[:60]!r}: {did_you_mean(wrong[:60], METRICS)}")
    running = (tuple(desk.rows_of(node)), desk.curve) if node == desk.running else None
    return Answer(metrics_text(desk.tree, node, names or (), running))


def _one_line(text: str) -> str:
    flat = " ".join(text.split()) or "no reason given"
    return flat if len(flat) <= MAX_REASON else flat[: MAX_REASON - 1] + "…"


def _launch() -> dict[str, Any]:
    """A proposal's schema, with the parent the agent chooses itself."""
    schema = proposal_schema()
    properties = {"parent": {"type": "string"}, **schema["properties"]}
    return {**schema, "properties": properties, "required": ["parent", *schema["required"]]}


def _no_titles(schema: dict[str, Any]) -> None:
    schema.pop("title", None)
    for each in schema.get("properties", {}).values():
        each.pop("title", None)


@functools.cache
def _models() -> dict[str, Any]:
    """The arguments of the plain tools; pydantic is imported here, at the edge."""
    from pydantic import BaseModel, ConfigDict

    strict = ConfigDict(extra="forbid", json_schema_extra=_no_titles)

    class Look(BaseModel):
        model_config = strict
        node: str

    class Read(BaseModel):
        model_config = strict
        node: str
        metrics: list[str] | None

    class Why(BaseModel):
        model_config = strict
        reason: str

    return {
        "read_metrics": Read,
        "look_at_plot": Look,
        **dict.fromkeys(("finish", *WATCHING), Why),
    }
