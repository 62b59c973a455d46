"""Makes an embedded base model: a fixed tiny shape, warm-started on a noisy annotator's demonstrations.

    python -m llmzero.trainers.nano.build --task chemcot --out DIR

Seeded: the same command gives the same folder on the same machine and library versions.
It takes under two minutes on two idle cores.
"""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from llmzero.domain.examples import Message
from llmzero.trainers.nano.tokenizer import build_tokenizer

SHAPE: dict[str, Any] = {
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "intermediate_size": 256,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
IGNORED = -100


@dataclass(frozen=True, slots=True)
class WarmStart:
    """How the base is trained. `demos` counts the questions drawn; a task may make several demonstrations of one."""

    steps: int = 1300
    batch: int = 64
    learning_rate: float = 3e-3
    demos: int = 5_000
    seed: int = 0


class Demos(Protocol):
    """What a task's `demos` module offers: words worth a token, and (prompt, answer) pairs to start from."""

    def words(self) -> Sequence[str]: ...

    def demonstrations(self, count: int, seed: int) -> Iterable[tuple[Sequence[Message], str]]: ...


def build_nano(task: str, out: Path, recipe: WarmStart = WarmStart()) -> Path:
    """Writes the model and tokenizer folder and returns it; ValueError for a task without demonstrations."""
    source = demos_of(task)
    tokenizer = build_tokenizer(source.words())
    rows = [_row(tokenizer, *pair) for pair in source.demonstrations(recipe.demos, recipe.seed)]
    model = _new_model(tokenizer, recipe.seed)
    _train(model, rows, tokenizer.pad_token_id, recipe)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out


def demos_of(task: str) -> Demos:
    """The task's `demos` module, found by name: this room knows no task."""
    try:
        return cast(Demos, import_module(f"llmzero.tasks.{task}.demos"))
    except ModuleNotFoundError as error:
        raise ValueError(f"task {task!r} has no demonstrations (no module llmzero.tasks.{task}.demos)") from error


def _new_model(tokenizer: Any, seed: int) -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    ids: dict[str, Any] = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **ids, **SHAPE))


def _row(tokenizer: Any, messages: Sequence[Message], answer: str) -> tuple[list[int], int]:
    """Token ids of prompt and answer, and how many of them are prompt."""
    text = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
    prompt, written = tokenizer(text)["input_ids"], tokenizer(answer)["input_ids"]
    return [*prompt, *written, tokenizer.eos_token_id], len(prompt)


def _train(model: Any, rows: Sequence[tuple[list[int], int]], pad: int, recipe: WarmStart) -> None:
    import torch

    rng = random.Random(recipe.seed + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.learning_rate, recipe.steps, pct_start=0.1)
    started = time.monotonic()
    model.train()
    for step in range(recipe.steps):
        loss = model(**_batch(rng.sample(rows, recipe.batch), pad)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}, {time.monotonic() - started:.0f} s", file=sys.stderr)


def _batch(rows: Sequence[tuple[list[int], int]], pad: int) -> dict[str, Any]:
    """Right-padded tensors; only answers are learned."""
    import torch

    width = max(len(ids) for ids, _ in rows)
    inputs = [ids + [pad] * (width - len(ids)) for ids, _ in rows]
    masks = [[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in rows]
    labels = [[IGNORED] * n + ids[n:] + [IGNORED] * (width - len(ids)) for ids, n in rows]
    named = {"input_ids": inputs, "attention_mask": masks, "labels": labels}
    return {name: torch.tensor(values) for name, values in named.items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build an embedded base model.")
    parser.add_argument("--task", default="chemcot")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=WarmStart().steps)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    print(build_nano(options.task, options.out, WarmStart(steps=options.steps, seed=options.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
