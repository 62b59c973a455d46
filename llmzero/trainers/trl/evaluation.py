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
from llmzero.ports import Task
from llmzero.trainers.trl.rewards import reward_of
from llmzero.trainers.trl.weights import Policy

MAX_SEQUENCES = 512
MAX_TOKENS = 262_144
"""Bounds of one generated batch: sequences, and sequences times (prompt + completion) tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample. Temperature 0 is greedy, with one sample whatever `samples` says."""

    samples: int
    temperature: float
    max_completion_tokens: int
    seed: int


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
        for chunk, answers, count in _sampled(policy, task, examples, sampling):
            tokens += count
            for example, texts in zip(chunk, answers, strict=True):
                values = [reward_of(task, example, Transcript.of(text)) for text in texts]
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
) -> Iterator[tuple[Sequence[Example], list[list[str]], int]]:
    """Chunks of examples with `samples` answers each and the number of generated tokens."""
    prompts = encode(policy.tokenizer, [list(task.prompt(example)) for example in examples])
    width = max(map(len, prompts)) + sampling.max_completion_tokens
    sequences = max(1, min(MAX_SEQUENCES, MAX_TOKENS // width))
    size = max(1, sequences // sampling.samples)
    for start in range(0, len(examples), size):
        ids = _generate(policy, prompts[start : start + size], sampling)
        texts = policy.tokenizer.batch_decode(ids, skip_special_tokens=True)
        grouped = [texts[i : i + sampling.samples] for i in range(0, len(texts), sampling.samples)]
        yield examples[start : start + size], grouped, sum(map(len, ids))


def encode(tokenizer: Any, prompts: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Token ids of chats, ready for the assistant's turn."""
    encoded = tokenizer.apply_chat_template(prompts, add_generation_prompt=True, tokenize=True, return_dict=True)
    return [list(ids) for ids in encoded["input_ids"]]


def _generate(policy: Policy, prompts: Sequence[list[int]], sampling: Sampling) -> list[list[int]]:
    """Completion ids, cut after their end token, `samples` in a row for each prompt."""
    import torch

    inputs = policy.tokenizer.pad({"input_ids": list(prompts)}, return_tensors="pt", padding_side="left")
    inputs = {name: inputs[name].to(policy.model.device) for name in ("input_ids", "attention_mask")}
    cuda = policy.model.device.type == "cuda"
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=cuda):
        output = policy.model.generate(**inputs, generation_config=_generation_config(policy, sampling))
    rows = output[:, inputs["input_ids"].shape[1] :].tolist()
    return [_cut(row, policy.eos_ids) for row in rows]


def _generation_config(policy: Policy, sampling: Sampling) -> Any:
    """Every choice is stated: a model folder's own sampling defaults (top_k 50, penalties) would leak in otherwise."""
    from transformers import GenerationConfig

    greedy = sampling.temperature == 0
    choice = {} if greedy else {"temperature": sampling.temperature, "top_p": 1.0, "top_k": 0}
    return GenerationConfig(
        do_sample=not greedy,
        **choice,
        num_return_sequences=sampling.samples,
        max_new_tokens=sampling.max_completion_tokens,
        repetition_penalty=1.0,
        pad_token_id=policy.tokenizer.pad_token_id,
        eos_token_id=list(policy.eos_ids),
        disable_compile=True,
    )


def _cut(ids: list[int], eos_ids: tuple[int, ...]) -> list[int]:
    end = next((i for i, token in enumerate(ids) if token in eos_ids), len(ids))
    return ids[: end + 1]


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
