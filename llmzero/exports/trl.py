"""Strategy -> a folder that trains it with TRL alone: `python train.py`.

`grpo_fields` is the same mapping as the trl trainer's; a contract test compares the two field by field. The script is
one fixed file: everything of the run is data in YAML, nothing is ever pasted into code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmzero.domain.errors import UsageError
from llmzero.domain.events import Tree
from llmzero.domain.types import HyperParams, Strategy
from llmzero.exports.readme import readme
from llmzero.exports.schedule import schedule_doc, strategy_yaml
from llmzero.exports.schema import ScheduleDoc, Stage
from llmzero.exports.yaml_text import emit

MICRO_TOKENS = 32_768
"""Completion tokens of one forward pass, at most; an update of more is accumulated."""

REQUIREMENTS = {
    "torch": "torch>=2.9",
    "transformers": "transformers>=5.20,<6",
    "trl": "trl>=1.14,<2",
    "datasets": "datasets>=5",
    "accelerate": "accelerate>=1.10",
    "pyyaml": "pyyaml>=6",
    "llmzero": "llmzero",
}
_VERSION = re.compile(r"\d[0-9A-Za-z.!]*")
_TEMPLATE = Path(__file__).with_name("templates") / "trl_train.py.txt"

_BLOCK_DOCS = {
    "llmzero": "what GRPOConfig has no field for; train.py reads it",
    "llmzero.starts_from": "base, or the stage whose weights this one starts from; the optimizer is always fresh",
    "llmzero.kl_anchor": "KL reference: base (the base model) or parent (the weights this stage starts from)",
    "llmzero.handover_step": "rollout batches after which training ends and the weights are handed on",
    "llmzero.handover_update": "the same in TRL's steps; max_steps stays the learning-rate schedule's horizon",
}


def grpo_fields(hyper: HyperParams, *, steps: int, seed: int) -> dict[str, Any]:
    """GRPOConfig fields of one phase; UsageError where `extra` sets what a hyperparameter sets.

    TRL counts optimizer steps, so steps and warm-up are multiplied by updates_per_batch; the updates share a batch out.
    """
    mu = hyper.updates_per_batch
    warm_constant = hyper.lr_schedule == "constant" and hyper.warmup_steps
    fields: dict[str, Any] = {
        "max_steps": steps * mu,
        "learning_rate": hyper.learning_rate,
        "lr_scheduler_type": "constant_with_warmup" if warm_constant else hyper.lr_schedule,
        "warmup_steps": hyper.warmup_steps * mu,
        "max_grad_norm": hyper.max_grad_norm,
        **_batching(hyper),
        "num_generations": hyper.group_size,
        "max_completion_length": hyper.max_completion_tokens,
        "temperature": hyper.temperature,
        "top_p": hyper.top_p,
        "beta": hyper.kl_coef,
        "epsilon": hyper.clip_low,
        "epsilon_high": hyper.clip_high,
        "loss_type": hyper.loss_type,
        "scale_rewards": hyper.advantage_norm,
        "entropy_coef": hyper.entropy_coef,
        "mask_truncated_completions": hyper.mask_truncated,
        "seed": seed,
    }
    extra = {name: value for name, value in hyper.extra.items() if name != "per_device_train_batch_size"}
    clash = sorted(set(fields) & set(extra))
    if clash:
        raise UsageError(f"extra.{clash[0]} is already set by a hyperparameter; remove it from extra")
    return {**fields, **extra}


def _batching(hyper: HyperParams) -> dict[str, int]:
    whole = hyper.prompts_per_step * hyper.group_size
    if whole % hyper.updates_per_batch:
        raise UsageError(f"updates_per_batch {hyper.updates_per_batch} must divide {whole}, a step's completions")
    mini = whole // hyper.updates_per_batch
    limit = max(1, MICRO_TOKENS // hyper.max_completion_tokens)
    given = hyper.extra.get("per_device_train_batch_size")
    micro = given if given is not None else max(n for n in range(1, mini + 1) if mini % n == 0 and n <= limit)
    if not isinstance(micro, int) or micro < 1 or mini % micro:
        raise UsageError(f"extra.per_device_train_batch_size {given!r} must divide {mini}, an update's completions")
    return {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": mini // micro,
        "steps_per_generation": whole // micro,
        "num_iterations": 1,
    }


def run_fields(model: str, updates_per_batch: int) -> dict[str, Any]:
    """GRPOConfig fields that are the same for every stage; the script adds the device's own (use_cpu, bf16)."""
    return {
        "shuffle_dataset": False,
        "logging_steps": updates_per_batch,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": "none",
        "gradient_checkpointing": model != "nano",
        "model_init_kwargs": {"dtype": "float32", "use_safetensors": True, "device_map": None},
    }


def stage_yaml(doc: ScheduleDoc, stage: Stage) -> str:
    """GRPOConfig fields at the top level, then the `llmzero:` block."""
    if stage.optimizer != "reset":
        raise UsageError(f"stage {stage.stage}: optimizer {stage.optimizer!r}: a TRL run starts with a fresh optimizer")
    updates = stage.hyper.updates_per_batch
    common = run_fields(doc.provenance.model, updates)
    fields = {**common, **grpo_fields(stage.hyper, steps=stage.steps, seed=stage.seed)}
    block = {
        "stage": stage.stage,
        "starts_from": stage.starts_from,
        "kl_anchor": stage.kl_anchor,
        "handover_step": stage.handover_step,
        "handover_update": stage.handover_step * updates,
    }
    return emit({**fields, "llmzero": block}, _BLOCK_DOCS)


def requirements(versions: Mapping[str, str]) -> str:
    """The versions the search ran with, where they were recorded (local parts as in 2.9.0+cpu cut off)."""
    public = {name: versions.get(name, "").partition("+")[0] for name in REQUIREMENTS}
    pins = [f"{name}=={public[name]}" if _VERSION.fullmatch(public[name]) else at for name, at in REQUIREMENTS.items()]
    return "\n".join(pins) + "\n"


class TrlExporter:
    """train.py, a YAML for each stage, README.md, requirements.txt and the neutral strategy.yaml."""

    @property
    def name(self) -> str:
        return "trl"

    def files(self, tree: Tree, strategy: Strategy) -> dict[str, str]:
        doc = schedule_doc(tree, strategy)
        stages = {f"stages/stage{stage.stage}.yaml": stage_yaml(doc, stage) for stage in doc.stages}
        return {
            "train.py": _TEMPLATE.read_text(encoding="utf-8"),
            **stages,
            "README.md": readme(doc),
            "requirements.txt": requirements({**doc.provenance.versions, "llmzero": doc.provenance.llmzero}),
            "strategy.yaml": strategy_yaml(doc),
        }
