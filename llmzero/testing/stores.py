"""The conformance suite of `ports.RunStore`: for another place to keep runs. It has no entry point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llmzero.domain.config import RunConfig
from llmzero.domain.events import PhaseProposed, fold
from llmzero.domain.jobs import Job, Weights
from llmzero.domain.series import MetricRow
from llmzero.domain.types import FailureKind, PhaseResult, Status
from llmzero.ports import RunStore
from llmzero.search.phases import BASE_PROPOSAL, BASE_SELECTION, base_phase, train_job

CONFIG = RunConfig(seed=5)
FAILED = PhaseResult(status=Status.FAILED, failure=FailureKind.DISK_FULL, message="no space")
ROWS = (
    MetricRow(kind="train", step=1, values={"reward": 0.5}),
    MetricRow(kind="eval", step=1, values={"score": 0.4, "se": 0.1}),
)


class RunStoreContract:
    """What every store of a run promises. `make` and `leave` have no default."""

    def make(self, folder: Path) -> RunStore:
        """A new run in `folder` whose only event is RunStarted with `CONFIG`."""
        raise NotImplementedError

    def leave(self, store: RunStore, name: str, rows: Sequence[MetricRow], result: PhaseResult | None) -> None:
        """What a worker leaves of job `name`."""
        raise NotImplementedError

    def test_appended_events_are_read_back_in_order(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        before = store.events()
        event = _base_event(store)
        store.append(event)
        assert store.events() == (*before, event), f"events are {store.events()}"
        assert fold(store.events()).config == CONFIG, "the configuration did not survive"

    def test_a_prepared_job_has_nothing_to_show(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        folder = store.prepare("n0", _job(store))
        assert folder.is_absolute() and folder == store.folder("n0"), f"prepare gives {folder}"
        assert store.result("n0") is None, f"its result is {store.result('n0')}"
        assert list(store.rows("n0")) == [], f"its rows are {store.rows('n0')}"

    def test_what_a_worker_leaves_is_read(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        store.prepare("n0", _job(store))
        self.leave(store, "n0", ROWS[:1], None)
        assert tuple(store.rows("n0")) == ROWS[:1], f"rows are {store.rows('n0')}"
        assert store.result("n0") is None, "a job without a result has one"
        self.leave(store, "n0", ROWS[1:], FAILED)
        assert tuple(store.rows("n0")) == ROWS, f"all rows, in order: {store.rows('n0')}"
        assert store.result("n0") == FAILED, f"result is {store.result('n0')}"

    def test_a_job_prepared_again_holds_nothing_of_an_earlier_attempt(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        store.prepare("n0", _job(store))
        self.leave(store, "n0", ROWS, FAILED)
        store.prepare("n0", _job(store))
        assert store.result("n0") is None, "the earlier result is still there"
        assert list(store.rows("n0")) == [], "the earlier rows are still there"

    def test_jobs_do_not_mix(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        for name in ("n1", "test-n1"):
            store.prepare(name, _job(store))
        self.leave(store, "n1", ROWS, FAILED)
        assert store.result("test-n1") is None and list(store.rows("test-n1")) == [], "n1 shows in test-n1"
        assert store.folder("n1") != store.folder("test-n1"), "two jobs share a folder"

    def test_weights_without_a_digest_are_taken_as_they_are(self, tmp_path: Path) -> None:
        damage = self.make(tmp_path).damage(Weights(path="owner/name"))
        assert damage == "", f"unchecked weights are said to be damaged: {damage}"


def _base_event(store: RunStore) -> PhaseProposed:
    return PhaseProposed(phase=base_phase(fold(store.events())), selection=BASE_SELECTION, proposal=BASE_PROPOSAL)


def _job(store: RunStore) -> Job:
    tree = fold(store.events())
    return train_job(tree, base_phase(tree), Weights(path="base"), Weights(path="base"))
