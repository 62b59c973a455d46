"""Sampling tokens from a policy: whole answers for a score, single turns for an episode."""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llmzero.trainers.trl.weights import Policy

MAX_SEQUENCES = 512
MAX_TOKENS = 262_144
"""Bounds of one generated batch: sequences, and sequences times (context + completion) tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample. Temperature 0 is greedy, with one sample whatever `samples` says."""

    samples: int
    temperature: float
    max_completion_tokens: int
    seed: int


def sequences_at_once(width_tokens: int) -> int:
    """How many sequences of `width_tokens` (context and completion) one batch may hold."""
    return max(1, min(MAX_SEQUENCES, MAX_TOKENS // max(1, width_tokens)))


def encode(tokenizer: Any, prompts: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Token ids of chats, ready for the assistant's turn."""
    encoded = tokenizer.apply_chat_template(prompts, add_generation_prompt=True, tokenize=True, return_dict=True)
    return [list(ids) for ids in encoded["input_ids"]]


def generate(policy: Policy, contexts: Sequence[list[int]], config: Any, **how: Any) -> list[list[int]]:
    """Sampled token rows after each context, padded as `generate` leaves them; `how` goes to it."""
    import torch

    inputs = policy.tokenizer.pad({"input_ids": list(contexts)}, return_tensors="pt", padding_side="left")
    inputs = {name: inputs[name].to(policy.model.device) for name in ("input_ids", "attention_mask")}
    cuda = policy.model.device.type == "cuda"
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=cuda):
        output = policy.model.generate(**inputs, generation_config=config, **how)
    rows: list[list[int]] = output[:, inputs["input_ids"].shape[1] :].tolist()
    return rows


def answers(policy: Policy, prompts: Sequence[list[int]], sampling: Sampling) -> list[list[int]]:
    """Completion ids, cut after their end token, `samples` in a row for each prompt."""
    config = generation_config(policy, sampling)
    return [_cut(row, policy.eos_ids) for row in generate(policy, prompts, config)]


def generation_config(policy: Policy, sampling: Sampling) -> Any:
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


def turns(
    policy: Policy, contexts: Sequence[list[int]], config: Any, *, most_tokens: int, stop: Sequence[str]
) -> list[list[int]]:
    """One turn after each context, of `most_tokens` at most, cut after its end token or the token that completes a stop
    string; `config` says how to sample."""
    config = type(config).from_dict({**config.to_dict(), "max_new_tokens": most_tokens, "num_return_sequences": 1})
    how = {"stop_strings": list(stop), "tokenizer": policy.tokenizer} if stop else {}
    size = sequences_at_once(max(map(len, contexts)) + most_tokens)
    chunks = (contexts[start : start + size] for start in range(0, len(contexts), size))
    return [_cut_turn(row, policy, stop) for chunk in chunks for row in generate(policy, chunk, config, **how)]


def _cut(ids: list[int], eos_ids: tuple[int, ...]) -> list[int]:
    end = next((i for i, token in enumerate(ids) if token in eos_ids), len(ids))
    return ids[: end + 1]


def _cut_turn(ids: list[int], policy: Policy, stop: Sequence[str]) -> list[int]:
    """Without the padding after a stop string. Padding follows nothing else but an end token: other rows are full."""
    kept = _cut(ids, policy.eos_ids)
    if stop:
        filler, end = {*policy.eos_ids, policy.tokenizer.pad_token_id}, len(kept)
        while end and kept[end - 1] in filler:
            end -= 1
        text = policy.tokenizer.decode(kept[:end])
        if any(each in text for each in stop):
            return kept[:end]
    return kept


def chunks_of(count: int, size: int) -> Iterator[slice]:
    """Slices of `size` over `count` things."""
    return (slice(start, start + size) for start in range(0, count, size))
