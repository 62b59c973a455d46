"""Metric rows of a phase and their summaries.

Names are trainer-neutral; each trainer maps its own keys onto them and says which it cannot give (`missing`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from llmzero.domain.statistics import count_spikes, mean, slope
from llmzero.domain.types import EvalPoint, MetricSummary

METRICS: dict[str, str] = {
    "reward": "mean training reward of the step's completions, 0..1",
    "reward_std": "standard deviation of reward, over the batch",
    "zero_std_share": "share of prompt groups whose rewards are all equal (no advantage, no gradient)",
    "kl": "k3 KL estimate to the anchor, mean per token, nats; absent when kl_coef is 0",
    "entropy": "mean token entropy of the policy, nats",
    "grad_norm": "gradient norm before clipping",
    "clip_ratio": "share of tokens outside the clip range; 0 by construction at one update per batch",
    "truncated_share": "share of completions cut at the completion cap",
    "mean_length_tokens": "mean completion length, tokens",
    "loss": "the trainer's loss; near 0 on-policy, no measure of progress",
    "learning_rate": "effective learning rate of the step",
    "step_time_s": "seconds of the step, generation included",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One line of a phase's metrics.jsonl. `step` counts within the phase, from 1 (0 is an evaluation at the start).

    A `train` row carries training metrics in `values`; an `eval` row `score`, `se` in `values`.
    """

    kind: str
    step: int
    values: Mapping[str, float] = field(default_factory=dict)
    at_s: float = 0.0


def eval_points(rows: Iterable[MetricRow]) -> tuple[EvalPoint, ...]:
    """The validation curve in a phase's rows."""
    return tuple(EvalPoint(r.step, r.values["score"], r.values["se"]) for r in rows if r.kind == "eval")


def metric(rows: Iterable[MetricRow], name: str) -> list[tuple[int, float]]:
    """(step, value) of one training metric, finite values only."""
    pairs = ((r.step, r.values[name]) for r in rows if r.kind == "train" and name in r.values)
    return [(step, value) for step, value in pairs if math.isfinite(value)]


def summarise(rows: Sequence[MetricRow]) -> dict[str, MetricSummary]:
    """A summary of every training metric that has at least one finite value."""
    found = {name: metric(rows, name) for name in METRICS}
    return {name: summary_of(points) for name, points in found.items() if points}


def summary_of(points: Sequence[tuple[int, float]]) -> MetricSummary:
    """Summary of (step, value) pairs; the window is the last quarter, at least three values where there are."""
    steps = [float(s) for s, _ in points]
    values = [v for _, v in points]
    window = values[-max(3, len(values) // 4) :]
    return MetricSummary(
        first=values[0],
        last=values[-1],
        mean=mean(values),
        low=min(values),
        high=max(values),
        slope=slope(steps, values),
        window_mean=mean(window),
        spikes=count_spikes(values),
        count=len(values),
    )
