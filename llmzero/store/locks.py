"""A lock file: an exclusive flock for as long as its holder lives, with the holder's pid written in it.

The kernel frees the lock when its holder dies, however it dies; the file itself is never removed. Processes forked
from the holder let go of it, so that they cannot keep it when the holder is dead.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from llmzero.domain.errors import StateError
from llmzero.store.atomic import disk_error

_HELD: set[int] = set()


def _let_go() -> None:
    for handle in _HELD:
        os.close(handle)
    _HELD.clear()


os.register_at_fork(after_in_child=_let_go)


def take(path: Path, *, wait_s: float = 0.0) -> int | None:
    """Hold the lock until `release` or death; the handle, or None when another process holds it after `wait_s`."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise disk_error(error, "locking", path) from error
    deadline = time.monotonic() + wait_s
    while not _try(handle, path):
        if time.monotonic() >= deadline:
            os.close(handle)
            return None
        time.sleep(0.02)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(handle)
        raise disk_error(error, "locking", path) from error
    _HELD.add(handle)
    return handle


def release(handle: int) -> None:
    """Let go of a lock that `take` gave."""
    _HELD.discard(handle)
    os.close(handle)


def pid_in(path: Path) -> int | None:
    """The pid a lock file names; says nothing about whether it still holds the lock."""
    try:
        text = path.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None


def _try(handle: int, path: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        os.close(handle)
        raise StateError(
            f"{path}: this file system has no file locks ({error.strerror}); use another folder"
        ) from error
    return True
