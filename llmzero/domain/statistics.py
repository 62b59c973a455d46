"""The few statistics everything rests on. Pure Python, so that the core needs no numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def clustered_score(item_means: Sequence[float]) -> tuple[float, float]:
    """Score and its standard error from per-item means: samples of one item are not independent, items are."""
    center = mean(item_means)
    if len(item_means) < 2:
        return center, 0.0
    variance = math.fsum((v - center) ** 2 for v in item_means) / (len(item_means) - 1)
    return center, math.sqrt(variance / len(item_means))


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Least-squares slope; 0 for fewer than two distinct x."""
    if len(xs) < 2:
        return 0.0
    mx, my = mean(xs), mean(ys)
    spread = math.fsum((x - mx) ** 2 for x in xs)
    return math.fsum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def count_spikes(values: Sequence[float], factor: float = 6.0) -> int:
    """Values further above the median than `factor` median absolute deviations (and at least twice the median)."""
    if len(values) < 5:
        return 0
    center = median(values)
    spread = median([abs(v - center) for v in values])
    return sum(1 for v in values if v > center + factor * spread and v > 2 * abs(center) and v - center > 1e-9)
