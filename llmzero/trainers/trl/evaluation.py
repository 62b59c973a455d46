"""Scoring a policy on a task's items, by plain sampling.

All random numbers come from the given seed, and the caller's random state is as before afterwards: an evaluation never
changes the training around it, and every node of a run is scored with the same random numbers.
"""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llmzero.domain.examples import Example, Transcript
from llmzero.domain.statistics import clustered_score, mean
from llmzero.ports import MultiTurnTask, Task, is_multi_turn
from llmzero.trainers.trl.chat import Chat
from llmzero.trainers.trl.episodes import play
from llmzero.trainers.trl.generation import (
    Sampling,
    answers,
    chunks_of,
    encode,
    generation_config,
    sequences_at_once,
    turns,
)
from llmzero.trainers.trl.rewards import reward_of
from llmzero.trainers.trl.weights import Policy

EPISODE_TOKENS = 512
"""Assumed of an episode where the number played at once is decided; a batch of turns has its own exact bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A score over items, its standard error, the mean by subtask, and what it took."""

    score: float
    se: float
    items: int
    by_subtask: dict[str, float]
    generated_tokens: int
    reward_errors: int


def measure(policy: Policy, task: Task, examples: Sequence[Example], sampling: Sampling) -> Measured:
    """Score `examples`: an item's score is its mean over samples, the standard error is over items."""
    if sampling.temperature == 0:
        sampling = replace(sampling, samples=1)
    item_means: list[float] = []
    subtasks: dict[str, list[float]] = defaultdict(list)
    tokens = errors = 0
    with _undisturbed(sampling.seed), _evaluating(policy.model):
        for chunk, played, count in _sampled(policy, task, examples, sampling):
            tokens += count
            for example, transcripts in zip(chunk, played, strict=True):
                values = [None if each is None else reward_of(task, example, each) for each in transcripts]
                errors += values.count(None)
                item_means.append(mean([value or 0.0 for value in values]))
                subtasks[example.subtask].append(item_means[-1])
    score, se = clustered_score(item_means)
    by_subtask = {name: mean(values) for name, values in sorted(subtasks.items())}
    return Measured(
        score=score,
        se=se,
        items=len(examples),
        by_subtask=by_subtask,
        generated_tokens=tokens,
        reward_errors=errors,
    )


def _sampled(
    policy: Policy, task: Task, examples: Sequence[Example], sampling: Sampling
) -> Iterator[tuple[Sequence[Example], list[list[Transcript | None]], int]]:
    """Chunks of examples with `samples` transcripts each and the number of generated tokens.

    A transcript is None where the task's environment failed.
    """
    if is_multi_turn(task):
        yield from _episodes(policy, task, examples, sampling)
        return
    prompts = encode(policy.tokenizer, [list(task.prompt(example)) for example in examples])
    size = _at_once(max(map(len, prompts)) + sampling.max_completion_tokens, sampling)
    for chunk in chunks_of(len(examples), size):
        ids = answers(policy, prompts[chunk], sampling)
        texts = policy.tokenizer.batch_decode(ids, skip_special_tokens=True)
        yield examples[chunk], _grouped([Transcript.of(text) for text in texts], sampling), sum(map(len, ids))


def _episodes(
    policy: Policy, task: MultiTurnTask, examples: Sequence[Example], sampling: Sampling
) -> Iterator[tuple[Sequence[Example], list[list[Transcript | None]], int]]:
    """The same of a multi-turn task. The cap on tokens is for all turns of an episode together."""
    config, chat = generation_config(policy, sampling), Chat.of(policy)

    def sample(contexts: Sequence[list[int]], most_tokens: int, stop: Sequence[str]) -> list[list[int]]:
        return turns(policy, contexts, config, most_tokens=most_tokens, stop=stop)

    for chunk in chunks_of(len(examples), _at_once(EPISODE_TOKENS, sampling)):
        repeated = [example for example in examples[chunk] for _ in range(sampling.samples)]
        played = play(task, repeated, chat, sample, most_tokens=sampling.max_completion_tokens)
        transcripts = [None if episode.failed else episode.transcript for episode in played]
        yield examples[chunk], _grouped(transcripts, sampling), sum(e.written_tokens for e in played)


def _at_once(width_tokens: int, sampling: Sampling) -> int:
    return max(1, sequences_at_once(width_tokens) // sampling.samples)


def _grouped(transcripts: Sequence[Transcript | None], sampling: Sampling) -> list[list[Transcript | None]]:
    return [list(transcripts[chunk]) for chunk in chunks_of(len(transcripts), sampling.samples)]


@contextlib.contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextlib.contextmanager
def _undisturbed(seed: int) -> Iterator[None]:
    """Seeded inside; outside, every generator goes on as if nothing had happened."""
    import numpy as np
    import torch

    python, numpy = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
