"""How a worker ended, as far as its process and the kernel tell."""

import os
import signal
from pathlib import Path

import pytest

from llmzero.domain.jobs import JobPaths
from llmzero.domain.types import FailureKind
from llmzero.executors import local, watch


@pytest.fixture(name="paths")
def _paths(tmp_path: Path) -> JobPaths:
    paths = JobPaths(tmp_path)
    paths.spec.touch()
    return paths


@pytest.mark.parametrize("struck", [False, True])
def test_a_kill_by_the_kernels_memory_killer_is_out_of_memory(paths: JobPaths, *, struck: bool) -> None:
    state = watch.ended(-signal.SIGKILL, paths, out_of_memory=struck)
    assert state.failure is (FailureKind.OUT_OF_MEMORY if struck else FailureKind.DIED)
    assert "memory" in state.message
    assert watch.ended(3, paths, out_of_memory=True).failure is FailureKind.DIED, "it ended by itself"


def test_the_executor_notices_the_memory_killer(paths: JobPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter([4, 5])
    monkeypatch.setattr(local, "oom_kills", lambda: next(kills))

    class Killed:
        exitcode = -signal.SIGKILL

    job = local._Watched(paths, watch.Pulse(paths.heartbeat), Killed(), oom_kills=local.oom_kills())  # type: ignore[arg-type]
    assert local.LocalExecutor("a:b")._how_it_ended(job).failure is FailureKind.OUT_OF_MEMORY


def test_kills_are_counted_where_the_kernel_counts_them() -> None:
    assert watch.oom_kills() >= 0


def test_a_dead_workers_time_is_counted(paths: JobPaths) -> None:
    assert watch.ended(3, paths).wall_s == 0
    began = paths.spec.stat().st_mtime
    paths.heartbeat.touch()
    os.utime(paths.heartbeat, (began + 90, began + 90))
    assert watch.ended(3, paths).wall_s == pytest.approx(90, abs=0.01)
    paths.spec.unlink()
    assert watch.ended(3, paths).wall_s == 0
