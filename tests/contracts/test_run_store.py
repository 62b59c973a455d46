"""One suite over both stores: the one in memory and the run folder on disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmzero.domain.config import RunConfig
from llmzero.domain.events import RunStarted, fold
from llmzero.domain.jobs import JobPaths, Weights
from llmzero.domain.types import FailureKind, PhaseResult, Status
from llmzero.ports import RunStore
from llmzero.search.phases import BASE_PROPOSAL, BASE_SELECTION, base_phase, train_job
from llmzero.store.atomic import write_json
from llmzero.store.run import RunFolder
from llmzero.testing import MemoryStore

CONFIG = RunConfig()
FAILED = PhaseResult(status=Status.FAILED, failure=FailureKind.DISK_FULL, message="no space")


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunStore]:
    if request.param == "memory":
        yield MemoryStore(CONFIG)
        return
    with RunFolder.create(tmp_path) as folder:
        folder.append(RunStarted(run="r", config=CONFIG))
        yield folder


def leave(store: RunStore, name: str, result: PhaseResult) -> None:
    """What a worker leaves."""
    if isinstance(store, MemoryStore):
        store.results[name] = result
    else:
        write_json(JobPaths(store.folder(name)).result, result)


def test_a_prepared_job_holds_nothing_of_an_earlier_attempt(store: RunStore) -> None:
    tree = fold(store.events())
    job = train_job(tree, base_phase(tree), Weights(path="base"), Weights(path="base"))
    store.prepare("n0", job)
    assert store.result("n0") is None
    leave(store, "n0", FAILED)
    assert store.result("n0") == FAILED
    store.prepare("n0", job)
    assert store.result("n0") is None
    assert list(store.rows("n0")) == []


def test_appended_events_are_read_back(store: RunStore) -> None:
    from llmzero.domain.events import PhaseProposed

    tree = fold(store.events())
    event = PhaseProposed(phase=base_phase(tree), selection=BASE_SELECTION, proposal=BASE_PROPOSAL)
    store.append(event)
    assert store.events()[-1] == event


def test_weights_without_a_digest_are_taken_as_they_are(store: RunStore) -> None:
    assert store.damage(Weights(path="owner/name")) == ""
