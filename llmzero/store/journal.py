"""The append-only journal of a run: one JSON line an event, the run's only truth.

One process writes it at a time. A line counts once its newline is on disk, so a torn last line never happened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from llmzero.domain.config import SCHEMA_VERSION
from llmzero.domain.errors import StateError
from llmzero.domain.events import Event, RunStarted, event_from_json, event_to_json, fold
from llmzero.store.atomic import disk_error, sync_folder
from llmzero.store.layout import RunPaths
from llmzero.store.locks import pid_in, release, take


def read_journal(path: Path) -> tuple[Event, ...]:
    """The events so far, without lock and without repair: safe while a search writes (a torn tail is left out)."""
    return _parse(path)[0]


def _parse(path: Path) -> tuple[tuple[Event, ...], int, int]:
    """The events, the bytes they take, and the bytes of a torn last line; raises StateError on any other damage."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise StateError(f"no journal at {path}: start a run with `llmzero search`") from None
    except OSError as error:
        raise disk_error(error, "reading", path) from error
    whole = data.rfind(b"\n") + 1
    lines = data[:whole].split(b"\n")[:-1]
    if not lines:
        raise StateError(f"{path} holds no event: the run ended before it began; remove the folder and start again")
    events = tuple(_decode(path, number, line) for number, line in enumerate(lines, 1))
    _check_order(path, events)
    return events, whole, len(data) - whole


def _decode(path: Path, number: int, line: bytes) -> Event:
    try:
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        _refuse_newer(path, value)
        return event_from_json(value)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise StateError(f"{path}:{number}: {error}; put a copy of the journal back, or remove the run") from error


def _refuse_newer(path: Path, line: dict[str, Any]) -> None:
    config = line.get("config") if line.get("event") == RunStarted.__name__ else None
    schema = config.get("schema", SCHEMA_VERSION) if isinstance(config, dict) else SCHEMA_VERSION
    if isinstance(schema, int) and schema > SCHEMA_VERSION:
        raise StateError(
            f"{path} was written by a newer version of llmzero (schema {schema}, this one reads {SCHEMA_VERSION}): "
            "upgrade with `pip install -U llmzero`"
        )


def _check_order(path: Path, events: Sequence[Event]) -> None:
    """Refuse events that cannot follow each other, naming the line."""
    number = 0

    def numbered() -> Iterator[Event]:
        nonlocal number
        for number, event in enumerate(events, 1):
            if isinstance(event, RunStarted) != (number == 1):
                raise ValueError("RunStarted must be the first event and only that")
            yield event

    try:
        fold(numbered())
    except (ValueError, KeyError) as error:
        raise StateError(f"{path}:{number}: {error}; put a copy of the journal back, or remove the run") from error


class Journal:
    """A run's journal, open for appending; the run is locked for the life of the object.

    `recovered_bytes` says how much of a torn last line was cut on opening.
    """

    def __init__(self, path: Path, lock: int, events: Sequence[Event], end: int, torn: int) -> None:
        self.path = path
        self.recovered_bytes = torn
        self._events = list(events)
        self._end = end
        self._lock: int | None = lock
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    @classmethod
    def create(cls, path: Path) -> Journal:
        """Begin a journal; raises StateError where there is one already. Its first event is still to be appended."""
        lock = _lock_run(path)
        if path.exists() and path.stat().st_size:
            release(lock)
            raise StateError(f"{path} already holds a run: continue it with `llmzero resume`, or choose another folder")
        return _opened(cls, path, lock, ((), 0, 0))

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Open a journal to continue its run, cutting a torn last line; raises StateError on any other damage."""
        if not path.parent.is_dir():
            raise StateError(f"no run at {path.parent}: start one with `llmzero search`")
        lock = _lock_run(path)
        try:
            parsed = _parse(path)
        except StateError:
            release(lock)
            raise
        return _opened(cls, path, lock, parsed)

    def events(self) -> tuple[Event, ...]:
        """Every event, in order."""
        return tuple(self._events)

    def append(self, event: Event) -> None:
        """Add one event, on disk when this returns; StateError, with the file as before, when the disk refuses."""
        line = json.dumps(event_to_json(event)).encode() + b"\n"
        self._check(line)
        try:
            self._cut_tail()
            written = os.write(self._file, line)
            if written != len(line):
                raise OSError(28, "No space left on device")
            os.fsync(self._file)
            if not self._end:
                sync_folder(self.path.parent)
        except OSError as error:
            self._undo()
            raise disk_error(error, "writing", self.path) from error
        self._end += len(line)
        self._events.append(event)

    def _check(self, line: bytes) -> None:
        """Never write what could not be read again, or into a file nobody would find."""
        _decode(self.path, len(self._events) + 1, line)
        mine = os.fstat(self._file)
        try:
            found = self.path.stat()
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != (mine.st_dev, mine.st_ino):
            raise StateError(f"{self.path} was moved or removed while the run was going on: put it back, then resume")

    def close(self) -> None:
        """Free the run for other processes; more than once is harmless."""
        if self._lock is not None:
            os.close(self._file)
            release(self._lock)
            self._lock = None

    def _cut_tail(self) -> None:
        if os.fstat(self._file).st_size > self._end:
            os.ftruncate(self._file, self._end)
            os.fsync(self._file)

    def _undo(self) -> None:
        try:
            self._cut_tail()
        except OSError:
            return  # the next append or the next opening cuts it

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock_run(path: Path) -> int:
    lock = RunPaths(path.parent).lock
    handle = take(lock)
    if handle is None:
        raise StateError(
            f"the run {path.parent} is in use by process {pid_in(lock) or 'unknown'}: "
            "wait for it, end it, or look at it with `llmzero show`"
        )
    return handle


def _opened(kind: type[Journal], path: Path, lock: int, parsed: tuple[tuple[Event, ...], int, int]) -> Journal:
    journal: Journal | None = None
    try:
        journal = kind(path, lock, *parsed)
        journal._cut_tail()
    except OSError as error:
        if journal is not None:
            journal.close()
        else:
            release(lock)
        raise disk_error(error, "opening", path) from error
    return journal
