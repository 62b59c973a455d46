"""The store suite over the store in memory and the run folder on disk, and over stores broken in every way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from contract_kit import caught, promises_of

from llmzero.domain.events import Event, RunStarted
from llmzero.domain.jobs import Job, JobPaths, Weights
from llmzero.domain.series import MetricRow
from llmzero.domain.types import PhaseResult
from llmzero.ports import RunStore
from llmzero.store.atomic import write_json
from llmzero.store.metrics import append_row
from llmzero.store.run import RunFolder
from llmzero.testing import MemoryStore, RunStoreContract
from llmzero.testing.stores import CONFIG


class TestMemoryStore(RunStoreContract):
    store: type[MemoryStore] = MemoryStore

    def make(self, folder: Path) -> RunStore:
        return self.store(CONFIG)

    def leave(self, store: RunStore, name: str, rows: Sequence[MetricRow], result: PhaseResult | None) -> None:
        assert isinstance(store, MemoryStore)
        store.metric_rows[name] = [*store.metric_rows.get(name, []), *rows]
        if result is not None:
            store.results[name] = result


class TestRunFolder(RunStoreContract):
    opened: Sequence[RunFolder] = ()

    def make(self, folder: Path) -> RunStore:
        store = RunFolder.create(folder)
        self.opened = [store]
        store.append(RunStarted(run="r", config=CONFIG))
        return store

    def teardown_method(self) -> None:
        for store in self.opened:
            store.__exit__(None, None, None)

    def leave(self, store: RunStore, name: str, rows: Sequence[MetricRow], result: PhaseResult | None) -> None:
        paths = JobPaths(store.folder(name))
        for row in rows:
            append_row(paths.metrics, row)
        if result is not None:
            write_json(paths.result, result)


class Backwards(MemoryStore):
    def append(self, event: Event) -> None:
        self._events.insert(0, event)


class Elsewhere(MemoryStore):
    def prepare(self, name: str, job: Job) -> Path:
        return super().prepare(name, job) / "job"


class LastRow(MemoryStore):
    def rows(self, name: str) -> Sequence[MetricRow]:
        return super().rows(name)[-1:]


class Keeping(MemoryStore):
    """Prepares a job once."""

    def prepare(self, name: str, job: Job) -> Path:
        return self.folder(name) if name in self.jobs else super().prepare(name, job)


class OneJob(MemoryStore):
    def result(self, name: str) -> PhaseResult | None:
        return next(iter(self.results.values()), None)


class Strict(MemoryStore):
    def damage(self, weights: Weights) -> str:
        return "" if weights.digest else "no digest"


BROKEN: list[tuple[str, type[MemoryStore]]] = [
    ("test_appended_events_are_read_back_in_order", Backwards),
    ("test_a_prepared_job_has_nothing_to_show", Elsewhere),
    ("test_what_a_worker_leaves_is_read", LastRow),
    ("test_a_job_prepared_again_holds_nothing_of_an_earlier_attempt", Keeping),
    ("test_jobs_do_not_mix", OneJob),
    ("test_weights_without_a_digest_are_taken_as_they_are", Strict),
]


@pytest.mark.parametrize(("test", "store"), BROKEN)
def test_the_suite_catches(test: str, store: type[MemoryStore], tmp_path: Path) -> None:
    assert caught(type("Suite", (TestMemoryStore,), {"store": store}), test, tmp_path)


def test_every_test_of_the_suite_can_fail() -> None:
    assert {test for test, _ in BROKEN} == set(promises_of(RunStoreContract))
