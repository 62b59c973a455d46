"""HyperParams -> GRPOConfig.

Units. A *step* of ours is one batch of `prompts_per_step * group_size` completions; TRL counts optimizer steps, so
`max_steps`, `warmup_steps` and `logging_steps` are ours times `updates_per_batch`. The updates split the batch into
equal mini-batches, each used once (verl's ppo_mini_batch_size, slime's num-steps-per-rollout), and do not run over the
whole batch several times (TRL's num_iterations): the clip range acts from the second mini-batch on, and a step costs
the same however many updates it makes. With one update the policy that is trained is the one that sampled, the ratio
is 1 and the clip range inert.

A mini-batch larger than `MICRO_TOKENS` completion tokens is accumulated from equal micro-batches.

dr_grpo divides the summed loss by `max_completion_tokens`, so a phase that changes the cap also rescales loss and
grad_norm (AdamW undoes the scale, gradient clipping does not); the result's message says so.
"""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from llmzero.domain.errors import PhaseError, did_you_mean
from llmzero.domain.jobs import Job
from llmzero.domain.types import HyperParams

MICRO_TOKENS = 32_768
CHECKPOINTED_BYTES = 1_000_000_000
"""Weights above this size train with gradient checkpointing."""

CHECKPOINTING = {"activation_checkpointing", "gradient_checkpointing"}

OWN_NAMES = {
    "beta": "kl_coef",
    "epsilon": "clip_low",
    "epsilon_high": "clip_high",
    "num_generations": "group_size",
    "max_completion_length": "max_completion_tokens",
    "num_iterations": "updates_per_batch",
    "steps_per_generation": "updates_per_batch",
    "generation_batch_size": "prompts_per_step",
    "scale_rewards": "advantage_norm",
    "lr_scheduler_type": "lr_schedule",
    "mask_truncated_completions": "mask_truncated",
    "max_steps": "steps",
    "num_train_epochs": "steps",
}
"""GRPOConfig fields that are set from a hyperparameter of another name, and that name."""

RESERVED = [
    "output_dir",
    "seed",
    "data_seed",
    "gradient_accumulation_steps",
    "shuffle_dataset",
    "resume_from_checkpoint",
    "save_strategy",
    "save_steps",
    "eval_strategy",
    "eval_steps",
    "do_eval",
    "report_to",
    "disable_tqdm",
    "logging_steps",
    "logging_strategy",
    "logging_nan_inf_filter",
    "lr_scheduler_kwargs",
    "warmup_ratio",
    "model_init_kwargs",
    "trust_remote_code",
    "push_to_hub",
    "remove_unused_columns",
    "sync_ref_model",
    "auto_find_batch_size",
    "use_cpu",
    "log_completions",
    "reward_weights",
]
"""GRPOConfig fields that the trainer itself decides."""


def grpo_config(job: Job, *, output_dir: Path, cuda: bool, start_bytes: int) -> Any:
    """The GRPOConfig of a phase; PhaseError(bad_config) where the phase asks for what TRL does not have."""
    from trl.trainer.grpo_config import GRPOConfig

    if job.phase.optimizer == "keep":
        raise PhaseError("bad_config", "optimizer 'keep': TRL phases start with a fresh optimizer; use 'reset'")
    extra = checked_extra(job.phase.hyper)
    defaults = _defaults(output_dir, cuda) | ({} if CHECKPOINTING & set(extra) else _checkpointing(start_bytes))
    values = {**defaults, **_from_phase(job), **_batching(job.phase.hyper), **extra}
    try:
        return GRPOConfig(**values)
    except (ValueError, TypeError, ImportError) as error:
        raise PhaseError("bad_config", f"GRPOConfig refuses the phase: {error}") from None


def checked_extra(hyper: HyperParams) -> dict[str, Any]:
    """`hyper.extra`, every name a GRPOConfig field that nothing else of the phase sets."""
    from trl.trainer.grpo_config import GRPOConfig

    fields = {field.name for field in dataclasses.fields(GRPOConfig) if field.init}
    own = {field.name for field in dataclasses.fields(HyperParams)} - {"extra"}
    for name in hyper.extra:
        if name in OWN_NAMES or name in own:
            raise PhaseError("bad_config", f"extra.{name} is set by the phase: use {OWN_NAMES.get(name, name)} instead")
        if name in RESERVED:
            raise PhaseError("bad_config", f"extra.{name} is decided by the trl trainer; remove it")
        if name not in fields:
            raise PhaseError("bad_config", f"GRPOConfig has no field {name!r}: {did_you_mean(name, fields)}")
    return dict(hyper.extra)


def batch_sizes(hyper: HyperParams) -> tuple[int, int, int]:
    """Completions per (step, update, forward pass); each divides the one before."""
    whole = hyper.prompts_per_step * hyper.group_size
    if whole % hyper.updates_per_batch:
        raise PhaseError(
            "bad_config",
            f"updates_per_batch {hyper.updates_per_batch} does not divide the {whole} completions of a step "
            "(prompts_per_step * group_size)",
        )
    mini = whole // hyper.updates_per_batch
    given = hyper.extra.get("per_device_train_batch_size")
    if given is None:
        return whole, mini, _micro(mini, hyper.max_completion_tokens)
    if not isinstance(given, int) or given < 1 or mini % given:
        raise PhaseError("bad_config", f"extra.per_device_train_batch_size {given!r} must divide {mini}, an update")
    return whole, mini, given


def expected_lr(hyper: HyperParams, *, update: int, updates: int) -> float:
    """The learning rate of optimizer step `update` (from 0) of `updates`: linear warm-up from 0, then the schedule."""
    warmup = hyper.warmup_steps * hyper.updates_per_batch
    if update < warmup:
        return hyper.learning_rate * update / warmup
    done = (update - warmup) / max(1, updates - warmup)
    match hyper.lr_schedule:
        case "linear":
            return hyper.learning_rate * max(0.0, 1 - done)
        case "cosine":
            return hyper.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
        case _:
            return hyper.learning_rate


def _micro(mini: int, completion_tokens: int) -> int:
    limit = max(1, MICRO_TOKENS // completion_tokens)
    return max(size for size in range(1, mini + 1) if mini % size == 0 and size <= limit)


def _batching(hyper: HyperParams) -> dict[str, Any]:
    whole, mini, micro = batch_sizes(hyper)
    return {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": mini // micro,
        "steps_per_generation": whole // micro,
        "num_iterations": 1,
    }


def _from_phase(job: Job) -> dict[str, Any]:
    phase, hyper = job.phase, job.phase.hyper
    mu = hyper.updates_per_batch
    warm_constant = hyper.lr_schedule == "constant" and hyper.warmup_steps
    return {
        "max_steps": phase.steps * mu,
        "logging_steps": mu,
        "seed": phase.seed,
        "learning_rate": hyper.learning_rate,
        "lr_scheduler_type": "constant_with_warmup" if warm_constant else hyper.lr_schedule,
        "warmup_steps": hyper.warmup_steps * mu,
        "max_grad_norm": hyper.max_grad_norm,
        "beta": hyper.kl_coef,
        "temperature": hyper.temperature,
        "top_p": hyper.top_p,
        "epsilon": hyper.clip_low,
        "epsilon_high": hyper.clip_high,
        "num_generations": hyper.group_size,
        "max_completion_length": hyper.max_completion_tokens,
        "loss_type": hyper.loss_type,
        "scale_rewards": hyper.advantage_norm,
        "entropy_coef": hyper.entropy_coef,
        "mask_truncated_completions": hyper.mask_truncated,
    }


def _checkpointing(start_bytes: int) -> dict[str, Any]:
    """Recompute activations of large models, under the name the installed transformers wants."""
    from transformers import TrainingArguments

    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    name = "activation_checkpointing" if "activation_checkpointing" in known else "gradient_checkpointing"
    return {name: start_bytes > CHECKPOINTED_BYTES}


def _defaults(output_dir: Path, cuda: bool) -> dict[str, Any]:
    """Weights and optimizer stay in float32; on a GPU the compute is bfloat16 (autocast), on a CPU float32 too."""
    return {
        "output_dir": str(output_dir),
        "model_init_kwargs": {"dtype": "float32", "use_safetensors": True, "device_map": None},
        "use_cpu": not cuda,
        "bf16": cuda,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "logging_nan_inf_filter": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": cuda,
        "shuffle_dataset": False,
    }
