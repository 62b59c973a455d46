"""Every path of a run, once; and the way from what a user types to a run folder."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from llmzero.domain.errors import UsageError, did_you_mean
from llmzero.domain.jobs import JobPaths
from llmzero.domain.types import NodeId

__all__ = ["JobPaths", "RunPaths", "find_run", "list_runs", "new_run_dir"]

ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def new_run_dir(out: Path, task: str, today: date, *, name: str = "") -> Path:
    """Make a run folder of its own, `2026-12-01-chemcot-x7k2` (or `name`), under `out`.

    Raises UsageError when `out` cannot be written or a folder called `name` is already there.
    """
    tries = [name] if name else [f"{today.isoformat()}-{_slug(task)}-{_suffix()}" for _ in range(20)]
    try:
        out.mkdir(parents=True, exist_ok=True)
        for candidate in tries:
            folder = out / candidate
            if not folder.exists():
                folder.mkdir()
                return folder
    except OSError as error:
        raise UsageError(
            f"cannot make a run folder in {out}: {error.strerror}; choose another with --out DIR"
        ) from error
    raise UsageError(f"{out / tries[0]} is already there; choose another name, or `llmzero resume {tries[0]}`")


def _slug(task: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", Path(task).name.lower()).strip("-") or "run"


def _suffix() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(4))


def find_run(out: Path, name: str) -> Path:
    """The run folder a user means by a path, a name, a unique start of a name, or "latest" (last written to).

    Raises UsageError, with the near names, when there is none or more than one.
    """
    if not name.strip():
        raise UsageError("RUN is empty: give a run's name, a unique start of one, a folder, or 'latest'")
    path, name = Path(name), name[:200]
    if path.name and _is_run(path):
        return path
    runs = _runs(out)
    if not runs:
        raise UsageError(
            f"no run called {name!r}: {out} holds no runs; start one with `llmzero search`, or give --out DIR"
        )
    if name == "latest":
        return list_runs(out)[-1]
    found = [name] if name in runs else [run for run in runs if run.startswith(name)]
    if len(found) == 1:
        return runs[found[0]]
    if found:
        raise UsageError(f"{name!r} fits {len(found)} runs in {out}: {', '.join(sorted(found))}; give more of the name")
    raise UsageError(f"no run called {name!r} in {out}: {did_you_mean(name, runs)}")


def list_runs(out: Path) -> list[Path]:
    """The run folders under `out`, the one written to last at the end."""
    return sorted(_runs(out).values(), key=lambda run: RunPaths(run).journal.stat().st_mtime_ns)


def _runs(out: Path) -> dict[str, Path]:
    """Folders with a journal, by name."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is no folder: give the folder of runs with --out DIR")
    if not out.is_dir():
        return {}
    return {run.name: run for run in sorted(out.iterdir()) if _is_run(run)}


def _is_run(folder: Path) -> bool:
    """Whether a folder holds a journal; a name no file system takes is none."""
    try:
        return RunPaths(folder).journal.is_file()
    except (OSError, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The files of a run folder. Pure: touches no disk."""

    root: Path

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    @property
    def calls(self) -> Path:
        """Recorded calls of language models."""
        return self.root / "calls"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def report(self) -> Path:
        return self.root / "report"

    @property
    def exports(self) -> Path:
        return self.root / "exports"

    @property
    def phases(self) -> Path:
        return self.root / "phases"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    def phase_dir(self, node: NodeId) -> Path:
        """The job folder that trains a node."""
        return self.phases / node

    def job_dir(self, name: str) -> Path:
        """A job folder of no node: an evaluation on the test split, a confirmation run."""
        return self.jobs / name
