"""The README.md of an exported folder: what it trains, how, and what it reached. Free text of models stays out."""

from __future__ import annotations

from llmzero.domain.types import Scalar
from llmzero.exports.schema import ScheduleDoc, Stage

_USAGE = """\
## Run it

    pip install -r requirements.txt
    python train.py

| option | meaning |
|---|---|
| `--model PATH` | start from another base model (a folder or a Hugging Face id) |
| `--output DIR` | where the stages' weights go (default `outputs`) |
| `--stages 1-3` | only these stages; the ones before must be there already |
| `--evaluate` | score every stage on validation data as the search did, into `scores.json` |

Stopped half-way? The same command goes on with the first unfinished stage. A stage that was edited after it was trained
is refused: remove its folder (and those after it), or give another `--output`.

## Change it

- `stages/stage*.yaml` hold plain TRL `GRPOConfig` fields. TRL counts weight updates: `max_steps` is steps times
  updates per batch. `handover_update` ends a stage early without shortening its learning-rate schedule.
- Your own reward: replace the body of `make_reward` in `train.py`. Your own prompts: replace `make_dataset`.
- Several processes (`accelerate launch train.py`): divide `per_device_train_batch_size` by their number, so that the
  batch stays the same.
- GPU memory short: lower `per_device_train_batch_size` and raise `gradient_accumulation_steps` and
  `steps_per_generation` by the same factor.
"""


def readme(doc: ScheduleDoc) -> str:
    """Markdown text; names of tasks and models are shown as code."""
    base = doc.provenance
    lines = [
        f"# A training strategy of {len(doc.stages)} stage{'s' if len(doc.stages) > 1 else ''}, for TRL",
        "",
        f"Found by LLMZero {code(base.llmzero)} in the run {code(base.run)}: task {code(base.task)}, data "
        f"{code(base.data)}, base model {code(base.model)}. `strategy.yaml` tells the whole story.",
        "",
        *_scores(doc),
        "",
        "| stage | from | steps | handed over after | changed against the stage before | validation score |",
        "|---|---|---|---|---|---|",
        *(_row(stage) for stage in doc.stages),
        "",
        "A step is one batch of rollouts. Every stage starts with a fresh optimizer.",
        "",
    ]
    return "\n".join(lines) + "\n" + _USAGE


def code(text: str) -> str:
    """Text of a user as inline code, safe in a Markdown table."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    plain = " ".join(printable.split()).replace("`", "'").replace("|", "/")
    return f"`{plain}`" if plain else "(none)"


def _scores(doc: ScheduleDoc) -> list[str]:
    end, lines = doc.outcome, []
    if end.score is not None:
        base = f", base model {_score(end.base_score, end.base_score_se)}" if end.base_score is not None else ""
        lines.append(f"Validation: {_score(end.score, end.score_se)}{base} (score +- standard error).")
    if end.test is not None:
        base = f", base model {_score(end.base_test.score, end.base_test.se)}" if end.base_test else ""
        lines.append(f"Test ({end.test.items} items): {_score(end.test.score, end.test.se)}{base}.")
    return lines or ["Not scored yet."]


def _score(score: float | None, se: float | None) -> str:
    return "-" if score is None else f"{score:.3f}" + (f" +- {se:.3f}" if se is not None else "")


def _row(stage: Stage) -> str:
    changes = ", ".join(code(f"{c.field} {_value(c.old)} -> {_value(c.new)}") for c in stage.changes) or "nothing"
    cells = (stage.stage, stage.starts_from, stage.steps, stage.handover_step, changes)
    return f"| {' | '.join(map(str, cells))} | {_score(stage.score, stage.score_se)} |"


def _value(value: Scalar) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
