"""Workers on this machine: processes forked from a warm server, each with its own session and job folder.

A worker outlives its controller: it finishes its phase, and the next controller finds it by its lock or its result.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path

from llmzero.domain.errors import StateError
from llmzero.domain.jobs import JobPaths, JobState
from llmzero.domain.types import FailureKind
from llmzero.executors.watch import (
    UNKNOWN_EXIT,
    Pulse,
    end_group,
    ended,
    lived_s,
    lock_held,
    lock_pid,
    oom_kills,
    pid_alive,
    standing,
)

ATTACHED_EVERY_S = 0.2
"""How often a worker of another controller is looked at; our own wake us."""

OWN_EVERY_S = 1.0
"""How often our own workers' heartbeats are looked at."""

START_TRIES = 4


def run_entry(entry: str, job_dir: str) -> None:
    """In the worker: leave the terminal's session, then call `module:function` with the job's folder."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _leave_server()
    module, _, function = entry.partition(":")
    getattr(importlib.import_module(module), function)(job_dir)


def _leave_server() -> None:
    """Let multiprocessing's two helpers end with the controller.

    By default each worker keeps them, and through them the controller's terminal or pipe, alive. A worker that needs
    a helper later starts its own. The attributes are private; where a future Python lacks them, nothing happens.
    """
    for owner, name in ((forkserver, "_forkserver_alive_fd"), (resource_tracker, "_fd")):
        helper = getattr(owner, f"_{owner.__name__.rpartition('.')[2]}", None)
        handle = getattr(helper, name, None)
        if isinstance(handle, int):
            os.close(handle)
            setattr(helper, name, None)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """What is started inside never sees Ctrl-C: it inherits the signal mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    """What is started inside inherits these variables; this process keeps its own."""
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _main_hidden() -> Iterator[None]:
    """Keep workers from importing the script that runs the search: it costs time, and without a guard runs twice."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@dataclass(slots=True)
class _Watched:
    """A worker we look after. `process` is None when another controller, or a dead fork server, started it."""

    paths: JobPaths
    pulse: Pulse
    process: BaseProcess | None = None
    killed: bool = False
    oom_kills: int = field(default_factory=oom_kills)


class LocalExecutor:
    """Runs `entry` ("module:function") on job folders; `preload` modules are imported once, before the first worker.

    A worker whose heartbeat stands still for `hang_after_s` is killed and counts as hung (0 = never). `environment`
    is set in the fork server, and so in every worker.
    """

    def __init__(
        self,
        entry: str,
        preload: tuple[str, ...] = (),
        hang_after_s: float = 900.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._entry = entry
        self._environment = dict(environment or {})
        self._preload = [*preload, __name__, entry.partition(":")[0]]
        self._hang_after_s = hang_after_s
        self._context = multiprocessing.get_context("forkserver")
        self._watched: dict[Path, _Watched] = {}

    def warm(self) -> None:
        """Start the fork server; returns at once, the imports go on beside. Harmless when it runs already."""
        self._context.set_forkserver_preload(self._preload)
        try:
            resource_tracker.ensure_running()  # starting it unblocks SIGINT, so not inside
            with _interrupts_blocked(), _environment(self._environment):
                forkserver.ensure_running()
        except OSError as error:
            raise StateError(
                f"cannot start worker processes: {error.strerror or error}; is TMPDIR a short, writable path?"
            ) from error

    def submit(self, job_dir: Path) -> None:
        paths = JobPaths(job_dir)
        if not paths.spec.exists():
            raise StateError(f"no job at {job_dir}: {paths.spec.name} is missing")
        known = self._watched.get(job_dir)
        if lock_held(paths.lock) or (known is not None and self._alive(known)):
            raise StateError(f"a worker (process {self.worker_pid(job_dir)}) already runs in {job_dir}: attach to it")
        self._watched[job_dir] = _Watched(paths, Pulse(paths.heartbeat), self._start(job_dir))

    def attach(self, job_dir: Path) -> JobState:
        known = self._watched.get(job_dir)
        if known is not None:
            return self._look(known)
        paths = JobPaths(job_dir)
        state = standing(paths)
        if state.state == "running":
            self._watched[job_dir] = _Watched(paths, Pulse(paths.heartbeat))
        return state

    def poll(self, timeout_s: float) -> Mapping[Path, JobState]:
        """As the port says; an ended job is reported once. Returns at once when nothing is watched."""
        deadline = time.monotonic() + timeout_s
        while True:
            states = {job_dir: self._look(job) for job_dir, job in self._watched.items()}
            over = [job_dir for job_dir, state in states.items() if state.state != "running"]
            left_s = deadline - time.monotonic()
            if over or left_s <= 0 or not states:
                break
            self._wait(left_s)
        for job_dir in over:
            self._retire(self._watched.pop(job_dir))
        return states

    def stop(self, job_dir: Path) -> None:
        try:
            JobPaths(job_dir).stop.touch()
        except OSError as error:
            raise StateError(f"cannot ask the worker in {job_dir} to stop: {error.strerror}") from error

    def kill(self, job_dir: Path) -> None:
        job = self._watched.get(job_dir)
        if job is not None:
            job.killed = True
        pid = self.worker_pid(job_dir)
        if pid is not None:
            end_group(pid)

    def close(self) -> None:
        for job_dir in list(self._watched):
            self.kill(job_dir)
            self._retire(self._watched.pop(job_dir))

    def worker_pid(self, job_dir: Path) -> int | None:
        """The living worker's process id; None when there is none."""
        job = self._watched.get(job_dir)
        held = lock_pid(JobPaths(job_dir).lock)
        if held is None and job is not None and job.process is not None and self._alive(job):
            return job.process.pid
        return held

    def _start(self, job_dir: Path) -> BaseProcess:
        """A started worker; a fork server that was killed is replaced."""
        for _ in range(START_TRIES):
            self.warm()
            process = self._context.Process(target=run_entry, args=(self._entry, str(job_dir.absolute())))
            try:
                with _main_hidden():
                    process.start()
            except (ConnectionError, EOFError):
                time.sleep(0.05)
                continue
            return process
        raise StateError(
            f"the worker server ends before it starts a worker in {job_dir}: "
            f"try `python -c 'import {', '.join(self._preload)}'`; is there enough memory?"
        )

    def _look(self, job: _Watched) -> JobState:
        alive = self._alive(job)
        if job.paths.result.exists():
            return JobState(state="done")
        if not alive:
            return self._how_it_ended(job)
        silent_s = job.pulse.silent_s()
        if 0 < self._hang_after_s < silent_s:
            return self._end_hung(job, silent_s)
        return JobState(state="running")

    def _alive(self, job: _Watched) -> bool:
        """Whether a worker of the job lives: ours, or one that holds the lock."""
        process = job.process
        if process is None or process.exitcode is not None:
            orphaned = process is not None and process.exitcode == UNKNOWN_EXIT and pid_alive(process.pid or 0)
            return orphaned or lock_held(job.paths.lock)
        return True

    def _how_it_ended(self, job: _Watched) -> JobState:
        if job.killed:
            message, wall_s = "killed on request", lived_s(job.paths)
            return JobState(state="dead", failure=FailureKind.DIED, message=message, wall_s=wall_s)
        exit_code = None if job.process is None else job.process.exitcode
        return ended(exit_code, job.paths, out_of_memory=oom_kills() > job.oom_kills)

    def _end_hung(self, job: _Watched, silent_s: float) -> JobState:
        pid = self.worker_pid(job.paths.root)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)  # the worker writes into its log where it stands
            time.sleep(0.1)
            end_group(pid)
        if job.paths.result.exists():
            return JobState(state="done")
        message = f"no sign of life for {silent_s:.0f} s, so it was killed; where it stood is in {job.paths.log}"
        wall_s = lived_s(job.paths) + silent_s
        return JobState(state="dead", failure=FailureKind.HANG, message=message, wall_s=wall_s)

    def _wait(self, timeout_s: float) -> None:
        """Until one of our workers ends or it is time to look again."""
        processes = [job.process for job in self._watched.values() if job.process is not None]
        sentinels = [process.sentinel for process in processes if process.exitcode is None]
        every_s = OWN_EVERY_S if len(sentinels) == len(self._watched) else ATTACHED_EVERY_S
        if sentinels:
            multiprocessing.connection.wait(sentinels, timeout=min(timeout_s, every_s))
        else:
            time.sleep(min(timeout_s, every_s))

    def _retire(self, job: _Watched) -> None:
        """Reap an ended worker; one that has left its result but does not exit is ended."""
        deadline = time.monotonic() + 2.0
        while self._alive(job) and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._alive(job):
            pid = lock_pid(job.paths.lock) or (job.process.pid if job.process else None)
            if pid is not None:
                end_group(pid)
        if job.process is not None:
            job.process.join(1.0)
