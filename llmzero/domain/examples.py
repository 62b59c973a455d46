"""What a task hands to a trainer: items, messages, answers, rewards. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


class Message(TypedDict):
    """One chat message, in the field's usual shape."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


@dataclass(frozen=True, slots=True)
class Example:
    """One item of a task.

    `fields` is the task's own record (source molecule, gold answer, ...), JSON values only: examples cross
    process borders and are written into datasets.
    """

    id: str
    subtask: str
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Transcript:
    """What happened for one example: the model's messages and, in multi-turn tasks, the environment's.

    Only messages with role `assistant` were written by the model; a reward reads nothing else as an answer.
    """

    messages: tuple[Message, ...]

    @property
    def answer(self) -> str:
        """The model's last message; empty when it wrote none."""
        return next((m["content"] for m in reversed(self.messages) if m["role"] == "assistant"), "")

    @classmethod
    def of(cls, text: str) -> Transcript:
        """A single-turn transcript holding `text` as the model's answer."""
        return cls(({"role": "assistant", "content": text},))


@dataclass(frozen=True, slots=True)
class Observation:
    """What an environment says to one reply of the model.

    `messages` (roles `tool` or `user`) are shown to the model before its next turn and are never trained on; `done`
    ends the episode. `counts` are for the log (searches, invalid actions, ...), summed over the episode; nothing is
    paid for them.
    """

    messages: tuple[Message, ...] = ()
    done: bool = False
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward in [0, 1], why it was given, and the official metric where a task has one.

    `value` is what is trained on (hardened against shortcuts); `official` is the benchmark's own score of the same
    answer, for comparison with papers only.
    """

    value: float
    reason: str
    official: float | None = None
