"""The launch check: what the live trainer does, compared with what the phase asked for.

Configurations get lost between layers (a renamed field, a default that wins, a reference model reloaded from the wrong
path). So the values are read back from the trainer that is about to make its first step, not from the configuration.
"""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from llmzero.domain.errors import PhaseError
from llmzero.domain.jobs import Job
from llmzero.trainers.trl.config import batch_sizes, expected_lr
from llmzero.trainers.trl.weights import differing

PLAIN = (
    "kl_coef",
    "temperature",
    "top_p",
    "clip_low",
    "clip_high",
    "group_size",
    "max_completion_tokens",
    "updates_per_batch",
    "loss_type",
    "advantage_norm",
    "entropy_coef",
    "max_grad_norm",
    "mask_truncated",
)
"""Hyperparameters compared as they are."""


def check_launch(trainer: Any, job: Job, *, start: Path, anchor: Path) -> None:
    """Raises PhaseError(mismatch) on the first value that is not the phase's. Call before the first step."""
    found = effective(trainer, job, start=start, anchor=anchor)
    for name, value in asked(job).items():
        if not same(value, found[name]):
            raise PhaseError("mismatch", f"{name}: asked {value!r}, trainer has {found[name]!r}")


def asked(job: Job) -> dict[str, object]:
    """What must hold at the first step, by our own names."""
    hyper, steps = job.phase.hyper, job.phase.steps
    whole, _, _ = batch_sizes(hyper)
    mu = hyper.updates_per_batch
    return {
        **{name: getattr(hyper, name) for name in PLAIN},
        **{f"extra.{name}": value for name, value in hyper.extra.items()},
        "learning_rate at the first update": expected_lr(hyper, update=0, updates=steps * mu),
        "optimizer updates": steps * mu,
        "completions per step": whole,
        "sampling (temperature, top_p, max_completion_tokens)": _sampling_asked(job),
        "seed": job.phase.seed,
        "optimizer state": "fresh",
        "start weights": "identical",
        "kl anchor": "identical" if hyper.kl_coef else "none",
    }


def effective(trainer: Any, job: Job, *, start: Path, anchor: Path) -> dict[str, object]:
    """The same names, read from the live trainer."""
    args = trainer.args
    return {
        "kl_coef": trainer.beta,
        "temperature": trainer.temperature,
        "top_p": trainer.top_p,
        "clip_low": trainer.epsilon_low,
        "clip_high": trainer.epsilon_high,
        "group_size": trainer.num_generations,
        "max_completion_tokens": trainer.max_completion_length,
        "updates_per_batch": args.steps_per_generation * trainer.num_iterations / args.gradient_accumulation_steps,
        "loss_type": trainer.loss_type,
        "advantage_norm": trainer.scale_rewards,
        "entropy_coef": trainer.entropy_coef,
        "max_grad_norm": args.max_grad_norm,
        "mask_truncated": trainer.mask_truncated_completions,
        **{f"extra.{name}": _extra(args, name, value) for name, value in job.phase.hyper.extra.items()},
        "learning_rate at the first update": trainer.optimizer.param_groups[0]["lr"],
        "optimizer updates": trainer.state.max_steps,
        "completions per step": args.per_device_train_batch_size * args.steps_per_generation * args.world_size,
        "sampling (temperature, top_p, max_completion_tokens)": _sampling_found(trainer, job),
        "seed": args.seed,
        "optimizer state": "fresh" if not trainer.optimizer.state and trainer.state.global_step == 0 else "used",
        "start weights": _identity(trainer.accelerator.unwrap_model(trainer.model), start),
        "kl anchor": _anchor(trainer, anchor),
    }


def _extra(args: Any, name: str, given: object) -> object:
    """A field given as JSON text is parsed by GRPOConfig: that counts as given."""
    found = getattr(args, name, None)
    return given if isinstance(found, dict) and isinstance(given, str) else found


def same(asked_value: object, found: object) -> bool:
    """Equal, numbers up to rounding; an enum equals its value."""
    numbers = (int, float)
    if isinstance(asked_value, numbers) and isinstance(found, numbers):
        return math.isclose(asked_value, found, rel_tol=1e-9, abs_tol=1e-15)
    return asked_value == getattr(found, "value", found)


def _sampling_asked(job: Job) -> tuple[object, ...]:
    hyper = job.phase.hyper
    return (float(hyper.temperature), float(hyper.top_p), hyper.max_completion_tokens)


def _sampling_found(trainer: Any, job: Job) -> tuple[object, ...]:
    """What the generation backend samples with; vLLM's is built from the trainer's own attributes."""
    if trainer.use_vllm:
        return _sampling_asked(job)
    config = trainer.generation_config
    return (float(config.temperature), float(config.top_p), config.max_new_tokens)


def _anchor(trainer: Any, anchor: Path) -> str:
    if trainer.ref_model is None:
        return "none"
    reference = trainer.accelerator.unwrap_model(trainer.ref_model)
    if reference.training:
        return "in training mode"
    return _identity(reference, anchor)


def _identity(model: Any, folder: Path) -> str:
    names = differing(model, folder)
    return f"{len(names)} tensors other than in {folder}, first {names[0]}" if names else "identical"
