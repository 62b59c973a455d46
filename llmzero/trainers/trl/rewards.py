"""The task's reward as a TRL reward function, and the numbers TRL does not give: tokens, dead groups, errors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmzero.domain.examples import Example, Message, Transcript
from llmzero.ports import Task

if TYPE_CHECKING:
    from llmzero.trainers.trl.episodes import Episode

FAILURES = (
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
    except FAILURES:
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
        self._turns: list[int] = []
        self._counts: Counter[str] = Counter()

    def __call__(
        self,
        completions: Sequence[Sequence[Mapping[str, Any]]],
        completion_ids: Sequence[Sequence[int]],
        example_id: Sequence[str],
        episode: Sequence[Episode] = (),
        **_: object,
    ) -> list[float | None]:
        """`episode`: what the completions are of in a multi-turn task (see `rollouts`)."""
        transcripts = [e.transcript for e in episode] if episode else [_transcript(each) for each in completions]
        pairs = zip(example_id, transcripts, strict=True)
        given = [reward_of(self._task, self._examples[i], transcript) for i, transcript in pairs]
        given = [None if e.failed else value for e, value in zip(episode, given, strict=True)] if episode else given
        values: list[float] = [value or 0.0 for value in given]
        size = self._group_size
        groups = [values[i : i + size] for i in range(0, len(values), size)]
        self._zero_std_shares.append(sum(min(g) == max(g) for g in groups) / len(groups))
        self._tokens += sum(e.written_tokens for e in episode) if episode else sum(map(len, completion_ids))
        self._errors += given.count(None)
        self._turns += [e.turns for e in episode]
        for each in episode:
            self._counts.update(each.counts)
        return [*values]

    def take(self) -> dict[str, float]:
        """The counts since the last call, by metric name; an environment's own as `env/NAME`, means over episodes."""
        counts = {"generated_tokens": float(self._tokens), "reward_errors": float(self._errors)}
        if self._zero_std_shares:
            counts["zero_std_share"] = sum(self._zero_std_shares) / len(self._zero_std_shares)
        if self._turns:
            counts["turns"] = sum(self._turns) / len(self._turns)
            counts |= {f"env/{name}": value / len(self._turns) for name, value in self._counts.items()}
        self._zero_std_shares, self._tokens, self._errors = [], 0, 0
        self._turns, self._counts = [], Counter()
        return counts


def _transcript(messages: Sequence[Mapping[str, Any]]) -> Transcript:
    """TRL's completion messages; a message may carry tool calls and no text."""
    return Transcript(tuple(_message(m) for m in messages))


def _message(given: Mapping[str, Any]) -> Message:
    content = given.get("content")
    return {"role": given["role"], "content": content if isinstance(content, str) else ""}
