"""The loop on fakes: budgets, stops, failures, lost checkpoints, resume."""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from llmzero.domain.config import RunConfig
from llmzero.domain.errors import LLMZeroError, StateError, UsageError
from llmzero.domain.events import (
    Event,
    PhaseFinished,
    PhaseProposed,
    StopDecided,
    TestScored,
    Tree,
    event_to_json,
    fold,
)
from llmzero.domain.jobs import Job, JobState, Weights
from llmzero.domain.series import MetricRow
from llmzero.domain.types import EvalPoint, FailureKind, NodeId, PhaseResult, Status, Verdict
from llmzero.search.controller import search
from llmzero.search.parts import Parts
from llmzero.testing import (
    FixedProposer,
    InlineExecutor,
    MemoryStore,
    Play,
    SilentObserver,
    base_result,
    eval_rows,
    finished_phase,
)

CONFIG = RunConfig(nodes=4, steps=30)


class NeverStop:
    def judge(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        return Verdict(action="continue", reason="", at_step=curve[-1].step)


class StopBelow:
    """Stops at the first evaluation under a bound."""

    def __init__(self, bound: float) -> None:
        self.bound = bound

    def judge(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        low = curve[-1].score < self.bound
        return Verdict(action="stop" if low else "continue", reason="too low", at_step=curve[-1].step)


def score_of(job: Job) -> float:
    return 0.3 + 0.001 * (job.phase.seed % 300)


def play(job: Job) -> tuple[list[MetricRow], PhaseResult]:
    """A worker whose phases end at a score hashed from their seed."""
    if job.kind == "evaluate":
        return [], PhaseResult(status=Status.FINISHED, score=0.5, score_se=0.01, items=99)
    if job.phase.steps == 0:
        return [], base_result(0.3)
    scores = [0.3, 0.35, score_of(job)]
    return eval_rows(scores), finished_phase(scores, node=job.phase.id)


def parts_of(store: MemoryStore, player: Play = play, stopper: object = None, proposer: object = None) -> Parts:
    return Parts(
        store=store,
        executor=InlineExecutor(store, player),
        proposer=proposer or FixedProposer({"learning_rate": 2e-5}),  # type: ignore[arg-type]
        stopper=stopper or NeverStop(),  # type: ignore[arg-type]
        observer=SilentObserver(),
        base=Weights(path="base", digest="b"),
    )


def finished_ids(events: Sequence[Event]) -> list[str]:
    return [e.node for e in events if isinstance(e, PhaseFinished)]


def test_a_search_trains_its_nodes_and_reads_the_test_split_once_at_the_end() -> None:
    store = MemoryStore(CONFIG)
    tree = search(parts_of(store))
    assert list(tree.nodes) == ["n0", "n1", "n2", "n3", "n4"]
    assert tree.ended == "all 4 nodes used"
    tests = [job for job in store.jobs.values() if job.split == "test"]
    assert {job.phase.id for job in tests} == set(tree.test_scores)
    assert "n0" in tree.test_scores
    assert len(tree.test_scores) == 2
    kinds = [type(e).__name__ for e in store.events()]
    assert kinds.index("TestScored") > max(i for i, k in enumerate(kinds) if k == "PhaseFinished")
    assert kinds[-1] == "RunFinished"


def test_intent_is_journalled_before_the_worker_starts() -> None:
    store = MemoryStore(CONFIG)

    def check(job: Job) -> tuple[list[MetricRow], PhaseResult]:
        if job.kind == "train":
            assert any(isinstance(e, PhaseProposed) and e.phase.id == job.phase.id for e in store.events())
        return play(job)

    search(parts_of(store, check))


def test_children_start_from_their_parents_weights_and_keep_the_base_as_anchor() -> None:
    store = MemoryStore(CONFIG)
    tree = search(parts_of(store))
    for node in list(tree.nodes.values())[1:]:
        job = store.jobs[node.id]
        expected = "base" if node.parent == "n0" else f"phases/{node.parent}/checkpoint"
        assert job.start.path == expected
        assert job.anchor.path == "base"


def test_anchor_parent_resets_the_reference() -> None:
    store = MemoryStore(RunConfig(nodes=3, steps=30, kl_anchor="parent"))
    search(parts_of(store))
    assert all(job.anchor == job.start for job in store.jobs.values())


def test_stopped_phase_is_cut_at_the_step_of_the_verdict_whatever_the_worker_did_after() -> None:
    store = MemoryStore(CONFIG)
    parts = parts_of(store, stopper=StopBelow(0.36))
    tree = search(parts)
    first = tree.nodes["n1"]
    assert first.status == "stopped"
    assert first.result is not None
    assert (first.result.steps_done, first.result.score, first.result.checkpoint) == (10, 0.3, None)
    assert "n1" in parts.executor.stopped  # type: ignore[attr-defined]
    assert all(n.parent == "n0" for n in tree.nodes.values() if n.id != "n0")
    assert sum(isinstance(e, StopDecided) for e in store.events()) == 4


def test_a_failed_phase_is_searched_around() -> None:
    def fail_first(job: Job) -> tuple[list[MetricRow], PhaseResult]:
        if job.phase.id == "n1":
            return [], PhaseResult(status=Status.FAILED, failure=FailureKind.NAN, message="loss is nan")
        return play(job)

    tree = search(parts_of(MemoryStore(CONFIG), fail_first))
    assert tree.nodes["n1"].status == "failed"
    assert all(n.parent != "n1" for n in tree.nodes.values())
    assert len(tree.nodes) == 5


def test_a_lost_checkpoint_is_journalled_and_never_resumed_from() -> None:
    store = MemoryStore(CONFIG)
    store.damaged["phases/n1/checkpoint"] = "model.safetensors: digest differs"
    tree = search(parts_of(store))
    assert tree.nodes["n1"].lost == "model.safetensors: digest differs"
    assert all(n.parent != "n1" for n in tree.nodes.values())
    assert len(tree.nodes) == 5


def test_a_base_that_changed_ends_the_search_and_leaves_it_resumable() -> None:
    store = MemoryStore(CONFIG)

    def change(job: Job) -> tuple[list[MetricRow], PhaseResult]:
        if job.phase.id == "n2":
            store.damaged["base"] = "base changed since it was written"
        return play(job)

    with pytest.raises(StateError, match="base model: base changed"):
        search(parts_of(store, change))
    assert finished_ids(store.events()) == ["n0", "n1", "n2"]
    store.damaged.clear()
    assert len(search(parts_of(store)).nodes) == 5


@pytest.mark.parametrize(
    ("failure", "error", "said"),
    [
        (FailureKind.ERROR, UsageError, "base model could not be measured"),
        (FailureKind.BAD_CHECKPOINT, UsageError, "x"),
    ],
)
def test_a_base_that_cannot_be_measured_ends_the_search_and_leaves_it_resumable(
    failure: FailureKind, error: type[LLMZeroError], said: str
) -> None:
    store = MemoryStore(CONFIG)

    def broken(job: Job) -> tuple[list[MetricRow], PhaseResult]:
        return [], PhaseResult(status=Status.FAILED, failure=failure, message="x")

    with pytest.raises(error, match=said):
        search(parts_of(store, broken))
    assert not finished_ids(store.events())
    assert search(parts_of(store)).ended


def test_disk_full_in_a_worker_ends_the_search_without_burning_the_node() -> None:
    store = MemoryStore(CONFIG)

    def full(job: Job) -> tuple[list[MetricRow], PhaseResult]:
        if job.phase.id == "n2":
            return [], PhaseResult(status=Status.FAILED, failure=FailureKind.DISK_FULL, message="no space")
        return play(job)

    with pytest.raises(StateError, match="disk full"):
        search(parts_of(store, full))
    assert finished_ids(store.events()) == ["n0", "n1"]
    tree = search(parts_of(store))
    assert finished_ids(store.events()) == ["n0", "n1", "n2", "n3", "n4"]
    assert tree.ended


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the program may catch it."""


@pytest.mark.parametrize("after", range(1, 14))
def test_a_search_cut_off_after_any_event_goes_on_to_the_same_tree(after: int) -> None:
    whole = MemoryStore(CONFIG)
    expected = search(parts_of(whole))

    store = MemoryStore(CONFIG)
    append, written = store.append, 0

    def dying(event: Event) -> None:
        nonlocal written
        append(event)
        written += 1
        if written == after:
            raise Killed

    store.append = dying  # type: ignore[method-assign]
    try:
        search(parts_of(store))
    except Killed:
        store.append = append  # type: ignore[method-assign]
        search(parts_of(store))
    assert [event_to_json(e) for e in store.events()] == [event_to_json(e) for e in whole.events()]
    assert fold(store.events()) == expected
    assert len(finished_ids(store.events())) == len(set(finished_ids(store.events())))


def test_an_ended_run_is_left_alone() -> None:
    store = MemoryStore(CONFIG)
    first = search(parts_of(store))
    count = len(store.events())
    assert search(parts_of(store)) == first
    assert len(store.events()) == count


def test_hours_end_a_search() -> None:
    from dataclasses import replace

    from llmzero.domain.types import Cost

    def slow(job: Job) -> tuple[list[MetricRow], PhaseResult]:
        rows, result = play(job)
        return rows, replace(result, cost=Cost(wall_s=3600.0, steps=job.phase.steps))

    tree = search(parts_of(MemoryStore(RunConfig(nodes=50, hours=3.5, steps=30)), slow))
    assert len(tree.nodes) == 4
    assert "worker hours" in tree.ended


def test_the_test_split_is_scored_once_per_node_on_resume() -> None:
    store = MemoryStore(CONFIG)
    search(parts_of(store))
    assert sum(isinstance(e, TestScored) for e in store.events()) == 2


class LateExecutor(InlineExecutor):
    """Ends its jobs in an order drawn from a seed, one a poll: the luck of a busy machine."""

    def __init__(self, store: MemoryStore, player: Play, seed: int) -> None:
        super().__init__(store, player)
        self.random = random.Random(seed)
        self.pending: list[Path] = []
        self.most = 0

    def submit(self, job_dir: Path) -> None:
        super().submit(job_dir)
        self.states[job_dir] = JobState(state="running")
        self.pending.append(job_dir)
        self.most = max(self.most, len(self.pending))

    def poll(self, timeout_s: float) -> Mapping[Path, JobState]:
        if self.pending:
            done = self.pending.pop(self.random.randrange(len(self.pending)))
            self.states[done] = JobState(state="done")
        return dict(self.states)


@pytest.mark.parametrize("workers", [2, 3])
def test_with_several_workers_the_tree_does_not_depend_on_the_order_phases_end_in(workers: int) -> None:
    config = RunConfig(nodes=12, steps=30, workers=workers)
    trees = []
    for seed in range(6):
        store = MemoryStore(config)
        parts = parts_of(store, stopper=StopBelow(0.32), proposer=FixedProposer({"learning_rate": 2e-5}))
        executor = LateExecutor(store, play, seed)
        trees.append(search(dataclasses.replace(parts, executor=executor)))
        assert executor.most == workers
    assert all(tree.nodes == trees[0].nodes for tree in trees)


def test_the_best_node_that_lost_its_weights_is_not_tested_the_next_one_is() -> None:
    whole = search(parts_of(MemoryStore(CONFIG)))
    first, second = sorted((n for n in whole.nodes.values() if n.id != "n0"), key=lambda n: -(n.score or 0))[:2]
    store = MemoryStore(CONFIG)

    def lose_at_the_end(job: Job) -> tuple[list[MetricRow], PhaseResult]:
        if job.phase.id == "n4":
            store.damaged[f"phases/{first.id}/checkpoint"] = "missing"
        return play(job)

    tree = search(parts_of(store, lose_at_the_end))
    assert tree.nodes[first.id].lost == "missing"
    assert set(tree.test_scores) == {"n0", second.id}


def test_a_failed_reading_of_the_test_split_is_tried_again_on_resume() -> None:
    store = MemoryStore(CONFIG)

    def broken(job: Job) -> tuple[list[MetricRow], PhaseResult]:
        if job.kind == "evaluate":
            return [], PhaseResult(status=Status.FAILED, failure=FailureKind.OUT_OF_MEMORY, message="too large")
        return play(job)

    with pytest.raises(StateError, match="test split could not be read"):
        search(parts_of(store, broken))
    assert len(search(parts_of(store)).test_scores) == 2


def test_a_phase_that_fails_after_its_verdict_is_stopped_all_the_same() -> None:
    """How far a worker gets after the verdict is luck; a failure there must not change the tree."""

    def fail_late(job: Job) -> tuple[list[MetricRow], PhaseResult]:
        rows, result = play(job)
        if job.kind == "train" and job.phase.steps:
            result = dataclasses.replace(result, status=Status.FAILED, score=None, failure=FailureKind.NAN)
        return rows, result

    trees = [search(parts_of(MemoryStore(CONFIG), p, stopper=StopBelow(0.36))) for p in (play, fail_late)]
    assert [n.status for n in trees[1].nodes.values()] == [n.status for n in trees[0].nodes.values()]
    assert trees[0].nodes["n1"].result == trees[1].nodes["n1"].result


class MortalExecutor(InlineExecutor):
    """Its workers on one job die, the first times."""

    def __init__(self, store: MemoryStore, player: Play, *, job: str, deaths: int) -> None:
        super().__init__(store, player)
        self.job, self.deaths = job, deaths

    def submit(self, job_dir: Path) -> None:
        super().submit(job_dir)
        if job_dir.name == self.job and self.deaths:
            self.deaths -= 1
            self.store.results.pop(self.job)
            self.states[job_dir] = JobState(state="dead", failure=FailureKind.DIED, message="killed by signal 9")


@pytest.mark.parametrize("job", ["n0", "test-n0"])
def test_a_killed_worker_that_only_measured_is_started_again_a_few_times(job: str) -> None:
    """What it measures decides nothing before it is there, so trying again is safe; a hopeless case ends the search."""
    whole = search(parts_of(MemoryStore(CONFIG)))
    store = MemoryStore(CONFIG)
    parts = parts_of(store)
    executor = MortalExecutor(store, play, job=job, deaths=2)
    assert search(dataclasses.replace(parts, executor=executor)) == whole
    assert executor.submitted.count(job) == 3
    store = MemoryStore(CONFIG)
    parts = dataclasses.replace(parts_of(store), executor=MortalExecutor(store, play, job=job, deaths=3))
    with pytest.raises((UsageError, StateError), match="killed by signal 9"):
        search(parts)
