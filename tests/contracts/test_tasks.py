"""The task suite over the built-in task, and over tasks broken in every way it looks for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from contract_kit import caught, promises_of

from llmzero.domain.examples import Example, Message, Reward, Split, Transcript
from llmzero.tasks.base import Policy
from llmzero.tasks.chemcot.task import chemcot
from llmzero.testing import TaskContract

SPLITS: dict[Split, range] = {"train": range(80), "validation": range(80, 90), "test": range(90, 100)}
CALLS = itertools.count()


class TestChemCoT(TaskContract):
    factory = chemcot


@dataclass(frozen=True)
class Sums:
    """A task that keeps the contract: add two digits."""

    data: str = "mini"
    seed: int = 0
    name: str = "sums"
    splits: dict[Split, range] = field(default_factory=lambda: dict(SPLITS))

    def examples(self, split: Split) -> Sequence[Example]:
        return [Example(f"{n}", "sum", {"a": n // 10, "b": n % 10, "gold": _sum(n)}) for n in self.splits[split]]

    def prompt(self, example: Example) -> tuple[Message, ...]:
        return ({"role": "user", "content": f"{example.fields['a']} + {example.fields['b']} ="},)

    def reward(self, example: Example, transcript: Transcript) -> Reward:
        right = transcript.answer.strip() == example.fields["gold"]
        return Reward(float(right), "right" if right else "wrong")

    def policies(self) -> Sequence[Policy]:
        right = Policy("right", "oracle", 1.0, lambda e: str(e.fields["gold"]))
        return (right, Policy("nothing", "noop", 0.0, lambda e: ""))

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}


def _sum(n: int) -> str:
    return f"the sum is {n // 10 + n % 10}"


class TestSums(TaskContract):
    factory = Sums


class Nameless(Sums):
    def __init__(self, **_: object) -> None:
        super().__init__(name="")


class Untested(Sums):
    def __init__(self, **_: object) -> None:
        super().__init__(splits={**SPLITS, "test": range(0)})


class Leaky(Sums):
    def __init__(self, **_: object) -> None:
        super().__init__(splits={**SPLITS, "validation": range(70, 85)})


class Shuffled(Sums):
    def examples(self, split: Split) -> Sequence[Example]:
        items = list(super().examples(split))
        return items[next(CALLS) % 2 :: 1]


class OneId(Sums):
    def examples(self, split: Split) -> Sequence[Example]:
        return [replace(e, id="same") for e in super().examples(split)]


class Tuples(Sums):
    def examples(self, split: Split) -> Sequence[Example]:
        return [replace(e, fields={**e.fields, "pair": (1, 2)}) for e in super().examples(split)]


class Prefilled(Sums):
    def prompt(self, example: Example) -> tuple[Message, ...]:
        return (*super().prompt(example), {"role": "assistant", "content": "It is"})


class Telling(Sums):
    def prompt(self, example: Example) -> tuple[Message, ...]:
        return ({"role": "user", "content": f"Say: {example.fields['gold']}"},)


class Long(Sums):
    """Pays for length."""

    def reward(self, example: Example, transcript: Transcript) -> Reward:
        return Reward(len(transcript.answer) / 100, "long")


class Dice(Sums):
    def reward(self, example: Example, transcript: Transcript) -> Reward:
        return Reward(next(CALLS) % 2 / 2, "by chance")


class Unparsing(Sums):
    """Reads the whole transcript as an answer."""

    def reward(self, example: Example, transcript: Transcript) -> Reward:
        text = "".join(m["content"] for m in transcript.messages)
        return Reward(float(str(example.fields["gold"]) in text), "found or not")


class Generous(Sums):
    def policies(self) -> Sequence[Policy]:
        return (*super().policies(), Policy("always right", "shortcut", 0.1, lambda e: str(e.fields["gold"])))


class SetCard(Sums):
    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "kinds": {"sum"}}


BROKEN: list[tuple[str, type[Sums]]] = [
    ("test_it_has_a_name", Nameless),
    ("test_every_split_has_examples", Untested),
    ("test_a_split_is_always_the_same_in_the_same_order", Shuffled),
    ("test_ids_name_one_example", OneId),
    ("test_splits_share_no_question", Leaky),
    ("test_fields_are_json", Tuples),
    ("test_a_prompt_ends_with_the_question", Prefilled),
    ("test_a_right_answer_is_not_in_its_prompt", Telling),
    ("test_a_reward_withstands_any_answer", Long),
    ("test_a_reward_withstands_any_answer", Dice),
    ("test_only_the_model_is_rewarded", Unparsing),
    ("test_policies_keep_to_their_bounds", Generous),
    ("test_the_card_is_json", SetCard),
]


@pytest.mark.parametrize(("test", "task"), BROKEN)
def test_the_suite_catches(test: str, task: type[Sums], tmp_path: Path) -> None:
    assert caught(type("Suite", (TaskContract,), {"factory": task}), test, tmp_path)


def test_every_test_of_the_suite_can_fail() -> None:
    assert {test for test, _ in BROKEN} == set(promises_of(TaskContract))
