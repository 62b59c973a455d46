"""What a worker is given and what it leaves: the contract between controller, executor and worker.

A job is a folder. The controller writes `phase.json` (a Job) and may write `stop`; the worker writes `metrics.jsonl`,
`log.txt`, `heartbeat`, `checkpoint/` and, last and by renaming, `result.json` (a PhaseResult). The worker holds a lock
on `lock` while it lives, so that nobody starts a second one and a dead one is recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from llmzero.domain.config import SCHEMA_VERSION, EvalConfig
from llmzero.domain.examples import Split
from llmzero.domain.types import FailureKind, Phase

EXIT_CANNOT_WRITE = 74
"""A worker's exit code when it could not even write its result (EX_IOERR of sysexits.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights to load: a folder or hub id, and the SHA-256 its files must have ("" = unchecked)."""

    path: str
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One unit of work for a worker: `train` a phase, or `evaluate` weights on a split.

    A train job of zero steps measures the base model. `start` is what the phase starts from; `anchor` the KL
    reference, already resolved from the phase's kl_anchor. `threads` 0 leaves it to the worker, which
    shares the machine with `workers` - 1 others.
    """

    kind: Literal["train", "evaluate"]
    phase: Phase
    start: Weights
    anchor: Weights
    task: str
    data: str
    model: str
    trainer: str
    eval: EvalConfig
    split: Split = "validation"
    threads: int = 0
    workers: int = 1
    run_seed: int = 0
    attempt: int = 1
    schema: int = SCHEMA_VERSION
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """How a job stands: `done` has a result.json; `dead` ended without one, says how, and after how many seconds."""

    state: Literal["running", "done", "dead", "absent"]
    failure: FailureKind | None = None
    message: str = ""
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobPaths:
    """Every file of a job folder, by its part in the contract above. Pure: touches no disk."""

    root: Path

    @property
    def spec(self) -> Path:
        return self.root / "phase.json"

    @property
    def stop(self) -> Path:
        return self.root / "stop"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    @property
    def heartbeat(self) -> Path:
        return self.root / "heartbeat"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def result(self) -> Path:
        return self.root / "result.json"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"
