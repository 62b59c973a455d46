"""For tests of executors: workers that behave in every way, second controllers, and ways to wait for them."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from llmzero.domain.jobs import JobPaths, JobState
from llmzero.executors.local import LocalExecutor
from llmzero.ports import Executor
from llmzero.store.atomic import write_text
from llmzero.store.locks import take

ENTRY = "executor_kit:work"
PATIENCE_S = 30.0


def work(job_dir: str) -> None:
    """A worker that keeps the contract (lock, heartbeat, result last) and does what its phase.json says."""
    paths = JobPaths(Path(job_dir))
    if take(paths.lock, wait_s=1.0) is None:
        return
    paths.heartbeat.touch()
    for stream in (1, 2):  # a worker's output is its own
        os.dup2(os.open(paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    BEHAVIOURS[paths.spec.read_text()](paths)


def finish(paths: JobPaths) -> None:
    write_text(paths.result, f"{os.getpid()}")


def until_stopped(paths: JobPaths) -> None:
    while not paths.stop.exists():
        paths.heartbeat.touch()
        time.sleep(0.02)
    finish(paths)


def hang(paths: JobPaths) -> None:
    while True:
        time.sleep(60)


def never_exit(paths: JobPaths) -> None:
    finish(paths)
    hang(paths)


def exit_74(paths: JobPaths) -> None:
    raise SystemExit(74)


def exit_3(paths: JobPaths) -> None:
    raise SystemExit(3)


def abort(paths: JobPaths) -> None:
    os.abort()


def family(paths: JobPaths) -> None:
    """Leaves a child that outlives it, as a data loader may, then dies."""
    if os.fork() == 0:
        write_text(paths.root / "child", f"{os.getpid()}")
        hang(paths)
    until_stopped(paths)


BEHAVIOURS: dict[str, Callable[[JobPaths], None]] = {
    behaviour.__name__: behaviour
    for behaviour in (finish, until_stopped, hang, never_exit, exit_74, exit_3, abort, family)
}


def job(folder: Path, behaviour: Callable[[JobPaths], None], name: str = "n1") -> Path:
    paths = JobPaths(folder / name)
    paths.root.mkdir()
    paths.spec.write_text(behaviour.__name__)
    return paths.root


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def outcome(executor: Executor, job_dir: Path) -> JobState:
    """The first state of a job that is not `running`."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        state = executor.poll(1.0)[job_dir]
        if state.state != "running":
            return state
    raise AssertionError("the job never ended")


def started(executor: LocalExecutor, job_dir: Path) -> int:
    """The pid of a job's worker, once it works."""
    executor.submit(job_dir)
    until(JobPaths(job_dir).heartbeat.exists)
    pid = executor.worker_pid(job_dir)
    assert pid is not None
    return pid


def controller(job_dir: str) -> None:
    """A controller of its own: submits one job, says so, and waits to be killed."""
    executor = LocalExecutor(entry=ENTRY)
    executor.submit(Path(job_dir))
    print("submitted", flush=True)
    try:
        executor.poll(60.0)
    except KeyboardInterrupt:
        os._exit(0)  # at once: an ordinary exit waits for the worker


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests were started with nohup
    controller(sys.argv[1])
