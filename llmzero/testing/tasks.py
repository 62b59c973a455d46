"""The conformance suite of `ports.Task`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import ClassVar

from llmzero.domain.examples import SPLITS, Example, Message, Split, Transcript
from llmzero.ports import Task
from llmzero.testing.checks import refuses

ROLES = {"system", "user", "assistant", "tool"}

ODD_ANSWERS: tuple[str, ...] = (
    "",
    " \n\t",
    "\0",
    "\ud800",
    "\u202e{}\u200b",
    "😀" * 50,
    "<think>",
    "</think>",
    "{",
    "{}" * 100,
    "[" * 20_000,
    '{"answer": ' * 2_000,
    '{"output": null, "count": [], "answer": {}}',
    '{"output": "NaN", "count": "-1", "answer": 1e999}',
    '{"count": "٣", "output": "²"}',
    "9" * 5_000,
    "-inf",
    "C" * 50_000,
    "C1CC",
    "(" * 500,
    "$$$ %s %d {0} {answer}",
    "```json\n{}\n```",
)
"""Answers that broke a reward somewhere: empty, unpaired, too deep, too long, not a number, not text."""


class TaskContract:
    """What every task promises. `data` is the data source the suite reads (one that needs no network)."""

    factory: ClassVar[Callable[..., Task]]
    data: ClassVar[str] = "mini"

    def make(self, seed: int = 0) -> Task:
        return type(self).factory(data=type(self).data, seed=seed)

    def test_it_has_a_name(self) -> None:
        task = self.make()
        assert isinstance(task, Task), "name, examples, prompt or reward is missing"
        assert isinstance(task.name, str) and task.name, f"name is {task.name!r}"

    def test_every_split_has_examples(self) -> None:
        task = self.make()
        for split in SPLITS:
            assert len(task.examples(split)) > 0, f"split {split} is empty"

    def test_a_split_is_always_the_same_in_the_same_order(self) -> None:
        task = self.make()
        for split in SPLITS:
            first = list(task.examples(split))
            assert list(task.examples(split)) == first, f"{split}: asked again, it is another"
            assert list(self.make().examples(split)) == first, f"{split}: built again from one seed, it is another"

    def test_ids_name_one_example(self) -> None:
        task = self.make()
        for split in SPLITS:
            ids = [example.id for example in task.examples(split)]
            assert len(set(ids)) == len(ids), f"{split}: an id is used twice"

    def test_splits_share_no_question(self) -> None:
        task = self.make()
        asked = {split: {str(task.prompt(e)) for e in task.examples(split)} for split in SPLITS}
        for split in ("validation", "test"):
            for other in SPLITS:
                shared = asked[split] & asked[other] if other != split else set()
                assert not shared, f"{split} and {other} share {len(shared)} questions, e.g. {min(shared, default='')}"

    def test_fields_are_json(self) -> None:
        task = self.make()
        for example in _some(task):
            text = json.dumps(dict(example.fields), allow_nan=False)
            assert json.loads(text) == dict(example.fields), f"{example.id}: fields change on their way through JSON"
            assert isinstance(example.subtask, str), f"{example.id}: subtask is {example.subtask!r}"

    def test_a_prompt_ends_with_the_question(self) -> None:
        task = self.make()
        for example in _some(task):
            prompt = task.prompt(example)
            assert isinstance(prompt, tuple) and prompt, f"{example.id}: prompt is {prompt!r}"
            for message in prompt:
                assert message["role"] in ROLES, f"{example.id}: role {message['role']!r}"
                assert isinstance(message["content"], str), f"{example.id}: content is {message['content']!r}"
            assert prompt[-1]["role"] != "assistant", f"{example.id}: the prompt ends with an answer"
            assert task.prompt(example) == prompt, f"{example.id}: asked again, the prompt is another"

    def test_a_reward_withstands_any_answer(self) -> None:
        task = self.make()
        for example in _some(task):
            for transcript in _odd_transcripts(task, example):
                reward = task.reward(example, transcript)
                shown = f"{example.id}, answer {transcript.answer[:40]!r}"
                assert 0.0 <= reward.value <= 1.0, f"{shown}: reward {reward.value} is not in [0, 1]"
                assert isinstance(reward.reason, str) and reward.reason, f"{shown}: no reason given"
                assert task.reward(example, transcript) == reward, f"{shown}: scored again, the reward is another"

    def test_only_the_model_is_rewarded(self) -> None:
        """A right answer in a message the model did not write earns no more than saying nothing."""
        task = self.make()
        for example, right in _right_answers(task):
            nothing = task.reward(example, Transcript.of("")).value
            for role in ("system", "user", "tool"):
                foreign: Message = {"role": role, "content": right}
                for messages in ((foreign,), (foreign, _said("")), (_said(""), foreign)):
                    value = task.reward(example, Transcript(messages)).value
                    assert value <= nothing, f"{example.id}: a {role} message with the answer earns {value}"

    def test_policies_keep_to_their_bounds(self) -> None:
        """For a task that brings policies: what `llmzero task check` shows."""
        from llmzero.tasks.base import check

        task = self.make()
        policies = task.policies() if hasattr(task, "policies") else ()
        kinds = {policy.kind for policy in policies}
        assert not kinds or kinds >= {"oracle", "noop"}, f"policies of kind oracle and noop are missing: {kinds}"
        for row in check(task, policies, "validation"):
            assert row.ok, f"policy {row.policy!r} earns {row.mean_reward:.3f}; its bound is {row.bound:.3f}"

    def test_a_right_answer_is_not_in_its_prompt(self) -> None:
        """For a task that brings policies."""
        task = self.make()
        for example, right in _right_answers(task):
            text = "\n".join(message["content"] for message in task.prompt(example))
            assert right not in text, f"{example.id}: the prompt holds the right answer {right!r}"

    def test_the_card_is_json(self) -> None:
        """For a task with `describe()`: what `llmzero task show` prints."""
        task = self.make()
        card = task.describe() if hasattr(task, "describe") else {"name": task.name}
        assert card.get("name") == task.name, f"the card names {card.get('name')!r}"
        assert not refuses(TypeError, lambda: json.dumps(card)), "the card holds what is not JSON"


def _some(task: Task, count: int = 12) -> Iterator[Example]:
    """Examples spread over every split."""
    for split in SPLITS:
        yield from _spread(task, split, count)


def _spread(task: Task, split: Split, count: int) -> list[Example]:
    examples = task.examples(split)
    return list(examples[:: max(1, len(examples) // count)])[:count]


def _said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _odd_transcripts(task: Task, example: Example) -> Iterator[Transcript]:
    yield Transcript(())
    yield Transcript(task.prompt(example))
    yield Transcript((_said("a"), {"role": "tool", "content": "b"}, _said("c")))
    yield from (Transcript.of(text) for text in ODD_ANSWERS)


def _right_answers(task: Task) -> Iterator[tuple[Example, str]]:
    """Examples with the answer of the task's oracle policy; none for a task without policies."""
    policies = task.policies() if hasattr(task, "policies") else ()
    for policy in (p for p in policies if p.kind == "oracle"):
        yield from ((e, policy.answer(e)) for e in _some(task) if policy.applies(e))
