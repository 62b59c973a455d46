"""What happens around each step of a phase: the launch check, metric rows, evaluations, keeping the best, stopping."""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmzero.domain.errors import PhaseError
from llmzero.domain.jobs import Job
from llmzero.domain.series import MetricRow
from llmzero.trainers.trl.config import expected_lr
from llmzero.trainers.trl.evaluation import Measured
from llmzero.trainers.trl.rewards import RewardMeter

LOG_KEYS = {
    "reward": "reward",
    "reward_std": "reward_std",
    "kl": "kl",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "clip_ratio": "clip_ratio/region_mean",
    "truncated_share": "completions/clipped_ratio",
    "mean_length_tokens": "completions/mean_length",
    "loss": "loss",
    "learning_rate": "learning_rate",
}
"""Our metric names and TRL's log keys; averages over the updates of a step, but for grad_norm and learning_rate."""

FINITE = ("loss", "grad_norm", "kl", "entropy", "reward")


def absent_metrics(kl_coef: float, updates_per_batch: int) -> dict[str, str]:
    """Metrics that carry no information in a phase, and why."""
    missing: dict[str, str] = {}
    if kl_coef == 0:
        missing["kl"] = "kl_coef is 0: no reference model is loaded"
    if updates_per_batch == 1:
        missing["clip_ratio"] = "one update per batch: the ratio is 1, nothing can be clipped"
    return missing


@dataclass(slots=True, kw_only=True)
class PhaseWatch:
    """Follows one phase. `evaluate` scores the live policy; `snapshot` copies its weights."""

    job: Job
    meter: RewardMeter
    report: Callable[[MetricRow], None]
    should_stop: Callable[[], bool]
    launch_check: Callable[[], None]
    evaluate: Callable[[], Measured]
    snapshot: Callable[[], Mapping[str, Any]]
    started: float = field(default_factory=time.monotonic)
    rows: list[MetricRow] = field(default_factory=list)
    kept: Mapping[str, Any] | None = None
    kept_step: int = 0
    best_score: float = -1.0
    steps_done: int = 0
    updates_done: int = 0
    generated_tokens: int = 0
    stopped: bool = False
    start_s: float = 0.0
    train_s: float = 0.0
    eval_s: float = 0.0
    step_started: float = 0.0

    def before_training(self) -> None:
        """Checks the launch and measures the starting weights."""
        self.launch_check()
        self.start_s = time.monotonic() - self.started
        self._evaluate(step=0)
        self.step_started = time.monotonic()

    def after_step(self, logs: Mapping[str, Any], updates: int) -> bool:
        """Takes a step's logs; true when training must end."""
        step_s = time.monotonic() - self.step_started
        self.train_s += step_s
        self.steps_done += 1
        self.updates_done = updates
        values = self._values(logs, step_s)
        self._emit("train", self.steps_done, values)
        self._refuse_bad(logs)
        last = self.steps_done == self.job.phase.steps
        self.stopped = not last and self.should_stop()
        if last or self.stopped or self.steps_done % self.job.phase.eval_every == 0:
            self._keep(self._evaluate(step=self.steps_done))
        self.step_started = time.monotonic()
        return self.stopped

    def _values(self, logs: Mapping[str, Any], step_s: float) -> dict[str, float]:
        hyper = self.job.phase.hyper
        missing = absent_metrics(hyper.kl_coef, hyper.updates_per_batch)
        found = {ours: logs.get(theirs) for ours, theirs in LOG_KEYS.items() if ours not in missing}
        counted = self.meter.take()
        self.generated_tokens += int(counted["generated_tokens"])
        values = {name: float(value) for name, value in found.items() if value is not None}
        return {**values, **counted, "step_time_s": step_s}

    def _refuse_bad(self, logs: Mapping[str, Any]) -> None:
        """NaN ends the phase (TRL logs None where a metric had no valid value), and so does a foreign learning rate."""
        hyper, step = self.job.phase.hyper, self.steps_done
        for name in FINITE:
            value = logs.get(LOG_KEYS[name], 0.0)
            if value is None or not math.isfinite(value):
                raise PhaseError("nan", f"{name} is {value} at step {step}: lower learning_rate or max_grad_norm")
        updates = self.job.phase.steps * hyper.updates_per_batch
        asked = expected_lr(hyper, update=self.updates_done - 1, updates=updates)
        if not math.isclose(asked, logs["learning_rate"], rel_tol=1e-6, abs_tol=1e-15):
            found = logs["learning_rate"]
            raise PhaseError("mismatch", f"learning_rate at step {step}: asked {asked!r}, trainer has {found!r}")

    def _evaluate(self, step: int) -> float:
        began = time.monotonic()
        measured = self.evaluate()
        self.eval_s += time.monotonic() - began
        self._emit("eval", step, {"score": measured.score, "se": measured.se})
        return measured.score

    def _keep(self, score: float) -> None:
        """The last weights, or the best trained ones (the first of equals); the starting weights never count."""
        if self.job.phase.keep == "last" or score > self.best_score:
            self.kept, self.kept_step = self.snapshot(), self.steps_done
            self.best_score = score

    def _emit(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        row = MetricRow(kind=kind, step=step, values=values, at_s=time.monotonic() - self.started)
        self.rows.append(row)
        self.report(row)


def callback_for(watch: PhaseWatch) -> Any:
    """The watch as a transformers callback. Logs come once a step, after its last optimizer update."""
    from transformers import TrainerCallback

    class Relay(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 0:
                watch.before_training()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs and watch.after_step(logs, state.global_step):
                control.should_training_stop = True

    return Relay()
