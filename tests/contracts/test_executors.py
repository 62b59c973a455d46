"""The executor suite over LocalExecutor and over broken ones; below, what LocalExecutor promises beyond the suite.

Real processes, really killed.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import executor_kit
import pytest
from contract_kit import caught, promises_of
from executor_kit import PATIENCE_S, job, outcome, started, until

from llmzero.domain.errors import StateError
from llmzero.domain.jobs import JobPaths, JobState
from llmzero.domain.types import FailureKind
from llmzero.executors import watch
from llmzero.executors.local import LocalExecutor
from llmzero.testing import ExecutorContract


class TestLocal(ExecutorContract):
    factory = LocalExecutor


class Deaf(LocalExecutor):
    def stop(self, job_dir: Path) -> None:
        return


class Forgetful(LocalExecutor):
    """Knows nothing of what another controller started."""

    def attach(self, job_dir: Path) -> JobState:
        return super().attach(job_dir) if job_dir in self._watched else JobState(state="absent")


class Optimist(LocalExecutor):
    """Takes a worker that ended for one that is done."""

    def poll(self, timeout_s: float) -> Mapping[Path, JobState]:
        states = super().poll(timeout_s)
        return {k: JobState(state="done") if v.state == "dead" else v for k, v in states.items()}


class Patient(LocalExecutor):
    """Never takes a silent worker for a hung one."""

    def __init__(self, entry: str, hang_after_s: float, **rest: object) -> None:
        super().__init__(entry)


class Polite(LocalExecutor):
    """Asks a worker to stop where it should end it."""

    def kill(self, job_dir: Path) -> None:
        self.stop(job_dir)


class Sleepy(LocalExecutor):
    """Waits the whole timeout, whatever ends meanwhile."""

    def poll(self, timeout_s: float) -> Mapping[Path, JobState]:
        time.sleep(timeout_s)
        return super().poll(0.0)


class Restless(LocalExecutor):
    def poll(self, timeout_s: float) -> Mapping[Path, JobState]:
        return super().poll(0.0)


class Leaving(LocalExecutor):
    """Lets its workers live on."""

    def close(self) -> None:
        self._watched.clear()


class Open(LocalExecutor):
    """Starts a worker wherever it is told to."""

    def submit(self, job_dir: Path) -> None:
        if not self._watched and JobPaths(job_dir).spec.exists():
            super().submit(job_dir)


BROKEN: list[tuple[str, type[LocalExecutor]]] = [
    ("test_a_job_runs_to_its_result", Forgetful),
    ("test_a_poll_returns_when_a_job_ends_and_tells_of_every_job", Sleepy),
    ("test_a_poll_without_an_end_keeps_to_its_timeout", Restless),
    ("test_stop_ends_a_job_early_with_its_score", Deaf),
    ("test_a_dead_worker_is_dead_and_its_job_can_run_again", Optimist),
    ("test_a_silent_worker_is_hung", Patient),
    ("test_kill_ends_a_worker_at_once", Polite),
    ("test_two_workers_never_share_a_folder", Open),
    ("test_a_folder_without_a_job_is_refused", Open),
    ("test_a_new_controller_finds_a_living_worker", Forgetful),
    ("test_close_ends_every_worker", Leaving),
]


@pytest.mark.parametrize(("test", "executor"), BROKEN)
def test_the_suite_catches(test: str, executor: type[LocalExecutor], tmp_path: Path) -> None:
    suite = type("Suite", (ExecutorContract,), {"factory": executor, "patience_s": 4.0, "hang_after_s": 1.0})
    assert caught(suite, test, tmp_path)


def test_every_test_of_the_suite_can_fail() -> None:
    assert {test for test, _ in BROKEN} == set(promises_of(ExecutorContract))


# --- what LocalExecutor promises beyond the suite


@pytest.fixture(name="executor")
def _executor() -> Iterator[LocalExecutor]:
    executor = LocalExecutor(entry=executor_kit.ENTRY)
    yield executor
    executor.close()


def test_a_job_runs_to_its_result(executor: LocalExecutor, tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.finish)
    assert executor.attach(job_dir).state == "absent"
    executor.submit(job_dir)
    assert outcome(executor, job_dir) == JobState(state="done")
    assert executor.attach(job_dir) == JobState(state="done")
    assert executor.poll(0.0) == {}, "an ended job is reported once"


def test_jobs_run_side_by_side_and_the_first_end_wakes_the_poll(executor: LocalExecutor, tmp_path: Path) -> None:
    slow = job(tmp_path, executor_kit.until_stopped, "n1")
    quick = job(tmp_path, executor_kit.finish, "n2")
    executor.submit(slow)
    executor.submit(quick)
    began = time.monotonic()
    states = executor.poll(PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S / 2
    assert (states[slow].state, states[quick].state) == ("running", "done")
    assert executor.poll(0.0) == {slow: JobState(state="running")}


def test_stop_lets_the_worker_finish(executor: LocalExecutor, tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.until_stopped)
    started(executor, job_dir)
    executor.stop(job_dir)
    executor.stop(job_dir)
    assert outcome(executor, job_dir).state == "done"


def test_a_killed_worker_is_dead_and_its_job_runs_again(executor: LocalExecutor, tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.until_stopped)
    os.kill(started(executor, job_dir), signal.SIGKILL)
    state = outcome(executor, job_dir)
    assert (state.state, state.failure) == ("dead", FailureKind.DIED)
    assert "killed by signal 9 (often the kernel's out-of-memory killer)" in state.message
    assert executor.attach(job_dir).state == "dead"
    executor.submit(job_dir)
    executor.stop(job_dir)
    assert outcome(executor, job_dir).state == "done"


@pytest.mark.parametrize(
    ("behaviour", "failure", "message"),
    [
        (executor_kit.exit_74, FailureKind.DISK_FULL, "disk full"),
        (executor_kit.exit_3, FailureKind.DIED, "exited with code 3 without a result"),
        (executor_kit.abort, FailureKind.DIED, "killed by signal 6 (SIGABRT)"),
    ],
)
def test_an_end_without_a_result_says_how(
    executor: LocalExecutor,
    tmp_path: Path,
    behaviour: Callable[[JobPaths], None],
    failure: FailureKind,
    message: str,
) -> None:
    job_dir = job(tmp_path, behaviour)
    executor.submit(job_dir)
    state = outcome(executor, job_dir)
    assert (state.state, state.failure) == ("dead", failure)
    assert message in state.message
    assert "\n" not in state.message
    assert str(job_dir / "log.txt") in state.message


def test_kill_ends_the_worker_and_says_so(executor: LocalExecutor, tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.until_stopped)
    pid = started(executor, job_dir)
    executor.kill(job_dir)
    assert not watch.pid_alive(pid)
    state = outcome(executor, job_dir)
    assert (state.state, state.failure, state.message) == ("dead", FailureKind.DIED, "killed on request")
    executor.kill(job_dir)


def test_a_silent_worker_is_hung(tmp_path: Path) -> None:
    executor = LocalExecutor(entry=executor_kit.ENTRY, hang_after_s=0.6)
    silent, lively = job(tmp_path, executor_kit.hang, "n1"), job(tmp_path, executor_kit.until_stopped, "n2")
    pid = started(executor, silent)
    started(executor, lively)
    state = outcome(executor, silent)
    assert (state.state, state.failure) == ("dead", FailureKind.HANG)
    assert "no sign of life" in state.message
    assert not watch.pid_alive(pid)
    executor.poll(1.5)
    assert executor.attach(lively).state == "running"
    executor.close()
    assert executor.attach(lively).state == "dead"


def test_a_worker_that_does_not_exit_after_its_result_is_ended(executor: LocalExecutor, tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.never_exit)
    pid = started(executor, job_dir)
    assert outcome(executor, job_dir).state == "done"
    assert not watch.pid_alive(pid)


def test_two_workers_never_share_a_folder(executor: LocalExecutor, tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.until_stopped)
    executor.submit(job_dir)
    with pytest.raises(StateError, match="already runs in"):
        executor.submit(job_dir)
    until(JobPaths(job_dir).heartbeat.exists)
    other = LocalExecutor(entry=executor_kit.ENTRY)
    with pytest.raises(StateError, match=f"process {executor.worker_pid(job_dir)}"):
        other.submit(job_dir)


def test_a_folder_without_a_job_is_refused(executor: LocalExecutor, tmp_path: Path) -> None:
    assert executor.attach(tmp_path).state == "absent"
    with pytest.raises(StateError, match=r"phase\.json is missing"):
        executor.submit(tmp_path)


def test_a_dead_worker_is_dead_though_its_child_lives(executor: LocalExecutor, tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.family)
    pid = started(executor, job_dir)
    until((job_dir / "child").exists)
    child = int((job_dir / "child").read_text())
    os.kill(pid, signal.SIGKILL)
    assert outcome(executor, job_dir).state == "dead"
    assert LocalExecutor(entry=executor_kit.ENTRY).attach(job_dir).state == "dead"
    os.kill(child, signal.SIGKILL)


def test_close_ends_every_worker_with_its_children(executor: LocalExecutor, tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.family)
    pid = started(executor, job_dir)
    until((job_dir / "child").exists)
    executor.close()
    executor.close()
    child = int((job_dir / "child").read_text())
    until(lambda: not watch.pid_alive(pid) and not watch.pid_alive(child))


def test_later_phases_start_fast(executor: LocalExecutor, tmp_path: Path) -> None:
    took = []
    for number in range(5):
        job_dir = job(tmp_path, executor_kit.finish, f"n{number}")
        began = time.monotonic()
        executor.submit(job_dir)
        assert outcome(executor, job_dir).state == "done"
        took.append(time.monotonic() - began)
    print("start to result, seconds:", [round(seconds, 3) for seconds in took])
    assert min(took[1:]) < 2.0
