"""metrics.jsonl: one MetricRow a line, written by the worker, read by the controller while it grows."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from llmzero.domain.codec import from_json, to_json
from llmzero.domain.errors import StateError
from llmzero.domain.series import MetricRow
from llmzero.store.atomic import disk_error

HEAD_BYTES = 256
"""How much of a file's start is remembered, to tell a file that grew from one that was written anew."""


def read_rows(path: Path) -> tuple[MetricRow, ...]:
    """Every whole row; none where the file is missing."""
    return MetricsReader(path).read()


def readable_rows(path: Path) -> tuple[MetricRow, ...]:
    """The rows that can be read: what a page shows of a file somebody damaged."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        return ()
    rows: list[MetricRow] = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            rows.append(from_json(MetricRow, json.loads(line)))
    return tuple(rows)


def append_row(path: Path, row: MetricRow) -> None:
    """Add one row with a single write; raises StateError (cause: OSError) when the disk refuses."""
    line = json.dumps(to_json(row)).encode() + b"\n"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            if os.write(handle, line) != len(line):
                raise OSError(28, "No space left on device")
        finally:
            os.close(handle)
    except OSError as error:
        raise disk_error(error, "writing", path) from error


class MetricsReader:
    """Reads a growing file without reading any byte twice. A partial last line waits; a file begun anew starts over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: list[MetricRow] = []
        self._head = b""
        self._offset = 0

    @property
    def rows(self) -> tuple[MetricRow, ...]:
        """The rows read so far."""
        return tuple(self._rows)

    def read(self) -> tuple[MetricRow, ...]:
        """Every row, the new ones read now; raises StateError naming the line on a bad whole line."""
        self.read_new()
        return self.rows

    def read_new(self) -> tuple[MetricRow, ...]:
        """The rows since the last call (all of them when the file was begun anew)."""
        data = self._new_bytes()
        lines = data.split(b"\n")[:-1]
        rows = [self._decode(number, line) for number, line in enumerate(lines, len(self._rows) + 1)]
        self._rows += rows
        self._offset += data.rfind(b"\n") + 1
        return tuple(rows)

    def _new_bytes(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                head = file.read(HEAD_BYTES)
                if not head.startswith(self._head) or os.fstat(file.fileno()).st_size < self._offset:
                    self._rows, self._offset = [], 0
                self._head = head
                file.seek(self._offset)
                return file.read()
        except FileNotFoundError:
            self._rows, self._head, self._offset = [], b"", 0
            return b""
        except OSError as error:
            raise disk_error(error, "reading", self.path) from error

    def _decode(self, number: int, line: bytes) -> MetricRow:
        try:
            return from_json(MetricRow, json.loads(line))
        except (ValueError, RecursionError) as error:
            raise StateError(f"{self.path}:{number}: {error}; remove the line to go on without it") from error
