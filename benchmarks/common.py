"""Shared by the benchmarks: stages trained outside a search, and tables. All of it can be cut off and resumed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmzero import models, wiring
from llmzero.domain.codec import to_json
from llmzero.domain.config import RunConfig
from llmzero.domain.jobs import Job, JobPaths, Weights
from llmzero.domain.seeds import derive_seed
from llmzero.domain.types import HyperParams, Phase, PhaseResult, Status
from llmzero.store.atomic import read_json, write_json

WORK = Path(__file__).parent / "work"


def run_search(out: Path, *flags: str) -> dict[str, Any]:
    """`llmzero search --json` with `flags`; its object is kept in `out`, and an interrupted run is resumed."""
    kept = out / "summary.json"
    if kept.is_file():
        return dict(json.loads(kept.read_text()))
    runs = sorted(path.parent for path in out.glob("*/journal.jsonl"))
    words = ["resume", str(runs[0])] if runs else ["search", *flags]
    done = subprocess.run(
        [sys.executable, "-m", "llmzero.cli", *words, "--out", str(out), "--json"], stdout=subprocess.PIPE, check=True
    )
    summary = dict(json.loads(done.stdout))
    write_json(kept, summary)
    return summary


def run_stages(out: Path, config: RunConfig, stages: Sequence[tuple[HyperParams, int]]) -> list[PhaseResult]:
    """Train stages in a row, each from the last one's checkpoint, then score the end on the test split.

    The same worker and executor as in a search; the last result is the test score.
    """
    config = replace(config, versions=models.versions(config))
    base = models.base_weights(config)
    executor = wiring.make_executor(config)
    results: list[PhaseResult] = []
    start = base
    try:
        for k, (hyper, steps) in enumerate(stages, start=1):
            phase = _phase(config, k, hyper, steps)
            results.append(_run_job(executor, out / "phases" / f"n{k}", _job(config, phase, start, base)))
            kept = results[-1].checkpoint
            if results[-1].status is not Status.FINISHED or kept is None:
                return results
            start = Weights(path=str((out / kept.path).resolve()), digest=kept.digest)
        test = replace(_job(config, phase, start, base), kind="evaluate", split="test")
        results.append(_run_job(executor, out / "jobs" / "test", test))
    finally:
        executor.close()
    return results


def _phase(config: RunConfig, k: int, hyper: HyperParams, steps: int) -> Phase:
    return Phase(
        id=f"n{k}",
        parent=f"n{k - 1}",
        hyper=hyper,
        steps=steps,
        eval_every=config.eval.every,
        seed=derive_seed(config.seed, f"n{k}"),
        kl_anchor=config.kl_anchor,
        keep=config.keep,
    )


def _job(config: RunConfig, phase: Phase, start: Weights, anchor: Weights) -> Job:
    return Job(
        kind="train",
        phase=phase,
        start=start,
        anchor=anchor if config.kl_anchor == "base" else start,
        task=config.task,
        data=config.data,
        model=config.model,
        trainer=config.trainer,
        eval=config.eval,
        threads=config.threads,
        run_seed=config.seed,
    )


def _run_job(executor: Any, folder: Path, job: Job) -> PhaseResult:
    folder = folder.resolve()
    paths = JobPaths(folder)
    if not paths.result.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(paths.spec, to_json(job))
        executor.submit(folder)
        while executor.poll(1.0)[folder].state == "running":
            pass
    return read_json(PhaseResult, paths.result)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def write_table(name: str, text: str) -> None:
    """Print a result and keep it beside the benchmarks."""
    (Path(__file__).parent / name).write_text(text + "\n", encoding="utf-8")
    print(text)
