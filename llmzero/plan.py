"""The dry run: what a search would do and roughly need, without training anything.

Times come from an earlier run of the same task and model where there is one, else from a rule of thumb whose numbers
are measured on the embedded base and scaled by parameters and tokens; they are estimates and say so.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmzero.domain.config import RunConfig
from llmzero.domain.errors import UsageError
from llmzero.domain.examples import Split
from llmzero.domain.types import HyperParams

FLOAT_BYTES = 4
STATE_COPIES = 4
"""Weights, gradients and Adam's two moments, all float32; the KL reference adds one more copy of the weights."""

LAUNCH_S_PER_TOKEN_STEP = 0.006
"""Seconds per decoding step that no arithmetic explains (Python and kernel launches); the embedded base's own cost."""

RULE_OF_THUMB = "rule of thumb for two CPU cores, within a factor of 3; a GPU is much faster"

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit on a header."""

CPU_FLOPS = 2e10
"""Sustained float32 operations per second assumed for two CPU cores."""


def make_plan(
    config: RunConfig,
    *,
    base: str,
    shape: Mapping[str, int | None],
    sizes: Mapping[Split, int],
    past: tuple[str, float] | None,
    llm: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The plan as plain JSON. `past` is (run, seconds per step) of an earlier run of the same task and model, `llm` the
    forecast of the agents' model calls (None: they make none)."""
    step_s = past[1] if past else estimate_step_s(config.hyper, shape["parameters"])
    eval_s = 0.0 if past else estimate_eval_s(config, shape["parameters"], sizes.get("validation", 0))
    per_phase = None if step_s is None else config.steps * step_s + (eval_s or 0.0)
    return {
        "task": config.task,
        "data": config.data,
        "items": dict(sizes),
        "model": config.model,
        "weights": base,
        "parameters": shape["parameters"],
        "agent": config.agent,
        "stopper": config.stopper,
        "budget": {"nodes": config.nodes, "hours": config.hours, "steps_per_phase": config.steps},
        "kl_anchor": config.kl_anchor,
        "keep": config.keep,
        "space": [_dimension(config, name) for name in config.space.names],
        "expected": {
            "phase_s": None if per_phase is None else round(per_phase, 1),
            "search_s": None if per_phase is None else round(per_phase * config.nodes / config.workers, 1),
            "memory_mb": _memory_mb(config, shape),
            "basis": f"run {past[0]}" if past else RULE_OF_THUMB,
        },
        "llm": None if llm is None else dict(llm),
    }


def _dimension(config: RunConfig, name: str) -> dict[str, Any]:
    parameter = config.space[name]
    bounds = list(parameter.choices) if parameter.kind == "choice" else [parameter.low, parameter.high]
    return {"name": name, "kind": parameter.kind, "bounds": bounds, "start": config.hyper.flat()[name]}


def folder_shape(folder: Path) -> dict[str, int | None]:
    """Parameters and vocabulary of a model folder, read from its headers only; UsageError where they are broken."""
    try:
        total = sum(_tensor_elements(file) for file in folder.glob("*.safetensors"))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        vocabulary = config.get("vocab_size")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, MemoryError) as error:
        raise UsageError(
            f"model {folder}: config.json or the *.safetensors header cannot be read: {type(error).__name__}: {error}"
        ) from None
    return {"parameters": total or None, "vocabulary": vocabulary if isinstance(vocabulary, int) else None}


def _tensor_elements(file: Path) -> int:
    """Elements in a safetensors file, from its header (8 bytes of length, then JSON)."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > MAX_HEADER_BYTES:
            raise ValueError(f"{file.name}: a header of {length} bytes is no safetensors header")
        header = json.loads(stream.read(length))
    return sum(math.prod(t["shape"]) for name, t in header.items() if name != "__metadata__")


def estimate_step_s(hyper: HyperParams, parameters: int | None) -> float | None:
    """Seconds of one step: decoding plus 2 FLOPs a parameter and token to generate, 6 to train, 2 for the reference."""
    if parameters is None:
        return None
    tokens = hyper.prompts_per_step * hyper.group_size * hyper.max_completion_tokens
    flops_per_token = 2 + 6 * hyper.updates_per_batch + (2 if hyper.kl_coef else 0)
    return hyper.max_completion_tokens * LAUNCH_S_PER_TOKEN_STEP + tokens * parameters * flops_per_token / CPU_FLOPS


def estimate_eval_s(config: RunConfig, parameters: int | None, validation: int) -> float | None:
    """Seconds of all evaluations of one phase, its final score included."""
    if parameters is None:
        return None
    points = config.steps // config.eval.every + 1
    curve = min(config.eval.curve_items, validation) * config.eval.curve_samples
    full = (config.eval.items or validation) * config.eval.samples
    tokens = (points * curve + full) * config.eval.max_completion_tokens
    decoding = (points + 1) * config.eval.max_completion_tokens * LAUNCH_S_PER_TOKEN_STEP
    return decoding + tokens * parameters * 2 / CPU_FLOPS


def _memory_mb(config: RunConfig, shape: Mapping[str, int | None]) -> int | None:
    """Megabytes of one worker: training state, and three float copies of a step's logits."""
    parameters, vocabulary = shape["parameters"], shape["vocabulary"]
    if parameters is None or vocabulary is None:
        return None
    copies = STATE_COPIES + (1 if config.hyper.kl_coef else 0)
    sequences = config.hyper.prompts_per_step * config.hyper.group_size
    logits = 3 * sequences * config.hyper.max_completion_tokens * vocabulary
    runtime_mb = 700
    return runtime_mb + round((copies * parameters + logits) * FLOAT_BYTES / 1e6)


def plan_text(plan: Mapping[str, Any]) -> str:
    """The plan for a terminal."""
    expected, budget, items = plan["expected"], plan["budget"], plan["items"]
    known = "unknown until loaded"
    parameters = f"{plan['parameters']:,} parameters" if plan["parameters"] else known
    lines = [
        "plan (nothing is trained)",
        f"  task      {plan['task']}, data {plan['data']}: "
        + ", ".join(f"{count} {split}" for split, count in items.items()),
        f"  model     {plan['model']}: {parameters}, {plan['weights']}",
        f"  search    {budget['nodes']} nodes x {budget['steps_per_phase']} steps, "
        f"{budget['hours'] or 'no limit of'} worker hours, proposer {plan['agent']}, stopper {plan['stopper']}",
        f"  phases    KL anchor {plan['kl_anchor']}, checkpoint kept: {plan['keep']}, optimizer fresh",
        f"  expected  {_seconds(expected['phase_s'])} a phase, {_seconds(expected['search_s'])} the search "
        f"({expected['basis']}); memory {expected['memory_mb'] or '?'} MB a worker",
        *_llm_lines(plan["llm"]),
        "  space",
    ]
    for row in plan["space"]:
        bounds = (
            " | ".join(map(str, row["bounds"])) if row["kind"] == "choice" else "{:g} .. {:g}".format(*row["bounds"])
        )
        lines.append(
            f"    {row['name']:<22} {row['start']!s:<8} {bounds}" + ("  (log)" if row["kind"] == "log" else "")
        )
    return "\n".join(lines)


def _llm_lines(llm: Mapping[str, Any] | None) -> list[str]:
    """What the agents' model calls will take, or that there are none."""
    if llm is None:
        return ["  calls     none: no agent asks a language model"]
    indent = " " * 12
    lines = [f"  calls     {llm['model']} at {llm['endpoint']}"]
    if llm["by_agent"]:
        worst, ceiling = llm["worst"], llm["ceiling_usd"]
        end = f"; no more than the ceiling of ${ceiling:g}" if ceiling and (worst["usd"] or 0) > ceiling else ""
        lines += [
            f"{indent}expected {_expected_words(llm['expected'])}",
            f"{indent}at worst {_worst_words(worst)}{end}",
        ]
        if worst["usd"] is None:
            price = f'[llm.prices."{llm["model"]}"] with prompt_usd and completion_usd per million tokens'
            lines.append(f"{indent}dollars unknown: no price of this model; give {price}")
        lines.append(f"{indent}{llm['basis']}")
    return [*lines, *(f"{indent}the {name} agent's calls are not forecast" for name in llm["not_forecast"])]


def _expected_words(told: Mapping[str, Any]) -> str:
    """`28 calls, 260,000 (213,000 the same in every call) + 9,000 tokens, $0.35 ($0.12 with prompt caching)`"""
    cached = "" if told["usd_cached"] is None else f" (${told['usd_cached']:.2f} with prompt caching)"
    usd = "" if told["usd"] is None else f", ${told['usd']:.2f}{cached}"
    same = f" ({told['same_tokens']:,} the same in every call)"
    return f"{told['calls']} calls, {told['prompt_tokens']:,}{same} + {told['completion_tokens']:,} tokens{usd}"


def _worst_words(told: Mapping[str, Any]) -> str:
    usd = "" if told["usd"] is None else f", ${told['usd']:.2f}"
    tokens = f"{told['prompt_tokens']:,} + {told['completion_tokens']:,} tokens"
    return f"{told['calls']} calls, {told['tries']} tries, {tokens}{usd}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "unknown time"
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"
