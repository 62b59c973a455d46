"""Makes the stored curves of the diagnosis set: trains each case's phases in a row and writes a run folder of it.

The same worker, executor, phases and seeds as in a search; only the proposals come from the labels file. What is
trained lies in benchmarks/work/ and is never trained again; cases that begin alike share their phases.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from common import WORK, _run_job
from diagnosis_cases import HOME, Case
from llmzero import models, wiring
from llmzero.domain.codec import to_json
from llmzero.domain.config import RunConfig
from llmzero.domain.errors import StateError
from llmzero.domain.events import Event, PhaseFinished, PhaseProposed, RunStarted, Tree, apply
from llmzero.domain.jobs import Job, JobPaths, Weights
from llmzero.domain.series import METRICS, MetricRow, eval_points, summarise
from llmzero.domain.types import ROOT, Change, NodeId, Phase, PhaseResult, Proposal, Selection
from llmzero.ports import Executor
from llmzero.search.phases import BASE_PROPOSAL, BASE_SELECTION, base_phase, next_phase, train_job
from llmzero.settings import load_settings
from llmzero.store.journal import Journal
from llmzero.store.layout import RunPaths
from llmzero.store.metrics import append_row, read_rows

DIGITS = 4
"""Significant digits of a stored metric."""
STORED = (*METRICS, "score", "se")
"""What is stored of a row; a worker's own counters are not."""
NOT_CHANGES = ("steps", "kl_anchor")


@dataclass(slots=True)
class _Path:
    """A case while it is made: its events, its rows, the weights its next phase starts from."""

    tree: Tree
    start: Weights
    base: Weights
    trained: Path
    events: list[Event] = field(default_factory=list)
    rows: dict[NodeId, list[MetricRow]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        self.tree = apply(self.tree, event)
        self.events.append(event)


def make_case(case: Case, home: Path = HOME, *, work: Path = WORK / "diagnosis", trainer: str = "trl") -> None:
    """Train what is missing of a case under `work`, then write its folder in `home` anew."""
    flags = {"seed": case.seed, "keep": case.keep, "workers": 1, "threads": 1, "trainer": trainer}
    config = load_settings(None, flags)
    config = replace(config, versions=models.versions(config))
    executor = wiring.make_executor(config)
    try:
        path = _train_path(case, config, executor, work / "trained")
    finally:
        executor.close()
    _write(home / case.name, path, work / "making")


def _train_path(case: Case, config: RunConfig, executor: Executor, trained: Path) -> _Path:
    base = models.base_weights(config)
    path = _Path(Tree(), base, base, trained)
    path.add(RunStarted(run=f"diagnosis-{case.seed}", config=config))
    _train(path, executor, base_phase(path.tree), BASE_SELECTION, BASE_PROPOSAL)
    for changes in case.phases:
        parent = list(path.tree.nodes)[-1]
        selection = Selection(parent=parent, kind="uct", reason="the next phase of a fixed schedule")
        _train(path, executor, *_next(path.tree, selection, changes))
    return path


def _next(tree: Tree, selection: Selection, changes: Mapping[str, Any]) -> tuple[Phase, Selection, Proposal]:
    """A phase of a schedule: its proposal names no pathology, so that no label stands in what an agent reads."""
    fields = tuple(Change(field=name, value=value) for name, value in changes.items() if name not in NOT_CHANGES)
    asked = Proposal(
        proposer="schedule",
        pathology="",
        diagnosis="",
        changes=fields,
        steps=changes.get("steps"),
        kl_anchor=changes.get("kl_anchor"),
    )
    phase, proposal = next_phase(tree, selection, asked)
    return phase, selection, proposal


def _train(path: _Path, executor: Executor, phase: Phase, selection: Selection, proposal: Proposal) -> None:
    job = train_job(path.tree, phase, path.start, path.base)
    folder = path.trained / _key(job)
    result = _run_job(executor, folder, job)
    if result.score is None:
        raise StateError(f"{folder}: {phase.id} {result.status}: {result.message}; remove the folder to try again")
    rows = [_rounded(row) for row in read_rows(JobPaths(folder).metrics)]
    path.rows[phase.id] = rows
    path.add(PhaseProposed(phase=phase, selection=selection, proposal=proposal))
    path.add(PhaseFinished(node=phase.id, result=_as_stored(result, phase, rows)))
    if result.checkpoint:
        path.start = Weights(path=str(JobPaths(folder).checkpoint.resolve()), digest=result.checkpoint.digest)


def _key(job: Job) -> str:
    """The same for the same training wherever it runs: weights by their digests."""
    start, anchor = (Weights(path="", digest=each.digest) for each in (job.start, job.anchor))
    plain = json.dumps(to_json(replace(job, start=start, anchor=anchor)), sort_keys=True)
    return f"{job.phase.id}-{hashlib.sha256(plain.encode()).hexdigest()[:16]}"


def _rounded(row: MetricRow) -> MetricRow:
    values = {name: float(f"{value:.{DIGITS}g}") for name, value in row.values.items() if name in STORED}
    return replace(row, values=values, at_s=round(row.at_s, 2))


def _as_stored(result: PhaseResult, phase: Phase, rows: Iterable[MetricRow]) -> PhaseResult:
    """The result with the summaries of the rows as they are stored, and its checkpoint's place in a run."""
    if phase.id == ROOT:
        return result
    kept = result.checkpoint and replace(result.checkpoint, path=f"phases/{phase.id}/checkpoint")
    rows = list(rows)
    return replace(result, summaries=summarise(rows), curve=eval_points(rows), checkpoint=kept)


def _write(folder: Path, path: _Path, scratch: Path) -> None:
    """A run folder of journal and metrics only; it stands once it is whole."""
    making = scratch / folder.name
    for old in (making, folder):
        shutil.rmtree(old, ignore_errors=True)
    paths = RunPaths(making)
    for node, rows in path.rows.items():
        job = JobPaths(paths.phase_dir(node))
        job.root.mkdir(parents=True)
        for row in rows:
            append_row(job.metrics, row)
    journal = Journal.create(paths.journal)
    for event in path.events:
        journal.append(event)
    journal.close()
    paths.lock.unlink()
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(making, folder)
