"""The worker: one process, one job folder, one result.

Whatever happens it leaves a result.json that says so, or none at all (killed): then its lock is free and the
executor says how it ended. The result comes last, when everything it speaks of is on disk.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import math
import os
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from llmzero import wiring
from llmzero.domain.config import SCHEMA_VERSION
from llmzero.domain.errors import PhaseError, StateError, UsageError
from llmzero.domain.examples import Example, Reward, Transcript
from llmzero.domain.jobs import EXIT_CANNOT_WRITE, Job, JobPaths
from llmzero.domain.series import MetricRow, eval_points, summarise
from llmzero.domain.types import Checkpoint, Cost, FailureKind, PhaseResult, Status
from llmzero.ports import Task
from llmzero.store.atomic import TEMPORARY, read_json, write_json
from llmzero.store.checkpoints import sync_tree, verify, weights_digest
from llmzero.store.locks import take
from llmzero.store.metrics import append_row

ALIVE_EVERY_S = 1.0
"""Rewards touch the heartbeat no more often than this."""

LOCK_WAIT_S = 1.0
"""A look at the lock by an executor holds it for an instant; another worker holds it for good."""


def main(job_dir: str) -> None:
    """Run the job in `job_dir` to its result. Returns quietly when it has one, or when another worker is on it."""
    paths = JobPaths(Path(job_dir))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        lock = take(paths.lock, wait_s=LOCK_WAIT_S)
        if lock is None or paths.result.exists():
            return
        _log_to(paths.log)
    except (StateError, OSError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(EXIT_CANNOT_WRITE) from error
    run = _Run(paths)
    _leave(paths, _guarded(run))


@dataclass(slots=True)
class _Run:
    """What the worker gathers while it runs one job."""

    paths: JobPaths
    began: float = field(default_factory=time.monotonic)
    start_s: float = 0.0
    rows: list[MetricRow] = field(default_factory=list)

    def report(self, row: MetricRow) -> None:
        """Keep a row, on disk at once, and show that the phase is alive."""
        append_row(self.paths.metrics, row)
        self.rows.append(row)
        self.paths.heartbeat.touch()

    def should_stop(self) -> bool:
        """Whether the controller asked for an early end; shows that the phase is alive."""
        self.paths.heartbeat.touch()
        return self.paths.stop.exists()


class _Alive:
    """The task, its rewards counted as signs of life: a long evaluation calls nothing else of ours for minutes."""

    def __init__(self, task: Task, heartbeat: Path) -> None:
        self._task = task
        self._heartbeat = heartbeat
        self._next_s = 0.0

    def reward(self, example: Example, transcript: Transcript) -> Reward:
        if time.monotonic() >= self._next_s:
            self._heartbeat.touch()
            self._next_s = time.monotonic() + ALIVE_EVERY_S
        return self._task.reward(example, transcript)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)


def _log_to(path: Path) -> None:
    """Send everything this process prints to the log, tracebacks of crashes and of SIGUSR1 (a hang) included."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError):
            stream.flush()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    faulthandler.enable(2)
    faulthandler.register(signal.SIGUSR1, 2, all_threads=True)
    with contextlib.suppress(OSError):
        print(f"\n--- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, process {os.getpid()}", flush=True)


def _guarded(run: _Run) -> PhaseResult:
    try:
        return _run(run)
    except Exception as error:  # noqa: BLE001 (one of the two mains)
        with contextlib.suppress(OSError):
            traceback.print_exc()
        kind, message = _failure(error)
        return _failed(run, kind, f"{message} (see {_inside_run(run.paths)}/{run.paths.log.name})")


def _run(run: _Run) -> PhaseResult:
    job = _read_job(run.paths)
    with contextlib.suppress(OSError):  # a full disk is found out where it matters
        what = f"{job.kind} {job.phase.id}, {job.phase.steps} steps from {job.start.path}"
        print(f"attempt {job.attempt}: {what}", flush=True)
    _clear(run.paths)
    run.paths.heartbeat.touch()
    _set_threads(job)
    _check_weights(job)
    plain = wiring.make_task(job.task, data=job.data, seed=job.run_seed)
    task = cast(Task, _Alive(plain, run.paths.heartbeat))
    trainer = wiring.make_trainer(job.trainer)
    run.paths.heartbeat.touch()
    run.start_s = time.monotonic() - run.began
    root = run.paths.root
    if job.kind == "evaluate":
        result = trainer.evaluate(job, task, workdir=root)
    else:
        result = trainer.train(job, task, report=run.report, should_stop=run.should_stop, workdir=root)
    _check_result(job, run.paths, result)
    return _complete(run, result)


def _read_job(paths: JobPaths) -> Job:
    try:
        job = read_json(Job, paths.spec)
    except StateError as error:
        raise PhaseError(FailureKind.BAD_CONFIG, str(error)) from error
    if job.schema > SCHEMA_VERSION:
        message = f"{paths.spec} was written by a newer version of llmzero: upgrade with `pip install -U llmzero`"
        raise PhaseError(FailureKind.BAD_CONFIG, message)
    return job


def _clear(paths: JobPaths) -> None:
    """Remove what an earlier attempt left; the log goes on."""
    for path in (paths.metrics, paths.heartbeat, *paths.root.glob(f".*{TEMPORARY}")):
        path.unlink(missing_ok=True)
    if paths.checkpoint.exists():
        shutil.rmtree(paths.checkpoint)


def _set_threads(job: Job) -> None:
    """In a forked process it is too late for OMP_NUM_THREADS; torch is told, where it is used."""
    if job.trainer != "trl" and "torch" not in sys.modules:
        return
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(job.threads or max(1, cores // job.workers))


def _check_weights(job: Job) -> None:
    for weights in dict.fromkeys((job.start, job.anchor)):
        reason = verify(Path(weights.path), weights.digest) if weights.digest else ""
        if reason:
            advice = "it cannot be resumed from; start from another node or the base"
            raise PhaseError(FailureKind.BAD_CHECKPOINT, f"checkpoint {reason}: {advice}")


def _check_result(job: Job, paths: JobPaths, result: PhaseResult) -> None:
    """Refuse a result the search could not use: a trainer may be a plug-in."""
    if result.status is Status.FAILED:
        return
    if result.score is None:
        raise PhaseError(FailureKind.ERROR, f"the trainer {job.trainer!r} gave no score")
    if not math.isfinite(result.score):
        raise PhaseError(FailureKind.NAN, f"the score is {result.score}: training diverged; lower the learning rate")
    if job.kind == "train" and job.phase.steps > 0 and not paths.checkpoint.is_dir():
        raise PhaseError(FailureKind.ERROR, f"the trainer {job.trainer!r} left no checkpoint in {paths.checkpoint}")


def _complete(run: _Run, result: PhaseResult) -> PhaseResult:
    """The trainer's result with what only the worker knows: digest, times, and summaries the trainer left out."""
    if result.status is not Status.FAILED:
        result = replace(result, checkpoint=_checkpoint(run.paths, result))
    cost = replace(result.cost, wall_s=time.monotonic() - run.began, start_s=run.start_s + result.cost.start_s)
    return replace(
        result,
        cost=cost,
        summaries=result.summaries or summarise(run.rows),
        curve=result.curve or eval_points(run.rows),
    )


def _checkpoint(paths: JobPaths, result: PhaseResult) -> Checkpoint | None:
    """The weights the phase left in its folder; otherwise what the trainer says (the base model itself)."""
    if not paths.checkpoint.is_dir():
        return result.checkpoint
    step = result.checkpoint.step if result.checkpoint else result.steps_done
    path = f"{_inside_run(paths)}/{paths.checkpoint.name}"
    return Checkpoint(path=path, digest=weights_digest(paths.checkpoint), step=step)


def _inside_run(paths: JobPaths) -> str:
    """The job's folder relative to its run: phases/n3."""
    return f"{paths.root.parent.name}/{paths.root.name}"


def _failed(run: _Run, kind: FailureKind, message: str) -> PhaseResult:
    """A failure with everything learned before it."""
    steps = max((row.step for row in run.rows if row.kind == "train"), default=0)
    return PhaseResult(
        status=Status.FAILED,
        steps_done=steps,
        curve=eval_points(run.rows),
        summaries=summarise(run.rows),
        cost=Cost(wall_s=time.monotonic() - run.began, start_s=run.start_s, steps=steps),
        failure=kind,
        message=message,
    )


def _failure(error: BaseException) -> tuple[FailureKind, str]:
    """The kind and one line for whatever ended a phase."""
    first = (str(error).strip().splitlines() or [""])[0][:300]
    if isinstance(error, PhaseError):
        known = error.kind in set(FailureKind)
        return FailureKind(error.kind) if known else FailureKind.ERROR, first
    if _means(error, errno.ENOSPC, "No space left on device") or _means(error, errno.EDQUOT, "Disk quota exceeded"):
        return FailureKind.DISK_FULL, f"disk full: {first}; free space, then `llmzero resume`"
    if isinstance(error, MemoryError) or _means(error, errno.ENOMEM, "out of memory", "can't allocate memory"):
        return FailureKind.OUT_OF_MEMORY, f"out of memory: {first}"
    kind = FailureKind.BAD_CONFIG if isinstance(error, UsageError) else FailureKind.ERROR
    return kind, first if isinstance(error, UsageError | StateError) else f"{type(error).__name__}: {first}"


def _means(error: BaseException | None, code: int, *words: str) -> bool:
    """Whether an error, or one it came from, has the error number or speaks the words (native code gives no more)."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == code:
            return True
        if any(word in str(error) for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False


def _leave(paths: JobPaths, result: PhaseResult) -> None:
    """Write the result, last; when the disk refuses, give up the checkpoint for the sake of saying so."""
    if result.status is Status.FAILED:
        shutil.rmtree(paths.checkpoint, ignore_errors=True)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    try:
        sync_tree(paths.root)
        write_json(paths.result, result)
        return
    except (StateError, OSError) as error:
        print(f"cannot write the result: {error}", file=sys.stderr, flush=True)
        kind, message = _failure(error)
    shutil.rmtree(paths.checkpoint, ignore_errors=True)
    try:
        write_json(paths.result, replace(result, status=Status.FAILED, checkpoint=None, failure=kind, message=message))
    except StateError as error:
        raise SystemExit(EXIT_CANNOT_WRITE) from error
