"""Where a search begins and what it may touch, for the embedded bases and for real LLMs. Data; `settings` picks one."""

from __future__ import annotations

from typing import Any

from llmzero.domain.space import Parameter, SearchSpace

NANO_HYPER: dict[str, Any] = {"learning_rate": 1e-4, "kl_coef": 0.02, "max_completion_tokens": 32}
"""Where a search on an embedded base begins; every other hyperparameter has HyperParams' own default."""

NANO_WORKERS = 2
"""Phases of an embedded base keep one core busy, no more; not read from the machine, since it shapes the tree."""

LLM_EVAL: dict[str, Any] = {"max_completion_tokens": 1024, "samples": 4, "curve_samples": 1, "temperature": 1.0}
"""Evaluation of a real LLM: longer answers, fewer samples inside a phase."""


def nano_space(max_tokens: int = 64) -> SearchSpace:
    """Bounds for the embedded sub-million-parameter bases, whose learning rates are far above an LLM's."""
    return SearchSpace(
        _common(lr=(1e-5, 1e-3), kl=(0.0, 0.5), tokens=(8, max_tokens, 4), groups=(4, 16), prompts=(4, 12))
    )


def llm_space(max_tokens: int = 4096) -> SearchSpace:
    """Bounds for real LLMs; they contain every published multi-stage GRPO schedule known to us."""
    return SearchSpace(
        _common(lr=(1e-8, 1e-4), kl=(0.0, 0.2), tokens=(64, max_tokens, 64), groups=(4, 64), prompts=(4, 512))
    )


def _common(
    *,
    lr: tuple[float, float],
    kl: tuple[float, float],
    tokens: tuple[int, int, int],
    groups: tuple[int, int],
    prompts: tuple[int, int],
) -> tuple[Parameter, ...]:
    return (
        Parameter(name="learning_rate", kind="log", low=lr[0], high=lr[1]),
        Parameter(name="kl_coef", kind="linear", low=kl[0], high=kl[1]),
        Parameter(name="temperature", kind="linear", low=0.4, high=1.6),
        Parameter(name="top_p", kind="linear", low=0.5, high=1.0),
        Parameter(name="clip_low", kind="linear", low=0.05, high=0.4),
        Parameter(name="clip_high", kind="linear", low=0.05, high=0.6),
        Parameter(name="group_size", kind="int", low=groups[0], high=groups[1], multiple_of=2),
        Parameter(name="prompts_per_step", kind="int", low=prompts[0], high=prompts[1], multiple_of=2),
        Parameter(name="max_completion_tokens", kind="int", low=tokens[0], high=tokens[1], multiple_of=tokens[2]),
        Parameter(name="updates_per_batch", kind="int", low=1, high=4),
        Parameter(name="loss_type", kind="choice", choices=("grpo", "dapo", "dr_grpo", "bnpo")),
        Parameter(name="advantage_norm", kind="choice", choices=("group", "batch", "none")),
        Parameter(name="entropy_coef", kind="linear", low=0.0, high=0.02),
        Parameter(name="max_grad_norm", kind="linear", low=0.05, high=2.0),
        Parameter(name="lr_schedule", kind="choice", choices=("constant", "linear", "cosine")),
        Parameter(name="warmup_steps", kind="int", low=0, high=20),
        Parameter(name="mask_truncated", kind="choice", choices=(False, True)),
    )
