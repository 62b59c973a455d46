"""Embedded base models: tiny Qwen3-shaped folders that TRL and transformers load like any other, offline, on a CPU."""

from __future__ import annotations

from pathlib import Path

from llmzero.domain.errors import UsageError

_HERE = Path(__file__).resolve().parent


def nano_path(task_name: str) -> Path:
    """The shipped base model of a task, as a Hugging Face folder; UsageError naming the known ones otherwise."""
    known = sorted(config.parent.name for config in _HERE.glob("*/config.json"))
    if task_name not in known:
        raise UsageError(
            f"no embedded base model for task {task_name!r} (there is one for {', '.join(known) or 'none'}): "
            "name another --model, a folder or a Hugging Face id"
        )
    return _HERE / task_name
