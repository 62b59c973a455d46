"""A model's words -> a proposal or a verdict inside the space, or one line that says what is wrong with them.

Nothing a model says does anything but set typed values: unknown names are refused with the nearest ones, values outside
the hard bounds are clamped by the space's own rule and the clamp is noted.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llmzero.agents.evidence import Evidence
from llmzero.agents.moves import changes_something, tried
from llmzero.domain.errors import UsageError, did_you_mean
from llmzero.domain.types import Change, HyperParams, Proposal, Scalar

MAX_STEPS_FACTOR = 4
"""A phase may be at most this many times as long as the configured one."""
MAX_TEXT = 600
"""Characters kept of any one text of a reply."""

ExtraCheck = Callable[[HyperParams], None]
"""Raises UsageError where the trainer does not have a field of `extra`, or not with this value."""


def _no_titles(schema: dict[str, Any]) -> None:
    schema.pop("title", None)
    for each in schema.get("properties", {}).values():
        each.pop("title", None)


@functools.cache
def _models() -> tuple[Any, Any]:
    """The two reply models; pydantic is imported here, at the edge."""
    from pydantic import BaseModel, ConfigDict

    strict = ConfigDict(extra="forbid", json_schema_extra=_no_titles)

    class ChangeReply(BaseModel):
        model_config = strict
        parameter: str
        value: float | int | bool | str
        reason: str

    class ProposalReply(BaseModel):
        model_config = strict
        pathology: str
        diagnosis: str
        evidence: list[str]
        changes: list[ChangeReply]
        rationale: str
        steps: int | None
        kl_anchor: Literal["base", "parent"] | None
        expected_effect: str
        confidence: float

    class VerdictReply(BaseModel):
        model_config = strict
        action: Literal["continue", "stop"]
        reason: str

    return ProposalReply, VerdictReply


def proposal_schema() -> dict[str, Any]:
    """The JSON schema of a proposal, in the form strict endpoints want: closed objects, every property required."""
    return dict(_models()[0].model_json_schema())


def verdict_schema() -> dict[str, Any]:
    return dict(_models()[1].model_json_schema())


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a reply cannot be used, for the model to read."""

    problem: str


def parse_proposal(text: str, ev: Evidence, check_extra: ExtraCheck) -> Proposal | Misfit:
    """The proposal a reply asks for as a child of `ev`'s node, clamped into the space."""
    found = _validated(text, 0)
    if isinstance(found, Misfit):
        return found
    try:
        changes, notes = _changes(found.changes, ev, check_extra)
    except UsageError as error:
        return Misfit(str(error))
    steps, step_notes = _steps(found.steps, ev)
    proposal = Proposal(
        proposer="llm",
        pathology=_short(found.pathology, 60) or "unnamed",
        diagnosis=_short(found.diagnosis),
        evidence=tuple(_short(line, 300) for line in found.evidence[:8]),
        changes=changes,
        rationale=_short(found.rationale),
        steps=steps,
        kl_anchor=found.kl_anchor,
        expected=_short(found.expected_effect, 300),
        confidence=min(1.0, max(0.0, found.confidence)) if math.isfinite(found.confidence) else None,
        notes=(*notes, *step_notes),
    )
    return _refused(ev, proposal) or proposal


def parse_verdict(text: str) -> tuple[Literal["continue", "stop"], str] | Misfit:
    """(action, reason) of a stopper's reply."""
    found = _validated(text, 1)
    return found if isinstance(found, Misfit) else (found.action, _short(found.reason, 400))


def _validated(text: str, which: int) -> Any:
    from pydantic import ValidationError

    value = _json_in(text)
    if value is None:
        return Misfit("the reply is not one JSON object")
    try:
        return _models()[which].model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "reply"
        return Misfit(f"{where}: {first['msg']} ({error.error_count()} problems in all)")


def _json_in(text: str) -> Mapping[str, Any] | None:
    """The JSON object of a reply: bare, in a code fence, or after a reasoning block."""
    bare = re.sub(r"<think>.*?</think>", "", text, flags=re.DOTALL).strip()
    fenced = re.search(r"```(?:json)?\s*(\{.*\})\s*```", bare, flags=re.DOTALL)
    for candidate in (bare, fenced[1] if fenced else "", bare[bare.find("{") : bare.rfind("}") + 1]):
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def _changes(asked: list[Any], ev: Evidence, check_extra: ExtraCheck) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Changes with values in bounds, and notes of what was clamped; one that changes nothing is left out."""
    kept: list[Change] = []
    notes: list[str] = []
    seen: set[str] = set()
    for each in asked:
        name = each.parameter.strip()
        if name in seen:
            raise UsageError(f"{name} is changed twice")
        seen.add(name)
        value, note = _value(name, each.value, ev, check_extra)
        notes += note
        if value != ev.hyper.flat().get(name):
            kept.append(Change(field=name, value=value, reason=_short(each.reason, 300)))
    return tuple(kept), tuple(notes)


def _value(name: str, given: Any, ev: Evidence, check_extra: ExtraCheck) -> tuple[Scalar, tuple[str, ...]]:
    if name in ev.space.names:
        parameter = ev.space[name]
        if parameter.kind != "choice" and isinstance(given, str):
            given = _number(given)
        inside, notes = ev.space.clamp({name: given})
        return inside[name], notes
    own = set(HyperParams().flat())
    if name in own:
        raise UsageError(f"{name} is fixed in this search; tunable: {', '.join(ev.space.names)}")
    if name in ("steps", "kl_anchor"):
        raise UsageError(f"{name} is no change of a parameter: use the reply's own field {name}")
    if isinstance(given, float) and not math.isfinite(given):
        raise UsageError(f"{name}={given} is not a finite number")
    try:
        check_extra(ev.hyper.with_values({name: given}))
    except UsageError as error:
        raise UsageError(f"{error}; in the search space: {did_you_mean(name, ev.space.names)}") from None
    return given, ()


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _steps(asked: int | None, ev: Evidence) -> tuple[int | None, tuple[str, ...]]:
    """Steps of the phase: at least one evaluation, at most MAX_STEPS_FACTOR times the configured number."""
    config = ev.tree.config
    if asked is None or asked == config.steps:
        return None, ()
    low, high = min(config.eval.every, config.steps), MAX_STEPS_FACTOR * config.steps
    inside = min(max(asked, low), high)
    return inside, (f"steps: {asked} clamped to {inside}",) if inside != asked else ()


def _refused(ev: Evidence, proposal: Proposal) -> Misfit | None:
    if tried(ev, proposal):
        return Misfit("a sibling already is exactly this phase; propose another one")
    if ev.node.phase.steps and not changes_something(ev, proposal):
        return Misfit("nothing changes against the parent; change at least one parameter, the steps or the KL anchor")
    return None


def _short(text: str, limit: int = MAX_TEXT) -> str:
    flat = " ".join(str(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
