"""A model of a few hundred parameters, a task of one letter, and phases of a few steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmzero.domain.config import EvalConfig
from llmzero.domain.examples import Example, Message, Reward, Split, Transcript
from llmzero.domain.jobs import Job, Weights
from llmzero.domain.series import MetricRow
from llmzero.domain.types import HyperParams, Phase, PhaseResult
from llmzero.ports import Task, Trainer

LETTERS = "abcdefgh"
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
EVAL = EvalConfig(curve_items=6, curve_samples=2, samples=2, max_completion_tokens=6)


class Letters:
    """Reward: the share of the answer's letters that are the asked one."""

    name = "letters"

    def examples(self, split: Split) -> Sequence[Example]:
        return [Example(f"{split}-{i}", f"kind{i % 2}", {"letter": LETTERS[i % 4]}) for i in range(10)]

    def prompt(self, example: Example) -> tuple[Message, ...]:
        return ({"role": "user", "content": str(example.fields["letter"])},)

    def reward(self, example: Example, transcript: Transcript) -> Reward:
        answer = transcript.answer
        return Reward(answer.count(str(example.fields["letter"])) / max(1, len(answer)), "share of the letter")


def tiny_tokenizer() -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[PAD]", "<|end|>", "<|user|>", "<|assistant|>", *LETTERS]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        eos_token="<|end|>",
        additional_special_tokens=words[2:4],
        padding_side="left",
        model_max_length=64,
    )
    fast.chat_template = TEMPLATE
    return fast


def tiny_model(folder: Path, seed: int = 0) -> Path:
    """A random Qwen3 folder; another seed gives other weights."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen3Config(
        vocab_size=4 + len(LETTERS),
        head_dim=8,
        intermediate_size=32,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        **shape,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def job_of(start: Path, *, anchor: Path | None = None, phase: dict[str, Any] | None = None, **hyper: Any) -> Job:
    """A train job of 4 steps of 4x4 completions, evaluated every 2."""
    values = {"learning_rate": 1e-2, "kl_coef": 0.01, "group_size": 4, "prompts_per_step": 4}
    given = {"id": "n1", "parent": "n0", "steps": 4, "eval_every": 2, "seed": 3, **(phase or {})}
    return Job(
        kind="train",
        phase=Phase(hyper=HyperParams(**{**values, "max_completion_tokens": 6, **hyper}), **given),
        start=Weights(path=str(start)),
        anchor=Weights(path=str(anchor or start)),
        task="letters",
        data="mini",
        model="tiny",
        trainer="",
        eval=EVAL,
        threads=1,
    )


@dataclass
class Played:
    """A finished run of a trainer."""

    result: PhaseResult
    rows: list[MetricRow] = field(default_factory=list)
    folder: Path = Path()

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def train_rows(self) -> list[MetricRow]:
        return [row for row in self.rows if row.kind == "train"]


def play(
    trainer: Trainer,
    job: Job,
    folder: Path,
    *,
    task: Task | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Played:
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[MetricRow] = []
    result = trainer.train(job, task or Letters(), report=rows.append, should_stop=should_stop, workdir=folder)
    return Played(result, rows, folder)


def weight_bytes(folder: Path) -> dict[str, bytes]:
    """The checkpoint's weight files (or, where there are none, all files)."""
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.iterdir())
    return {file.name: file.read_bytes() for file in files}
