"""The task's reward as a TRL reward function, and the numbers TRL does not give: tokens, dead groups, errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from llmzero.domain.examples import Example, Message, Transcript
from llmzero.ports import Task

_REWARD_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def reward_of(task: Task, example: Example, transcript: Transcript) -> float | None:
    """The reward in [0, 1]; None when the task raised or gave anything else, which counts 0."""
    try:
        value = float(task.reward(example, transcript).value)
    except _REWARD_FAILURES:
        return None
    return value if math.isfinite(value) and 0.0 <= value <= 1.0 else None


class RewardMeter:
    """Scores TRL's completions and keeps the step's counts until they are taken.

    `examples` by id. Completions arrive in groups: `group_size` in a row share a prompt.
    """

    __name__ = "task"

    def __init__(self, task: Task, examples: Mapping[str, Example], group_size: int) -> None:
        self._task = task
        self._examples = examples
        self._group_size = group_size
        self._zero_std_shares: list[float] = []
        self._tokens = 0
        self._errors = 0

    def __call__(
        self,
        completions: Sequence[Sequence[Mapping[str, Any]]],
        completion_ids: Sequence[Sequence[int]],
        example_id: Sequence[str],
        **_: object,
    ) -> list[float | None]:
        pairs = zip(example_id, completions, strict=True)
        given = [reward_of(self._task, self._examples[i], _transcript(messages)) for i, messages in pairs]
        values: list[float] = [value or 0.0 for value in given]
        size = self._group_size
        groups = [values[i : i + size] for i in range(0, len(values), size)]
        self._zero_std_shares.append(sum(min(g) == max(g) for g in groups) / len(groups))
        self._tokens += sum(map(len, completion_ids))
        self._errors += given.count(None)
        return [*values]

    def take(self) -> dict[str, float]:
        """The counts since the last call, by metric name."""
        shares, tokens, errors = self._zero_std_shares, self._tokens, self._errors
        self._zero_std_shares, self._tokens, self._errors = [], 0, 0
        counts = {"generated_tokens": float(tokens), "reward_errors": float(errors)}
        return {**counts, "zero_std_share": sum(shares) / len(shares)} if shares else counts


def _transcript(messages: Sequence[Mapping[str, Any]]) -> Transcript:
    """TRL's completion messages; a message may carry tool calls and no text."""
    return Transcript(tuple(_message(m) for m in messages))


def _message(given: Mapping[str, Any]) -> Message:
    content = given.get("content")
    return {"role": given["role"], "content": content if isinstance(content, str) else ""}
