"""The algebra of proposals: relative moves of one hyperparameter, options made of several, options as proposals."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmzero.agents.evidence import Evidence
from llmzero.domain.errors import UsageError
from llmzero.domain.space import Parameter, SearchSpace, settle
from llmzero.domain.strategy import diff
from llmzero.domain.types import Change, FailureKind, HyperParams, KlAnchor, Proposal, Scalar

NEAR_FACTOR = 3.0
"""A draw near known values moves a log parameter by at most this factor either way."""
NEAR_SHARE = 0.25
"""... and a linear one by at most this share of its range."""
INERT_AT_ONE_UPDATE = ("clip_low", "clip_high")
"""The ratio is 1 while each batch is used once: these fields do nothing then."""


def tidy(value: float) -> float:
    """Three significant digits: enough for a hyperparameter, and equal values stay equal."""
    return float(f"{value:.3g}")


def put(field: str, value: Scalar, reason: str) -> Change:
    """`field` set to `value`."""
    return Change(field=field, value=value, reason=reason)


def scale(ev: Evidence, field: str, factor: float, reason: str) -> Change:
    """`field` times `factor`; a whole number moves by at least one of its steps."""
    old = _number(ev, field)
    parameter = ev.parameter(field)
    if parameter is None or parameter.kind != "int":
        return put(field, tidy(old * factor), reason)
    step = parameter.multiple_of
    whole = round(old * factor / step) * step
    return put(field, int(max(whole, old + step) if factor > 1 else min(whole, old - step)), reason)


def shift(ev: Evidence, field: str, delta: float, reason: str) -> Change:
    """`field` plus `delta`."""
    return put(field, tidy(_number(ev, field) + delta), reason)


def kl_up(ev: Evidence, factor: float, reason: str) -> Change:
    """A stronger KL term; from (nearly) none it starts at 4 % of the space's bound."""
    return put("kl_coef", tidy(max(ev.hyper.kl_coef * factor, 0.04 * _high(ev, "kl_coef"))), reason)


def kl_down(ev: Evidence, factor: float, reason: str) -> Change:
    """A weaker KL term; under 0.2 % of the space's bound it is switched off."""
    value = ev.hyper.kl_coef * factor
    return put("kl_coef", tidy(value) if value > 0.002 * _high(ev, "kl_coef") else 0.0, reason)


def _number(ev: Evidence, field: str) -> float:
    value = ev.hyper.flat()[field]
    return float(value) if isinstance(value, int | float) else 0.0


def _high(ev: Evidence, field: str) -> float:
    parameter = ev.parameter(field)
    return parameter.high if parameter else 0.0


def as_proposal(ev: Evidence, option: Option, proposer: str) -> Proposal:
    """The option inside the space: clamped, without what changes nothing, filled up to its promise from its reserve."""
    kept: dict[str, Change] = {}
    notes: list[str] = []
    inert = _inert_fields(ev, option)
    for index, change in enumerate((*option.changes, *option.reserve)):
        if (
            change.field in kept
            or change.field in inert
            or (index >= len(option.changes) and len(kept) >= option.promise)
        ):
            continue
        fitted, note = _fit(ev, change)
        if fitted is not None:
            kept[change.field] = fitted
            notes += note
    return Proposal(
        proposer=proposer,
        pathology=option.pathology,
        diagnosis=option.diagnosis,
        evidence=option.evidence,
        basis=option.basis,
        changes=tuple(kept.values()),
        rationale=option.rationale,
        steps=option.steps,
        kl_anchor=option.kl_anchor,
        expected=option.expected,
        confidence=option.confidence,
        notes=tuple(notes),
    )


def _fit(ev: Evidence, change: Change) -> tuple[Change | None, tuple[str, ...]]:
    if change.field not in ev.space.names:
        return None, ()
    try:
        inside, notes = ev.space.clamp({change.field: change.value})
    except UsageError:
        return None, ()
    value = inside[change.field]
    if value == ev.hyper.flat().get(change.field):
        return None, ()
    return replace(change, value=value), notes


def can_move(ev: Evidence, change: Change) -> bool:
    """Whether a change changes anything inside the space."""
    return _fit(ev, change)[0] is not None


def _inert_fields(ev: Evidence, option: Option) -> tuple[str, ...]:
    """Fields that would do nothing in the phase the option leads to."""
    asked = (c.value for c in option.changes if c.field == "updates_per_batch" and c.field in ev.space.names)
    return INERT_AT_ONE_UPDATE if next(asked, ev.hyper.updates_per_batch) == 1 else ()


def settings(ev: Evidence, proposal: Proposal) -> tuple[HyperParams, int, KlAnchor]:
    """What a proposal becomes: settled hyperparameters, steps, KL anchor. Two equal ones are the same phase."""
    hyper = settle(ev.hyper.with_values({c.field: c.value for c in proposal.changes}))[0]
    return _told_apart(hyper, proposal.steps or ev.tree.config.steps, proposal.kl_anchor or ev.tree.config.kl_anchor)


def _told_apart(hyper: HyperParams, steps: int, anchor: KlAnchor) -> tuple[HyperParams, int, KlAnchor]:
    """What tells phases from one start apart: without a KL term the anchor does nothing."""
    return hyper, steps, anchor if hyper.kl_coef else "base"


def tried(ev: Evidence, proposal: Proposal) -> bool:
    """Whether a child of this node already is the phase this proposal asks for."""
    wanted = settings(ev, proposal)
    return any(_told_apart(c.phase.hyper, c.phase.steps, c.phase.kl_anchor) == wanted for c in ev.children)


def changes_something(ev: Evidence, proposal: Proposal) -> bool:
    """Whether the phase would differ from its parent's own (settled values, steps or anchor)."""
    phase = ev.node.phase
    return settings(ev, proposal) != _told_apart(settle(phase.hyper)[0], phase.steps, phase.kl_anchor)


def too_big(ev: Evidence, proposal: Proposal) -> bool:
    """Whether it would need at least the tokens a step of a phase that ran out of memory."""
    failed = (n for n in ev.tree.nodes.values() if n.result and n.result.failure is FailureKind.OUT_OF_MEMORY)
    limits = [_tokens(n.phase.hyper) for n in failed]
    return bool(limits) and _tokens(settings(ev, proposal)[0]) >= min(limits)


def _tokens(hyper: HyperParams) -> int:
    return hyper.group_size * hyper.prompts_per_step * hyper.max_completion_tokens


def direction(old: HyperParams, new: HyperParams) -> dict[str, float]:
    """Signs of what changed: +1 up, -1 down for numbers; +1 under `field=value` for a choice."""
    signs: dict[str, float] = {}
    for name, before, after in diff(old, new):
        if _is_number(before) and _is_number(after):
            signs[name] = 1.0 if float(after or 0) > float(before or 0) else -1.0
        else:
            signs[f"{name}={after}"] = 1.0
    return signs


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def likeness(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Cosine of two directions, -1..1; 0 where either is empty."""
    if not one or not other:
        return 0.0
    shared = sum(sign * other.get(name, 0.0) for name, sign in one.items())
    return float(shared / (len(one) * len(other)) ** 0.5)


def draw_anywhere(rng: random.Random, parameter: Parameter, old: Scalar) -> Scalar:
    """A value from the whole dimension: log-uniform, uniform, or another choice."""
    if parameter.kind == "choice":
        return _other_choice(rng, parameter, old)
    if parameter.kind == "log":
        return tidy(parameter.low * (parameter.high / parameter.low) ** rng.random())
    value = rng.uniform(parameter.low, parameter.high)
    return round(value) if parameter.kind == "int" else tidy(value)


def draw_near(rng: random.Random, parameter: Parameter, old: Scalar) -> Scalar:
    """A value near `old`; a parameter without a number to be near to is drawn from anywhere."""
    if isinstance(old, str | bool) or old is None or parameter.kind == "choice":
        return draw_anywhere(rng, parameter, old)
    if parameter.kind == "log":
        return tidy(old * NEAR_FACTOR ** rng.uniform(-1, 1))
    reach = NEAR_SHARE * (parameter.high - parameter.low)
    value = old + rng.uniform(-reach, reach)
    return round(value) if parameter.kind == "int" else tidy(value)


def _other_choice(rng: random.Random, parameter: Parameter, old: Scalar) -> Scalar:
    others = [c for c in parameter.choices if c != old]
    return rng.choice(others) if others else old


def drawable(space: SearchSpace, hyper: HyperParams) -> tuple[Parameter, ...]:
    """The dimensions a draw may move: all but those that do nothing at the present number of updates per batch."""
    inert = INERT_AT_ONE_UPDATE if hyper.updates_per_batch == 1 else ()
    return tuple(p for p in space.parameters if p.name not in inert)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One answer to a diagnosis, before it is fitted into the space.

    `reserve` holds further changes in the same spirit, used only where fewer than `promise` of `changes` can move
    (a value already at its bound).
    """

    changes: tuple[Change, ...]
    rationale: str
    expected: str
    confidence: float
    reserve: tuple[Change, ...] = ()
    promise: int = 3
    pathology: str = ""
    diagnosis: str = ""
    evidence: tuple[str, ...] = ()
    basis: str = ""
    steps: int | None = None
    kl_anchor: KlAnchor | None = None
