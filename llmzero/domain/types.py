"""The nouns of the search. Frozen, slotted, linked by id; no I/O.

Words: *score* is the task's metric on validation data; *value* is the search's 0..1 (see `search.value`). A *step* is
one optimizer step group of the trainer that consumes one batch of rollouts; `Cost` keeps both counts and the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Literal

NodeId = str
ROOT: NodeId = "n0"
"""The base model: a phase of zero steps, so that its score is measured and kept like any other."""

LossType = Literal["grpo", "dapo", "dr_grpo", "bnpo"]
AdvantageNorm = Literal["group", "batch", "none"]
LrSchedule = Literal["constant", "linear", "cosine"]
KlAnchor = Literal["base", "parent"]
OptimizerPolicy = Literal["reset", "keep"]
KeepPolicy = Literal["best", "last"]
Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperParams:
    """The hyperparameters of one phase, in the field's names.

    `learning_rate` is the peak; `kl_coef` the weight of the k3 KL term in the loss (0 loads no reference);
    `group_size` is rollouts per prompt; a step draws `prompts_per_step * group_size` completions and makes
    `updates_per_batch` optimizer steps on them, each on its own share (the clip range acts only when that is above 1).
    `warmup_steps` counts steps, not updates.
    `extra` holds further fields of the trainer, checked against the trainer's own config class.
    """

    learning_rate: float = 1e-6
    kl_coef: float = 0.001
    temperature: float = 1.0
    top_p: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    group_size: int = 8
    prompts_per_step: int = 8
    max_completion_tokens: int = 512
    updates_per_batch: int = 1
    loss_type: LossType = "dapo"
    advantage_norm: AdvantageNorm = "group"
    entropy_coef: float = 0.0
    max_grad_norm: float = 1.0
    lr_schedule: LrSchedule = "constant"
    warmup_steps: int = 0
    mask_truncated: bool = False
    extra: Mapping[str, Scalar] = field(default_factory=dict)

    def flat(self) -> dict[str, Scalar]:
        """All values by name, `extra` merged in: what a change, a table row or a prompt speaks of."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "extra"}
        return {**own, **self.extra}

    def with_values(self, values: Mapping[str, Scalar]) -> HyperParams:
        """A copy with `values` set; names that are not fields go to `extra`."""
        own = {f.name for f in fields(self)} - {"extra"}
        known = {k: v for k, v in values.items() if k in own}
        extra = {**self.extra, **{k: v for k, v in values.items() if k not in own}}
        return replace(self, **known, extra=extra)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One GRPO run with fixed hyperparameters, from its parent's weights (the root's are the base model)."""

    id: NodeId
    parent: NodeId | None
    hyper: HyperParams
    steps: int
    eval_every: int
    seed: int
    kl_anchor: KlAnchor = "base"
    optimizer: OptimizerPolicy = "reset"
    keep: KeepPolicy = "best"


class Status(StrEnum):
    """How a phase ended. A node without a result is running."""

    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class FailureKind(StrEnum):
    """Why a phase failed, as the worker or its watchdog saw it."""

    DIED = "died"
    HANG = "hang"
    OUT_OF_MEMORY = "out_of_memory"
    NAN = "nan"
    MISMATCH = "mismatch"
    BAD_CHECKPOINT = "bad_checkpoint"
    DISK_FULL = "disk_full"
    BAD_CONFIG = "bad_config"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class EvalPoint:
    """One validation measurement inside a phase. `step` counts within the phase; `score` and `se` are of the task."""

    step: int
    score: float
    se: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSummary:
    """One training metric over a phase, small enough for a prompt. `slope` is per step, by least squares."""

    first: float
    last: float
    mean: float
    low: float
    high: float
    slope: float
    window_mean: float
    spikes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a phase used. `steps` are rollout batches, `optimizer_steps` weight updates; times in seconds."""

    wall_s: float = 0.0
    train_s: float = 0.0
    eval_s: float = 0.0
    start_s: float = 0.0
    steps: int = 0
    optimizer_steps: int = 0
    generated_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Weights on disk: `path` relative to the run folder, `digest` the SHA-256 of its model files."""

    path: str
    digest: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseResult:
    """The outcome of a phase. `score` is measured on the kept checkpoint after reloading it; None when it failed.

    `items` is how many examples the score was measured on; `missing` says of each absent metric why it is absent.
    """

    status: Status
    steps_done: int = 0
    score: float | None = None
    score_se: float | None = None
    checkpoint: Checkpoint | None = None
    curve: tuple[EvalPoint, ...] = ()
    summaries: Mapping[str, MetricSummary] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    by_subtask: Mapping[str, float] = field(default_factory=dict)
    items: int = 0
    cost: Cost = field(default_factory=Cost)
    failure: FailureKind | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One hyperparameter a proposal sets, and why."""

    field: str
    value: Scalar
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a proposer wants next: the named pathology, its evidence, and a coordinated set of changes.

    `basis` says what the answer rests on ("documented: ...", "common practice: ..."); `notes` what was done to the
    proposal after it was made (clamped values, repaired replies, fallbacks); `calls` the digests of the model calls it
    came from.
    """

    proposer: str
    pathology: str
    diagnosis: str
    evidence: tuple[str, ...] = ()
    basis: str = ""
    changes: tuple[Change, ...] = ()
    rationale: str = ""
    steps: int | None = None
    kl_anchor: KlAnchor | None = None
    expected: str = ""
    confidence: float | None = None
    notes: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which node is expanded and why: by UCT, a forced fresh start from the base, or the agent's own choice."""

    parent: NodeId
    kind: Literal["base", "uct", "fresh", "agent"]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A stopper's word on a running phase after its evaluation at `at_step` (a step of the phase).

    `calls` are the digests of the model calls it came from.
    """

    action: Literal["continue", "stop"]
    reason: str
    at_step: int
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A phase in the tree. `result` None means running; `lost` says why its checkpoint can no longer be used."""

    id: NodeId
    parent: NodeId | None
    sequence: int
    phase: Phase
    selection: Selection
    proposal: Proposal
    result: PhaseResult | None = None
    verdict: Verdict | None = None
    lost: str = ""
    children: tuple[NodeId, ...] = ()

    @property
    def status(self) -> str:
        return "running" if self.result is None else self.result.status.value

    @property
    def score(self) -> float | None:
        return None if self.result is None else self.result.score

    @property
    def resumable(self) -> bool:
        """Whether a child may start from here: finished, and its weights are still whole."""
        return self.result is not None and self.result.status is Status.FINISHED and not self.lost


@dataclass(frozen=True, slots=True, kw_only=True)
class TestScore:
    """A node's score on the held-out test split, read once, after the search."""

    __test__ = False

    score: float
    se: float
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What changed from a parent to its child and what it did to the score."""

    parent: NodeId
    child: NodeId
    changes: tuple[tuple[str, Scalar, Scalar], ...]
    score_change: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A root-to-leaf path: the unit of export. `nodes` and `phases` leave out the root."""

    nodes: tuple[NodeId, ...]
    phases: tuple[Phase, ...]
    score: float | None
    score_se: float | None
    total_steps: int
