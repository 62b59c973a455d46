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

    What UTF-8 cannot hold (half a surrogate pair, as a model may answer) becomes a question mark.

    A symbolic link stays one: what it points to is replaced. Raises StateError, leaving what is there as it was, when
    the disk refuses or the path is a folder, a device or a pipe.
    """
    path = _file_at(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        _discard(temporary)
        raise disk_error(error, "writing", path) from error


def _file_at(path: Path) -> Path:
    """Where a file may be written: the path itself, or what a link to a file points to."""
    try:
        target = path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError):
        raise StateError(f"{path}: a link that points to itself") from None
    if target.exists() and not target.is_file():
        raise StateError(f"{path} is {'a folder' if target.is_dir() else 'a device or pipe'}, no file: name another")
    return target


def read_json(kind: type[T], path: Path) -> T:
    """The value of type `kind` in a file; raises StateError naming the file and what is wrong with it."""
    try:
        return from_json(kind, json.loads(path.read_text("utf-8")))
    except OSError as error:
        raise disk_error(error, "reading", path) from error
    except (ValueError, RecursionError) as error:
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
    again = "then try again (a search: `llmzero resume`)"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StateError(f"disk full while {doing} {path}: free space, {again}")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return StateError(f"no permission for {doing} {path} ({error.strerror}): allow it, {again}")
        case errno.ENOENT:
            return StateError(f"no such file or folder while {doing} {path}")
        case _:
            return StateError(f"disk error while {doing} {path}: {error.strerror or error}")


def _discard(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
