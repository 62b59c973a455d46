"""One run's folder, as the controller uses it: the port `RunStore` over journal, job folders and checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from llmzero.domain.errors import StateError
from llmzero.domain.events import Event, Tree
from llmzero.domain.jobs import Job, JobPaths, Weights
from llmzero.domain.series import MetricRow
from llmzero.domain.types import Checkpoint, PhaseResult
from llmzero.store.atomic import disk_error, read_json, write_json
from llmzero.store.checkpoints import collect_garbage, verify
from llmzero.store.journal import Journal
from llmzero.store.layout import RunPaths
from llmzero.store.metrics import MetricsReader


class RunFolder:
    """A run, locked for this process while the object is open."""

    def __init__(self, journal: Journal, root: Path) -> None:
        self._journal = journal
        self._paths = RunPaths(root.resolve())
        self._readers: dict[str, MetricsReader] = {}
        self.recovered_bytes = journal.recovered_bytes

    @classmethod
    def create(cls, root: Path) -> RunFolder:
        return cls(Journal.create(RunPaths(root).journal), root)

    @classmethod
    def open(cls, root: Path) -> RunFolder:
        return cls(Journal.open(RunPaths(root).journal), root)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.close()

    def events(self) -> tuple[Event, ...]:
        return self._journal.events()

    def append(self, event: Event) -> None:
        self._journal.append(event)

    def folder(self, name: str) -> Path:
        """`n3` is a phase's folder; any other name a job that is no node (an evaluation on the test split)."""
        is_node = name[:1] == "n" and name[1:].isdecimal()
        return self._paths.phase_dir(name) if is_node else self._paths.job_dir(name)

    def prepare(self, name: str, job: Job) -> Path:
        folder = self.folder(name)
        job_paths = JobPaths(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in (job_paths.result, job_paths.stop, job_paths.metrics, job_paths.heartbeat):
                old.unlink(missing_ok=True)
            if job_paths.checkpoint.exists():
                shutil.rmtree(job_paths.checkpoint)
        except OSError as error:
            raise disk_error(error, "preparing", folder) from error
        self._readers.pop(name, None)
        write_json(job_paths.spec, replace(job, attempt=_attempts(job_paths.spec) + 1))
        return folder

    def result(self, name: str) -> PhaseResult | None:
        path = JobPaths(self.folder(name)).result
        if not path.is_file():
            return None
        try:
            return read_json(PhaseResult, path)
        except StateError:  # results are written whole: this is damage done later
            path.replace(path.with_name(f"{path.name}.damaged"))
            return None

    def rows(self, name: str) -> Sequence[MetricRow]:
        if name not in self._readers:
            self._readers[name] = MetricsReader(JobPaths(self.folder(name)).metrics)
        return self._readers[name].read()

    def weights(self, checkpoint: Checkpoint) -> Weights:
        return Weights(path=str(self._inside(checkpoint)), digest=checkpoint.digest)

    def damage(self, weights: Weights) -> str:
        return verify(Path(weights.path), weights.digest) if weights.digest else ""

    def collect_garbage(self, tree: Tree) -> int:
        return collect_garbage(self._paths, tree)

    def _inside(self, checkpoint: Checkpoint) -> Path:
        """The checkpoint's folder; a journal that points outside its run is refused."""
        path = (self._paths.root / checkpoint.path).resolve()
        if not path.is_relative_to(self._paths.root):
            raise StateError(f"checkpoint {checkpoint.path!r} lies outside the run {self._paths.root}; not loaded")
        return path


def _attempts(spec: Path) -> int:
    """How often a job was ordered; 0 where its order cannot be read, since it is about to be written anew."""
    try:
        return read_json(Job, spec).attempt if spec.is_file() else 0
    except StateError:
        return 0
