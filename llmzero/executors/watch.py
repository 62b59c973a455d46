"""Is a worker alive, and if not, how did it end: read from its job folder, its process and the kernel."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

from llmzero.domain.jobs import EXIT_CANNOT_WRITE, JobPaths, JobState
from llmzero.domain.types import FailureKind

UNKNOWN_EXIT = 255
"""What multiprocessing reports when the fork server died before the worker did."""


def standing(paths: JobPaths) -> JobState:
    """How the job stands, from its folder alone. A job that was written but never picked up is `absent`."""
    if paths.result.exists():
        return JobState(state="done")
    if not paths.spec.exists():
        return JobState(state="absent")
    if lock_held(paths.lock):
        return JobState(state="running")
    if paths.result.exists():  # it ended between the two looks
        return JobState(state="done")
    return ended(None, paths) if paths.lock.exists() else JobState(state="absent")


def ended(exit_code: int | None, paths: JobPaths, *, out_of_memory: bool = False) -> JobState:
    """The state of a worker that left no result; negative codes are signals, None is unknown.

    `out_of_memory` says that the kernel's out-of-memory killer struck while the worker ran.
    """
    kind, message = FailureKind.DIED, "the worker ended without a result"
    if exit_code == EXIT_CANNOT_WRITE:
        kind, message = FailureKind.DISK_FULL, "the worker could not write its result (disk full?)"
    elif exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        message = "killed by signal 9 (often the kernel's out-of-memory killer)"
        if out_of_memory:
            kind, message = FailureKind.OUT_OF_MEMORY, "killed by the kernel: out of memory"
    elif exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name if -exit_code in set(signal.Signals) else "unknown"
        message = f"killed by signal {-exit_code} ({name})"
    elif exit_code is not None and exit_code != UNKNOWN_EXIT:
        message = f"the worker exited with code {exit_code} without a result"
    return JobState(state="dead", failure=kind, message=f"{message}; see {paths.log}", wall_s=lived_s(paths))


def lived_s(paths: JobPaths) -> float:
    """Seconds from the job's order to the last trace its worker left."""
    traces = [_modified(path) for path in (paths.log, paths.heartbeat, paths.metrics)]
    began = _modified(paths.spec)
    return max(0.0, max(traces) - began) if began else 0.0


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def oom_kills() -> int:
    """How many processes the kernel killed for memory since it booted; 0 where it does not count them (Linux does)."""
    try:
        lines = Path("/proc/vmstat").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def lock_held(path: Path) -> bool:
    """Whether a living process holds the lock file; takes it for no longer than the look."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def lock_pid(path: Path) -> int | None:
    """The pid of the process that holds the lock; None when nobody does."""
    for _ in range(10):
        if not lock_held(path):
            return None
        text = path.read_text("ascii", errors="replace").strip()
        if text.isdigit() and pid_alive(int(text)):
            return int(text)
        time.sleep(0.01)  # taken this instant, its pid is not written yet
    return None


def pid_alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace").rpartition(")")[2].split()
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OSError:
        return not Path("/proc/self/stat").exists()  # a system without /proc: the signal was delivered
    return bool(state) and state[0] not in ("Z", "X")


def end_group(pid: int, *, wait_s: float = 5.0) -> None:
    """SIGKILL a worker and everything it started; returns once it is gone, or after `wait_s`."""
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:  # not yet a session of its own: the group is still ours
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + wait_s
    while pid_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)


class Pulse:
    """Watches a heartbeat file for changes, on the monotonic clock: a clock jump or a suspended machine is no hang."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._stamp()
        self._since = time.monotonic()

    def silent_s(self) -> float:
        """Seconds since the file last changed, as far as this object has seen."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen, self._since = stamp, time.monotonic()
        return time.monotonic() - self._since

    def _stamp(self) -> int:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0
