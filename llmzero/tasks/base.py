"""Rules every task shares: how an answer is read, and how a task proves its reward is hard to fool.

A reward reads only what the model wrote, ignores `<think>` blocks, takes the last answer, gives nothing when two
answers differ, bounds the length it looks at, and never raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, Protocol

from llmzero.domain.examples import Example, Message, Split, Transcript
from llmzero.ports import Task, is_multi_turn

MAX_ANSWER_CHARS = 8_000
"""A longer answer is not read at all: it scores 0."""

_MAX_OBJECTS = 64
_THINK = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)

PolicyKind = Literal["oracle", "noop", "unsolved", "shortcut"]


@dataclass(frozen=True, slots=True)
class Policy:
    """A fixed way of answering, with the mean reward it may earn.

    For kind `oracle`, `bound` is the least allowed mean; for the others, the most. `subtasks` limits the policy to the
    items it makes sense for (empty: all items). `answer` is the reply to the question; in a multi-turn task `act` gives
    every reply instead, from the item and the messages so far (without it the one reply is `answer`).
    """

    name: str
    kind: PolicyKind
    bound: float
    answer: Callable[[Example], str]
    subtasks: frozenset[str] = frozenset()
    act: Callable[[Example, Sequence[Message]], str] | None = None

    def applies(self, example: Example) -> bool:
        return not self.subtasks or example.subtask in self.subtasks


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One policy's result; `ok` says whether the bound held.

    `official` is the benchmark's own mean, given only for a policy limited to some sub-tasks: metrics do not mix.
    """

    policy: str
    kind: PolicyKind
    split: Split
    n: int
    mean_reward: float
    bound: float
    ok: bool
    official: float | None = None


class CheckableTask(Task, Protocol):
    """A task that ships the policies its reward must withstand."""

    def policies(self) -> Sequence[Policy]: ...


def visible(text: object) -> str:
    """What counts as answer text: no `<think>` block (an unclosed one hides the rest), nothing over the length cap."""
    if not isinstance(text, str) or len(text) > MAX_ANSWER_CHARS:
        return ""
    shown = _THINK.sub("", text)
    return shown if "</think>" not in shown else shown.rsplit("</think>", 1)[1]


def json_answers(text: object, key: str) -> list[str | int]:
    """Every value the model gave for `key` in the JSON objects of its visible text, in order; [] when there is none.

    Only objects at the top level count, and a key written twice in one object gives two values.
    """
    found: list[str | int] = []
    for pairs in _objects(visible(text)):
        for name, value in pairs:
            if name == key and isinstance(value, (str, int)) and not isinstance(value, bool):
                found.append(value)
    return found


def single(answers: Iterable[str | int]) -> str | None:
    """The one answer given, stripped; None when there is none or when two answers differ."""
    distinct = {str(answer).strip() for answer in answers}
    return distinct.pop() if len(distinct) == 1 else None


def check(task: Task, policies: Sequence[Policy], split: Split = "test", limit: int | None = None) -> list[CheckRow]:
    """Score every policy on a split (its first `limit` items); a policy no item applies to gives no row."""
    examples = task.examples(split)[:limit]
    rows = (_check_one(task, policy, split, examples) for policy in policies)
    return [row for row in rows if row is not None]


def check_task(task: CheckableTask, splits: Sequence[Split] = ("validation", "test")) -> list[CheckRow]:
    """All policies of a task on the splits that scores are reported on: the table of `llmzero task check`."""
    return [row for split in splits for row in check(task, task.policies(), split)]


def play(task: Task, example: Example, policy: Policy) -> Transcript:
    """The transcript of one example answered by a policy, through the task's environment where it has one."""
    if not is_multi_turn(task):
        return Transcript.of(policy.answer(example))
    environment = task.environment(example)
    messages = list(environment.reset())
    begin = len(messages)
    for _ in range(environment.max_turns if policy.act else 1):
        reply = policy.act(example, messages) if policy.act else policy.answer(example)
        messages.append({"role": "assistant", "content": reply})
        observation = environment.step(reply)
        if observation.done:
            break
        messages += observation.messages
    return Transcript(tuple(messages[begin:]))


def _check_one(task: Task, policy: Policy, split: Split, examples: Sequence[Example]) -> CheckRow | None:
    items = [example for example in examples if policy.applies(example)]
    if not items:
        return None
    rewards = [task.reward(item, play(task, item, policy)) for item in items]
    mean = fmean(reward.value for reward in rewards)
    official = [reward.official for reward in rewards if reward.official is not None and policy.subtasks]
    return CheckRow(
        policy=policy.name,
        kind=policy.kind,
        split=split,
        n=len(items),
        mean_reward=mean,
        bound=policy.bound,
        ok=mean >= policy.bound if policy.kind == "oracle" else mean <= policy.bound,
        official=fmean(official) if official else None,
    )


def _objects(text: str) -> Iterator[list[tuple[str, object]]]:
    """Top-level JSON objects found anywhere in a text, each as its key-value pairs in written order."""
    decoder = json.JSONDecoder(object_pairs_hook=_Pairs)
    position, tries = text.find("{"), 0
    while position >= 0 and tries < _MAX_OBJECTS:
        tries += 1
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            position = text.find("{", position + 1)
            continue
        if isinstance(value, _Pairs):
            yield list(value)
        position = text.find("{", end)


class _Pairs(list[tuple[str, object]]):
    """Marks a decoded object, so that an array of pairs is not taken for one."""
