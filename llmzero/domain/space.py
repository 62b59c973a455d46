"""The search space: every tunable hyperparameter with its hard bounds, and the rules that tie them together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from llmzero.domain.errors import UsageError, did_you_mean
from llmzero.domain.types import HyperParams, Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One dimension. `kind` log/linear are floats, int is whole (`multiple_of` applies), choice takes `choices`."""

    name: str
    kind: Literal["log", "linear", "int", "choice"]
    low: float = 0.0
    high: float = 0.0
    choices: tuple[Scalar, ...] = ()
    multiple_of: int = 1

    def holds(self, value: Scalar) -> bool:
        """Whether a user's own value lies in the bounds; it need not be a multiple."""
        if self.kind == "choice":
            return value in self.choices
        return isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high

    def clamp(self, value: Scalar) -> Scalar:
        """The nearest allowed value; raises UsageError where the type is wrong or a choice unknown."""
        if self.kind == "choice":
            if value not in self.choices:
                raise UsageError(f"{self.name}={value!r}: {did_you_mean(str(value), map(str, self.choices))}")
            return value
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UsageError(f"{self.name}={value!r} is not a finite number in [{self.low:g}, {self.high:g}]")
        bounded = min(max(value, self.low), self.high)
        if self.kind != "int":
            return float(bounded)
        whole = round(bounded / self.multiple_of) * self.multiple_of
        inside = whole + self.multiple_of * ((whole < self.low) - (whole > self.high))
        return int(inside if self.low <= inside <= self.high else bounded)


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Named parameters. A hyperparameter outside the space keeps its value through the whole search."""

    parameters: tuple[Parameter, ...] = ()

    def __getitem__(self, name: str) -> Parameter:
        found = next((p for p in self.parameters if p.name == name), None)
        if found is None:
            raise UsageError(f"no hyperparameter {name!r} in the search space: {did_you_mean(name, self.names)}")
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    def clamp(self, values: Mapping[str, Scalar]) -> tuple[dict[str, Scalar], tuple[str, ...]]:
        """Values inside the bounds, and one note for each that had to move."""
        inside = {name: self[name].clamp(value) for name, value in values.items()}
        notes = tuple(f"{n}: {values[n]} clamped to {v}" for n, v in inside.items() if v != values[n])
        return inside, notes


def settle(hyper: HyperParams) -> tuple[HyperParams, tuple[str, ...]]:
    """Apply the cross-parameter rules; returns the settled values and a note for each that moved.

    * clip_high is never below clip_low (DAPO's clip-higher is one-sided);
    * updates_per_batch divides prompts_per_step, so that every update gets an equal share of the batch.
    """
    notes: list[str] = []
    values: dict[str, Scalar] = {}
    if hyper.clip_high < hyper.clip_low:
        values["clip_high"] = hyper.clip_low
        notes.append(f"clip_high: raised to clip_low {hyper.clip_low:g}")
    if hyper.prompts_per_step % hyper.updates_per_batch:
        fit = max(d for d in range(1, hyper.updates_per_batch + 1) if hyper.prompts_per_step % d == 0)
        values["updates_per_batch"] = fit
        notes.append(f"updates_per_batch: {hyper.updates_per_batch} set to {fit}, a divisor of prompts_per_step")
    return hyper.with_values(values), tuple(notes)
