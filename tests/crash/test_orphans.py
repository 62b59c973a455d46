"""A worker outlives its controller and its fork server; the next controller finds it. Real processes, really killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import executor_kit
import pytest
from executor_kit import PATIENCE_S, job, outcome, started, until

from llmzero.domain.errors import StateError
from llmzero.domain.jobs import JobPaths, JobState
from llmzero.domain.types import FailureKind
from llmzero.executors import watch
from llmzero.executors.local import LocalExecutor


@pytest.fixture(name="executor")
def _executor() -> Iterator[LocalExecutor]:
    executor = LocalExecutor(entry=executor_kit.ENTRY)
    yield executor
    executor.close()


def orphan(job_dir: Path, how: signal.Signals) -> int:
    """A worker whose controller, a process of its own, was just ended by a signal to its whole group."""
    controller = subprocess.Popen(
        [sys.executable, str(executor_kit.__file__), str(job_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    until(JobPaths(job_dir).heartbeat.exists)
    if how is signal.SIGKILL:
        os.kill(controller.pid, how)
    else:
        os.killpg(controller.pid, how)  # as a terminal does
    output, _ = controller.communicate(timeout=PATIENCE_S)  # returns only when nobody holds the pipe any more
    assert output == b"submitted\n"
    pid = watch.lock_pid(JobPaths(job_dir).lock)
    assert pid is not None
    return pid


def test_a_worker_outlives_its_killed_controller(executor: LocalExecutor, tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.until_stopped)
    pid = orphan(job_dir, signal.SIGKILL)
    time.sleep(0.5)
    assert executor.attach(job_dir) == executor.attach(job_dir) == JobState(state="running")
    assert executor.worker_pid(job_dir) == pid
    with pytest.raises(StateError, match=f"process {pid}"):
        executor.submit(job_dir)
    assert executor.poll(0.3) == {job_dir: JobState(state="running")}
    executor.stop(job_dir)
    assert outcome(executor, job_dir).state == "done"
    assert JobPaths(job_dir).result.read_text() == str(pid)


def test_an_orphan_that_dies_is_dead(executor: LocalExecutor, tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.until_stopped)
    pid = orphan(job_dir, signal.SIGKILL)
    assert executor.attach(job_dir).state == "running"
    os.kill(pid, signal.SIGKILL)
    state = outcome(executor, job_dir)
    assert (state.state, state.failure) == ("dead", FailureKind.DIED)


def test_an_orphan_that_hangs_is_killed(tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.hang)
    pid = orphan(job_dir, signal.SIGKILL)
    executor = LocalExecutor(entry=executor_kit.ENTRY, hang_after_s=0.5)
    assert executor.attach(job_dir).state == "running"
    assert outcome(executor, job_dir).failure is FailureKind.HANG
    assert not watch.pid_alive(pid)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_terminal_spares_the_worker(
    executor: LocalExecutor, tmp_path: Path, how: signal.Signals
) -> None:
    job_dir = job(tmp_path, executor_kit.until_stopped)
    pid = orphan(job_dir, how)
    assert executor.attach(job_dir).state == "running"
    executor.stop(job_dir)
    assert outcome(executor, job_dir).state == "done"
    assert JobPaths(job_dir).result.read_text() == str(pid)


def test_a_script_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.finish)
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path[:0] = [{str(Path(executor_kit.__file__).parent)!r}]\n"
        "from pathlib import Path; from llmzero.executors.local import LocalExecutor\n"
        "print('the script runs', flush=True)\n"
        f"executor, job = LocalExecutor(entry={executor_kit.ENTRY!r}), Path({str(job_dir)!r})\n"
        "executor.submit(job)\nprint(executor.poll(30.0)[job].state)\nexecutor.close()\n"
    )
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr) == ("the script runs\ndone\n", "")


def server_pid() -> int:
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    assert isinstance(pid, int)
    return pid


def test_a_killed_fork_server_costs_no_worker(executor: LocalExecutor, tmp_path: Path) -> None:
    """The running worker goes on and is still watched; the next one gets a new server."""
    before, after = job(tmp_path, executor_kit.until_stopped, "n1"), job(tmp_path, executor_kit.finish, "n2")
    pid = started(executor, before)
    os.kill(server_pid(), signal.SIGKILL)
    executor.submit(after)
    assert outcome(executor, after).state == "done"
    assert executor.attach(before).state == "running"
    executor.stop(before)
    assert outcome(executor, before).state == "done"
    assert JobPaths(before).result.read_text() == str(pid)


def test_a_worker_killed_after_its_fork_server_is_dead(executor: LocalExecutor, tmp_path: Path) -> None:
    job_dir = job(tmp_path, executor_kit.until_stopped)
    pid = started(executor, job_dir)
    os.kill(server_pid(), signal.SIGKILL)
    assert executor.poll(0.5)[job_dir].state == "running"
    os.kill(pid, signal.SIGKILL)
    assert outcome(executor, job_dir).failure is FailureKind.DIED


PRELOAD = """
import os, pathlib
deaths = pathlib.Path(__file__).with_name("deaths")
died = len(deaths.read_text()) if deaths.exists() else 0
if died < {deaths}:
    deaths.write_text("x" * (died + 1))
    os._exit(1)
"""


@pytest.mark.parametrize("deaths", [1, 100])
def test_a_fork_server_that_dies_while_it_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int) -> None:
    """Once (memory was short): the worker starts all the same. Each time: one line, and no endless tries."""
    (tmp_path / f"deadly_{deaths}.py").write_text(PRELOAD.format(deaths=deaths))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # the server looks nowhere else for what it preloads
    forkserver.ensure_running()
    os.kill(server_pid(), signal.SIGKILL)
    until(lambda: not watch.pid_alive(server_pid()))
    executor = LocalExecutor(entry=executor_kit.ENTRY, preload=(f"deadly_{deaths}",))
    job_dir = job(tmp_path, executor_kit.finish)
    if deaths == 1:
        executor.submit(job_dir)
        assert outcome(executor, job_dir).state == "done"
    else:
        with pytest.raises(StateError, match=r"ends before it starts a worker.*deadly_100"):
            executor.submit(job_dir)
        assert executor.poll(0.0) == {}
        assert executor.attach(job_dir).state == "absent"
    assert (tmp_path / "deaths").read_text() == "x" * min(deaths, 4)
