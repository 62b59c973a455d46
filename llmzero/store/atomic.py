"""Files that are either the old one or the new one, whole, whatever happens in between; and disk errors in words."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, TypeVar

from llmzero.domain.codec import from_json, to_json
from llmzero.domain.errors import StateError

T = TypeVar("T")

TEMPORARY = ".tmp"
"""Ending of a file that is being written; one that stays behind belongs to a dead process."""


def write_json(path: Path, value: Any) -> None:
    """Write a dataclass or plain JSON value as indented JSON; see `write_text`."""
    write_text(path, json.dumps(to_json(value), indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text`, on disk when this returns; missing parent folders are made.

    Raises StateError, leaving an earlier file as it was, when the disk refuses.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        _discard(temporary)
        raise disk_error(error, "writing", path) from error


def read_json(kind: type[T], path: Path) -> T:
    """The value of type `kind` in a file; raises StateError naming the file and what is wrong with it."""
    try:
        return from_json(kind, json.loads(path.read_text("utf-8")))
    except OSError as error:
        raise disk_error(error, "reading", path) from error
    except ValueError as error:
        raise StateError(f"{path} is damaged: {error}") from error


def sync_folder(folder: Path) -> None:
    """Make a rename or a new name in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_error(error: OSError, doing: str, path: Path) -> StateError:
    """One line for an error of the disk: what, where, what to do."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StateError(f"disk full while {doing} {path}: free space, then `llmzero resume`")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return StateError(f"no permission for {doing} {path} ({error.strerror}): allow it, then `llmzero resume`")
        case errno.ENOENT:
            return StateError(f"no such file while {doing} {path}: is the run folder whole?")
        case _:
            return StateError(f"disk error while {doing} {path}: {error.strerror or error}")


def _discard(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
