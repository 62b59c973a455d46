"""The trainer suite over the simulator and the TRL trainer, and over trainers broken in every way it looks for.

The suite runs TRL on a tiny model with a task of letters: seconds, where the embedded base takes half a minute.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract_kit import caught, promises_of
from trainer_kit import EVAL, Letters, tiny_model

from llmzero.domain.jobs import Job
from llmzero.domain.series import MetricRow
from llmzero.domain.types import HyperParams, PhaseResult, Status
from llmzero.ports import Task, Trainer
from llmzero.testing import TrainerContract
from llmzero.trainers.sim import SimTrainer
from llmzero.trainers.trl import TrlTrainer


class TestSim(TrainerContract):
    factory = SimTrainer


class TestTrl(TrainerContract):
    factory = TrlTrainer
    hyper = HyperParams(
        learning_rate=1e-2,
        kl_coef=0.01,
        group_size=4,
        prompts_per_step=4,
        updates_per_batch=2,
        max_completion_tokens=6,
    )
    eval = EVAL

    def base(self) -> str:
        folder = self._root / "base"
        return str(folder if folder.exists() else tiny_model(folder))

    def task(self) -> Task:
        return Letters()


# --- broken trainers


class Broken(SimTrainer):
    """The simulator, with its result, its rows or its folder changed afterwards."""

    def __init__(self, change: Callable[[Job, PhaseResult, Path], PhaseResult]) -> None:
        self.change = change

    def train(
        self,
        job: Job,
        task: Task,
        *,
        report: Callable[[MetricRow], None],
        should_stop: Callable[[], bool],
        workdir: Path,
    ) -> PhaseResult:
        result = super().train(job, task, report=report, should_stop=should_stop, workdir=workdir)
        return self.change(job, result, workdir)

    def evaluate(self, job: Job, task: Task, *, workdir: Path) -> PhaseResult:
        return self.change(job, super().evaluate(job, task, workdir=workdir), workdir)


class Rows(SimTrainer):
    """The simulator, with what it reports passed through `change`."""

    def __init__(self, change: Callable[[MetricRow], MetricRow | None]) -> None:
        self.change = change

    def train(
        self,
        job: Job,
        task: Task,
        *,
        report: Callable[[MetricRow], None],
        should_stop: Callable[[], bool],
        workdir: Path,
    ) -> PhaseResult:
        def pass_on(row: MetricRow) -> None:
            changed = self.change(row)
            if changed is not None:
                report(changed)

        return super().train(job, task, report=pass_on, should_stop=should_stop, workdir=workdir)


class Deaf(SimTrainer):
    """Never looks whether it should stop."""

    def train(self, job: Job, task: Task, *, should_stop: Callable[[], bool], **rest: Any) -> PhaseResult:
        return super().train(job, task, should_stop=lambda: False, **rest)


class FromTheBase(SimTrainer):
    """Starts every phase from the base, whatever its parent left; evaluates as it should."""

    def train(self, job: Job, task: Task, **rest: Any) -> PhaseResult:
        start = job.start if job.phase.steps == 0 else job.anchor
        return super().train(replace(job, start=start), task, **rest)


class Peeking(SimTrainer):
    """Picks what it keeps by the test split."""

    def train(self, job: Job, task: Task, **rest: Any) -> PhaseResult:
        task.examples("test")
        return super().train(job, task, **rest)


class OneSplit(SimTrainer):
    """Scores validation items, whatever it is asked for."""

    def evaluate(self, job: Job, task: Task, *, workdir: Path) -> PhaseResult:
        task.examples("validation")
        return super().evaluate(job, task, workdir=workdir)


class Careless(SimTrainer):
    def refuse(self, config: object) -> None:
        return


def setting(**values: Any) -> Callable[[], Trainer]:
    """A trainer whose every result has these fields."""
    return lambda: Broken(lambda job, result, workdir: replace(result, **values))


def cost(**values: Any) -> Callable[[], Trainer]:
    return lambda: Broken(lambda job, result, workdir: replace(result, cost=replace(result.cost, **values)))


def littering(job: Job, result: PhaseResult, workdir: Path) -> PhaseResult:
    (workdir / "optimizer.pt").write_text("")
    return result


def keeping_last(job: Job, result: PhaseResult, workdir: Path) -> PhaseResult:
    """Says it kept a step that was not the best, whatever it was asked to keep."""
    worst = min(result.curve[1:], key=lambda point: point.score, default=None)
    kept = result.checkpoint
    return replace(result, checkpoint=replace(kept, step=worst.step)) if kept and worst else result


def boasting(job: Job, result: PhaseResult, workdir: Path) -> PhaseResult:
    """A trained phase's score is made up."""
    return replace(result, score=0.99, score_se=0.001) if result.checkpoint else result


def of_the_start(job: Job, result: PhaseResult, workdir: Path) -> PhaseResult:
    return replace(result, status=Status.FAILED) if job.kind == "evaluate" else result


def stopped_without_score(job: Job, result: PhaseResult, workdir: Path) -> PhaseResult:
    return replace(result, score=None) if result.status is Status.STOPPED else result


class Unskilled(SimTrainer):
    """Writes an empty state as its checkpoint: the weights are not those that were scored."""

    def train(self, job: Job, task: Task, *, workdir: Path, **rest: Any) -> PhaseResult:
        result = super().train(job, task, workdir=workdir, **rest)
        if result.checkpoint:
            (workdir / "checkpoint" / "sim.json").write_text(json.dumps({"skill": -5.0}))
        return result


def without(kind: str, step: int | None = None) -> Callable[[], Trainer]:
    return lambda: Rows(lambda row: None if row.kind == kind and step in (None, row.step) else row)


SCORE = "test_a_phase_ends_with_a_score"
CHECKPOINT = "test_the_checkpoint_is_written_and_nothing_else"
EVALUATES = "test_it_evaluates_when_asked"
METRIC = "test_every_metric_is_reported_or_said_to_be_missing"
COST = "test_the_cost_is_counted"
STOP = "test_a_stop_ends_the_phase_early_with_a_score"
NO_STEPS = "test_a_phase_of_no_steps_measures_its_start"
EVALUATION = "test_an_evaluation_scores_and_writes_nothing"
BROKEN: list[tuple[str, Callable[[], Trainer]]] = [
    (SCORE, setting(score=None)),
    (SCORE, setting(score=1.5)),
    (SCORE, setting(status=Status.FAILED)),
    (SCORE, setting(items=0)),
    (SCORE, setting(steps_done=4)),
    (CHECKPOINT, setting(checkpoint=None)),
    (CHECKPOINT, lambda: Broken(littering)),
    (EVALUATES, without("eval")),
    (EVALUATES, without("eval", step=5)),
    ("test_it_keeps_the_checkpoint_it_was_asked_for", lambda: Broken(keeping_last)),
    ("test_every_step_is_reported", without("train", step=3)),
    (METRIC, lambda: Rows(lambda row: replace(row, values={k: v for k, v in row.values.items() if k != "loss"}))),
    (METRIC, setting(missing={"kl": ""})),
    (COST, cost(steps=0)),
    (COST, cost(optimizer_steps=5)),
    (COST, cost(generated_tokens=0)),
    (STOP, Deaf),
    (STOP, lambda: Broken(stopped_without_score)),
    ("test_the_score_is_that_of_the_checkpoint", lambda: Broken(boasting)),
    ("test_the_score_is_that_of_the_checkpoint", Unskilled),
    ("test_a_child_starts_from_its_parents_weights", FromTheBase),
    (NO_STEPS, setting(score=None)),
    (NO_STEPS, lambda: Broken(littering)),
    (EVALUATION, lambda: Broken(of_the_start)),
    (EVALUATION, lambda: Broken(littering)),
    ("test_training_never_reads_the_test_split", Peeking),
    ("test_training_never_reads_the_test_split", OneSplit),
    ("test_a_result_survives_its_file", setting(by_subtask={"sim": [1]})),
    ("test_it_refuses_options_it_does_not_know", Careless),
]


@pytest.mark.parametrize(("test", "trainer"), BROKEN)
def test_the_suite_catches(test: str, trainer: Callable[[], Trainer], tmp_path: Path) -> None:
    assert caught(type("Suite", (TrainerContract,), {"factory": staticmethod(trainer)}), test, tmp_path)


def test_every_test_of_the_suite_can_fail() -> None:
    assert {test for test, _ in BROKEN} == set(promises_of(TrainerContract))


def test_the_worker_may_fill_in_curve_and_summaries(tmp_path: Path) -> None:
    suite = type("Suite", (TrainerContract,), {"factory": staticmethod(setting(curve=(), summaries={}))})
    assert [caught(suite, test, tmp_path) for test in (EVALUATES, METRIC)] == ["", ""]
