"""What no search could run with, said before it begins: each setting's own range, and the search space's."""

from __future__ import annotations

import math
from pathlib import Path

from llmzero.domain.codec import to_json
from llmzero.domain.config import RunConfig
from llmzero.domain.errors import UsageError
from llmzero.domain.space import Parameter
from llmzero.profiles import llm_space, nano_space

POSITIVE: dict[str, float] = {
    "nodes": 1e6,
    "steps": 1e7,
    "workers": 256,
    "hang_after_s": 1e7,
    "eval.every": 1e7,
    "eval.samples": 1e4,
    "eval.curve_items": 1e7,
    "eval.curve_samples": 1e4,
    "eval.max_completion_tokens": 1e6,
    "eval.temperature": 10,
    "stop.patience": 1e4,
    "llm.max_completion_tokens": 1e6,
    "llm.timeout_s": 1e5,
}
"""Settings above 0, and the most that makes sense."""

NOT_NEGATIVE: dict[str, float] = {
    "hours": 1e6,
    "threads": 1024,
    "seed": 2**53,
    "eval.items": 1e7,
    "stop.grace_steps": 1e7,
    "stop.sigmas": 1e3,
    "stop.margin": 1e3,
    "llm.retries": 100,
    "llm.usd": 1e6,
    "search.exploration": 1e6,
    "search.widening_constant": 1e6,
    "search.widening_exponent": 1,
    "search.fresh_every": 1e6,
    "search.fresh_patience": 1e6,
}
"""Settings of 0 or above, and the most that makes sense."""

LEAST_HANG_S = 1.0
"""A heartbeat comes about once a second."""

PHYSICAL: dict[str, tuple[float, float]] = {
    "learning_rate": (1e-12, 1.0),
    "kl_coef": (0.0, 10.0),
    "temperature": (0.01, 5.0),
    "top_p": (0.01, 1.0),
    "clip_low": (0.0, 1.0),
    "clip_high": (0.0, 10.0),
    "group_size": (2, 4096),
    "prompts_per_step": (1, 65536),
    "max_completion_tokens": (1, 1_000_000),
    "updates_per_batch": (1, 64),
    "entropy_coef": (0.0, 1.0),
    "max_grad_norm": (1e-6, 1000.0),
    "warmup_steps": (0, 100_000),
}
"""Values a trainer can train with at all: bounds of a search space lie within."""


def within_limits(config: RunConfig) -> RunConfig:
    """The same configuration; raises UsageError with one line naming the first setting that is wrong."""
    for name, most in POSITIVE.items():
        _check(name, _value(config, name), most, least="above 0", holds=lambda v: v > 0)
    for name, most in NOT_NEGATIVE.items():
        _check(name, _value(config, name), most, least="a finite number, 0 or above", holds=lambda v: v >= 0)
    if config.hang_after_s < LEAST_HANG_S:
        raise UsageError(f"hang_after_s = {config.hang_after_s:g}: must be at least {LEAST_HANG_S:g}")
    if config.optimizer != "reset":
        raise UsageError("optimizer = 'keep': phases start with a fresh optimizer; valid: reset")
    _within_space(config)
    _llm_is_sound(config)
    _skill_is_sound(config)
    return config


def _value(config: RunConfig, name: str) -> float:
    value: object = config
    for part in name.split("."):
        value = getattr(value, part)
    assert isinstance(value, int | float)
    return value


def _check(name: str, value: float, most: float, *, least: str, holds: object) -> None:
    assert callable(holds)
    if not holds(value) or value == math.inf:
        raise UsageError(f"{name} = {_short(value)}: must be {least}")
    if value > most:
        raise UsageError(f"{name} = {_short(value)}: must be at most {most:g}")


def _short(value: float) -> str:
    return f"{value:g}" if abs(value) < 10**15 or isinstance(value, float) else "a very large number"


def _llm_is_sound(config: RunConfig) -> None:
    llm = config.llm
    if llm.base_url and not llm.base_url.startswith(("http://", "https://")):
        raise UsageError(f"llm.base_url = {llm.base_url[:200]!r}: must begin with http:// or https://")
    if "@" in llm.base_url.partition("://")[2].partition("/")[0]:
        raise UsageError("llm.base_url: holds credentials, which would be stored; put the key into OPENAI_API_KEY")
    if llm.usd and llm.model and llm.model not in llm.prices:
        raise UsageError(
            f"llm.usd = {llm.usd:g}: a ceiling needs the price of {llm.model}: "
            f'[llm.prices."{llm.model}"] with prompt_usd and completion_usd per million tokens'
        )
    if config.prompts and not Path(config.prompts).is_dir():
        raise UsageError(f"prompts {config.prompts[:200]!r}: no such folder")


def _skill_is_sound(config: RunConfig) -> None:
    """The skill agent's conversation has one order, so it trains one phase at a time; its stopper is part of it."""
    if config.agent == "skill" and config.workers > 1:
        raise UsageError(f"workers = {config.workers}: --agent skill trains one phase at a time: give --workers 1")
    if config.stopper == "skill" and config.agent != "skill":
        raise UsageError("--stopper skill is the skill agent's own judgement: it needs --agent skill")


def _within_space(config: RunConfig) -> None:
    flat = config.hyper.flat()
    known = {p.name: p for p in (nano_space() if config.model == "nano" else llm_space()).parameters}
    for parameter in {**known, **{p.name: p for p in config.space.parameters}}.values():
        value = flat[parameter.name]
        if not parameter.holds(value):
            bounds = parameter.choices or f"[{parameter.low:g}, {parameter.high:g}]"
            raise UsageError(f"hyper.{parameter.name} = {value!r}: outside the search space {bounds}")


def check_range(parameter: Parameter, changed: Parameter, where: str) -> None:
    """UsageError where a user's bounds of a dimension hold nothing a trainer could train with."""
    if changed.kind == "choice":
        known = [to_json(choice) for choice in parameter.choices]
        wrong = [c for c in changed.choices if not any(c == k and type(c) is type(k) for k in known)]
        if wrong or not changed.choices:
            found = f"{wrong[0]!r} is no choice" if wrong else "choices is empty"
            raise UsageError(f"{where}: {found}; valid: {', '.join(map(str, known))}")
        return
    low, high = changed.low, changed.high
    if not (math.isfinite(low) and math.isfinite(high)) or low > high or (changed.kind == "log" and low <= 0):
        raise UsageError(f"{where}: low {low:g} and high {high:g} are no range")
    least, most = PHYSICAL[parameter.name]
    if low < least or high > most:
        raise UsageError(f"{where}: low {low:g} and high {high:g} must lie in [{least:g}, {most:g}]")
    if changed.kind == "int":
        _check_whole(changed, where)


def _check_whole(changed: Parameter, where: str) -> None:
    step = changed.multiple_of
    if changed.low != int(changed.low) or changed.high != int(changed.high):
        raise UsageError(f"{where}: low and high must be whole numbers")
    if step < 1 or changed.high // step < math.ceil(changed.low / step):
        raise UsageError(f"{where}: no multiple of {step} lies between {changed.low:g} and {changed.high:g}")
