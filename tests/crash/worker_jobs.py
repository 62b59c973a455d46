"""Entry points of the workers in test_worker.py: the real worker, with odd trainers and broken disks. Own processes."""

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llmzero import wiring
from llmzero.domain.errors import PhaseError, StateError, UsageError
from llmzero.domain.jobs import Job, JobPaths
from llmzero.domain.series import MetricRow
from llmzero.domain.types import PhaseResult, Status
from llmzero.ports import Task
from llmzero.store.atomic import write_json
from llmzero.trainers import worker

ENTRY = "worker_jobs:work"


ERRORS: dict[str, BaseException] = {
    "memory": MemoryError("no more"),
    "native memory": RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore lines"),
    "disk": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "native disk": RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    "bug": KeyError("oops"),
    "phase": PhaseError("mismatch", "trainer and sampler differ by 0.3 nats: check the dtype"),
    "unknown kind": PhaseError("tired", "the plug-in is tired"),
    "usage": UsageError("unknown field 'lr'"),
    "exit": SystemExit(5),
}


def odd(job: Job, report: Callable[[MetricRow], None], workdir: Path) -> PhaseResult:
    """Train two steps, then do what the job's option says."""
    what, paths = job.options["odd"], JobPaths(workdir)
    report(MetricRow(kind="eval", step=0, values={"score": 0.25, "se": 0.01}))
    for step in (1, 2):
        report(MetricRow(kind="train", step=step, values={"reward": step / 10}))
    print("from the trainer")
    if what != "no checkpoint":
        paths.checkpoint.mkdir()
        (paths.checkpoint / "a.safetensors").write_bytes(b"weights")
    if what == "metrics disk":
        paths.metrics.unlink()
        paths.metrics.symlink_to("/dev/full")
        report(MetricRow(kind="train", step=3))
    if what in ERRORS:
        raise ERRORS[what]
    score = {"no score": None, "nan": float("nan")}.get(what, 0.5)
    return PhaseResult(status=Status.FINISHED, steps_done=2, score=score, score_se=0.01)


class OddTrainer:
    """`odd` as a trainer."""

    def train(self, job: Job, task: Task, *, report: Any, should_stop: Any, workdir: Path) -> PhaseResult:
        return odd(job, report, workdir)


def refuse(times: int) -> Callable[[Path, Any], None]:
    """`write_json` on a disk that is full for the first writes, then has room."""
    left = times

    def write(path: Path, value: Any) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise StateError(f"disk full while writing {path}") from OSError(errno.ENOSPC, "No space left on device")
        write_json(path, value)

    return write


def _options(spec: Path) -> dict[str, str]:
    try:
        options = json.loads(spec.read_text()).get("options", {})
    except (OSError, ValueError, AttributeError):
        return {}
    return dict(options)


def work(job_dir: str) -> None:
    """The worker as it is, but for the task, which the trainers here never look at."""
    wiring.make_task = lambda name, *, data="mini", seed=0: None  # type: ignore[assignment, return-value]
    options = _options(JobPaths(Path(job_dir)).spec)
    if "odd" in options:
        wiring.make_trainer = lambda name: OddTrainer()  # type: ignore[assignment, return-value]
    if "refused" in options:
        vars(worker)["write_json"] = refuse(int(options["refused"]))
    worker.main(job_dir)


if __name__ == "__main__":
    work(sys.argv[1])
