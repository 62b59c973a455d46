"""The neutral strategy document: what every exporter starts from, and what `strategy.yaml` holds.

Each field's `metadata["doc"]` is its documentation: the comments in the YAML and the table in docs/export.md come
from it. Bump `VERSION` when a field changes its meaning or goes away; new fields with a default need no bump.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Literal

from llmzero.domain.config import EvalConfig
from llmzero.domain.types import HyperParams, KeepPolicy, KlAnchor, OptimizerPolicy, Scalar

VERSION = 1
SCHEMA = f"llmzero.strategy/{VERSION}"

HYPER_DOCS: dict[str, str] = {
    "learning_rate": "peak learning rate of the stage",
    "kl_coef": "weight of the k3 KL term in the loss (not in the reward); 0 = no reference model",
    "temperature": "sampling temperature of the training rollouts",
    "top_p": "nucleus sampling mass of the training rollouts; 1 = off",
    "clip_low": "lower clip range of the probability ratio: 1 - clip_low",
    "clip_high": "upper clip range of the probability ratio: 1 + clip_high; acts only when updates_per_batch > 1",
    "group_size": "completions per prompt",
    "prompts_per_step": "distinct prompts per step; a step makes prompts_per_step * group_size completions",
    "max_completion_tokens": "completion cap of the training rollouts, tokens",
    "updates_per_batch": "optimizer steps on one rollout batch, each on its own share of the batch",
    "loss_type": "how token losses are summed: grpo, dapo, dr_grpo or bnpo (dr_grpo scales with the completion cap)",
    "advantage_norm": "advantages divided by the standard deviation of the group, of the batch, or not at all (none)",
    "entropy_coef": "weight of the entropy bonus in the loss",
    "max_grad_norm": "gradient clipping norm",
    "lr_schedule": "constant, linear or cosine decay over the stage's own steps (the horizon is `steps`)",
    "warmup_steps": "linear learning-rate warm-up at the start of the stage, in steps",
    "mask_truncated": "leave completions cut at the cap out of the loss",
    "extra": "further fields of the trainer that ran the search, in that trainer's own names",
}


def said(text: str, default: Any = MISSING) -> Any:
    """A dataclass field with its documentation."""
    return field(metadata={"doc": text}) if default is MISSING else field(default=default, metadata={"doc": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where the strategy comes from."""

    run: str = said("name of the search run")
    llmzero: str = said("version of LLMZero that searched")
    started_at: str = said("when the search started", "")
    task: str = said("task name, or the folder of a task of one's own")
    data: str = said("data source of the task: mini (offline generator) or hub (the real data set)")
    model: str = said("base model: nano (embedded), a Hugging Face id, or a folder")
    base_digest: str = said(
        "SHA-256 of the base model's files (weights, configuration, tokenizer); empty when not recorded", ""
    )
    trainer: str = said("trainer that ran the search")
    seed: int = said("run seed; data and stage seeds are hashed from it")
    versions: Mapping[str, str] = said("library versions of the search")


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What the counts count; trainers differ."""

    step: str = said("meaning of `steps`", "one rollout batch: prompts_per_step * group_size completions")
    optimizer_step: str = said(
        "meaning of `optimizer_steps`", "one weight update: steps * updates_per_batch (what TRL calls a step)"
    )
    tokens_planned: str = said(
        "meaning of `tokens_planned`", "upper bound: steps * prompts_per_step * group_size * max_completion_tokens"
    )
    score: str = said("meaning of `score`", "the task's metric on validation data, 0..1; `se` is over items")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChange:
    """One hyperparameter that differs from the previous stage."""

    field: str = said("name of what changed (a hyperparameter, steps or kl_anchor)")
    old: Scalar = said("value in the previous stage (in the first stage: the run's initial value)")
    new: Scalar = said("value in this stage")
    reason: str = said("the proposer's reason, in its own words", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One training run of the strategy."""

    stage: int = said("stage number, from 1")
    node: str = said("node id in the search tree")
    starts_from: str = said("base, or `stage K`: whose handed-over weights this stage starts from")
    optimizer: OptimizerPolicy = said("optimizer state at the stage's start: reset (fresh) or keep")
    kl_anchor: KlAnchor = said("KL reference: base (the base model) or parent (the weights this stage starts from)")
    steps: int = said("planned steps; the learning-rate schedule's horizon")
    optimizer_steps: int = said("planned weight updates: steps * updates_per_batch")
    steps_done: int = said("steps the search really ran (fewer when a stage was stopped early)")
    handover_step: int = said("step whose weights are handed to the next stage; earlier than steps when keep is best")
    keep: KeepPolicy = said("which weights were kept: best (by in-stage validation) or last")
    eval_every: int = said("validation every this many steps")
    seed: int = said("seed of the stage")
    hyper: HyperParams = said("all hyperparameters of the stage")
    changes: tuple[StageChange, ...] = said("what differs from the previous stage", ())
    proposer: str = said("who proposed the stage", "")
    pathology: str = said("the pathology the proposer saw in the previous stage", "")
    diagnosis: str = said("the proposer's diagnosis of the previous stage", "")
    rationale: str = said("why these changes together", "")
    score: float | None = said("validation score of the handed-over weights; null when never measured", None)
    score_se: float | None = said("standard error of score", None)
    cumulative_steps: int = said("planned steps from the base to the end of this stage")
    tokens_planned: int = said("completion tokens of the stage, at most")
    tokens_generated: int = said("completion tokens the search really generated in the stage; 0 = not measured", 0)
    cumulative_tokens: int = said("tokens_planned from the base to the end of this stage")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A score on the test split, which the search never saw."""

    score: float = said("score on the test split")
    se: float = said("standard error of score, over items")
    items: int = said("test items")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the strategy reached."""

    score: float | None = said("validation score after the last stage", None)
    score_se: float | None = said("standard error of score", None)
    base_score: float | None = said("validation score of the base model, measured the same way", None)
    base_score_se: float | None = said("standard error of base_score", None)
    test: HeldOut | None = said("test score after the last stage; null when not measured", None)
    base_test: HeldOut | None = said("test score of the base model; null when not measured", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDoc:
    """A whole strategy."""

    schema: str = said("format of this file and its version", SCHEMA)
    provenance: Provenance = said("where the strategy comes from")
    units: Units = said("what the counts count", Units())
    evaluation: EvalConfig = said("how the search measured scores")
    outcome: Outcome = said("what the strategy reached, on validation and, where measured, on test")
    stages: tuple[Stage, ...] = said("the training runs, in order")


def documented(kind: type = ScheduleDoc, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(path, documentation) of every field, depth first; `stages[].seed` is the seed of each stage."""
    for each in fields(kind):
        path = f"{prefix}{each.name}"
        yield path, HYPER_DOCS.get(each.name, "") if kind is HyperParams else str(each.metadata.get("doc", ""))
        inner = inner_kind(typing.get_type_hints(kind)[each.name])
        if inner is not None:
            yield from documented(inner[0], f"{path}{inner[1]}.")


def inner_kind(hint: Any) -> tuple[type, Literal["", "[]"]] | None:
    """The dataclass a field holds and whether it is a list of them; None for plain values."""
    if is_dataclass(hint) and isinstance(hint, type):
        return hint, ""
    arguments = [a for a in typing.get_args(hint) if is_dataclass(a) and isinstance(a, type)]
    if not arguments:
        return None
    return arguments[0], "[]" if typing.get_origin(hint) is tuple else ""
