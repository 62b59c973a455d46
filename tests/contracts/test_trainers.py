"""What the built-in trainers promise beyond `llmzero.testing.TrainerContract`; TRL runs on a tiny model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from trainer_kit import Letters, Played, job_of, play, tiny_model, weight_bytes

from llmzero.domain.errors import PhaseError
from llmzero.domain.jobs import Job
from llmzero.domain.series import METRICS, eval_points, summarise
from llmzero.domain.types import Cost, PhaseResult, Status
from llmzero.ports import Trainer
from llmzero.wiring import make_trainer


@dataclass(frozen=True)
class Rig:
    """A trainer, the base it starts from, and one finished phase of 5 steps with two updates each."""

    trainer: Trainer
    base: Path
    job: Job
    played: Played


@pytest.fixture(scope="module", params=["trl", "sim"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    root = tmp_path_factory.mktemp(request.param)
    base = tiny_model(root / "base")
    trainer = make_trainer(request.param)
    job = job_of(base, phase={"steps": 5}, updates_per_batch=2)
    return Rig(trainer, base, job, play(trainer, job, root / "n1"))


def timeless(result: PhaseResult) -> PhaseResult:
    """The result without what a clock decides."""
    summaries = {name: s for name, s in result.summaries.items() if name != "step_time_s"}
    counts = Cost(
        steps=result.cost.steps,
        optimizer_steps=result.cost.optimizer_steps,
        generated_tokens=result.cost.generated_tokens,
    )
    return replace(result, summaries=summaries, cost=counts)


def stop_after(calls: int) -> Callable[[], bool]:
    seen = iter(range(calls))
    return lambda: next(seen, None) is None


def test_the_curve_starts_at_0_increases_and_ends_at_the_last_step(rig: Rig) -> None:
    steps = [point.step for point in rig.played.result.curve]
    assert steps == [0, 2, 4, 5]
    assert all(0 <= p.score <= 1 and p.se >= 0 for p in rig.played.result.curve)
    assert rig.played.result.curve == eval_points(rig.played.rows)


def test_every_metric_is_reported_each_step_or_said_to_be_missing(rig: Rig) -> None:
    rows = rig.played.train_rows()
    assert [row.step for row in rows] == [1, 2, 3, 4, 5]
    for row in rows:
        assert set(METRICS) - set(row.values) == set(rig.played.result.missing)
    assert rig.played.result.summaries == summarise(rig.played.rows)


def test_absent_metrics_are_named_with_a_reason(rig: Rig, tmp_path: Path) -> None:
    job = job_of(rig.base, phase={"steps": 1}, kl_coef=0.0)
    played = play(rig.trainer, job, tmp_path)
    assert set(played.result.missing) == {"kl", "clip_ratio"}
    assert set(METRICS) - set(played.train_rows()[0].values) == {"kl", "clip_ratio"}


def test_the_cost_counts_batches_updates_and_tokens(rig: Rig) -> None:
    cost = rig.played.result.cost
    assert (cost.steps, cost.optimizer_steps) == (5, 10)
    assert 0 < cost.generated_tokens <= 5 * 16 * 6
    assert cost.wall_s >= cost.train_s > 0


def test_a_stop_ends_the_phase_early_with_a_score(rig: Rig, tmp_path: Path) -> None:
    played = play(rig.trainer, rig.job, tmp_path, should_stop=stop_after(2))
    assert played.result.status is Status.STOPPED
    assert played.result.steps_done == 3
    assert [point.step for point in played.result.curve] == [0, 2, 3]
    assert played.result.score is not None
    assert played.checkpoint.is_dir()


def test_the_same_job_gives_the_same_result_and_weights(rig: Rig, tmp_path: Path) -> None:
    again = play(rig.trainer, rig.job, tmp_path)
    assert timeless(again.result) == timeless(rig.played.result)
    assert weight_bytes(again.checkpoint) == weight_bytes(rig.played.checkpoint)


def test_another_seed_gives_other_weights(rig: Rig, tmp_path: Path) -> None:
    other = replace(rig.job, phase=replace(rig.job.phase, seed=99))
    played = play(rig.trainer, other, tmp_path)
    assert weight_bytes(played.checkpoint) != weight_bytes(rig.played.checkpoint)


def test_the_score_is_that_of_the_checkpoint_on_disk(rig: Rig, tmp_path: Path) -> None:
    measured = play(rig.trainer, job_of(rig.played.checkpoint, phase={"steps": 0}), tmp_path).result
    assert (measured.score, measured.score_se) == (rig.played.result.score, rig.played.result.score_se)


def test_a_child_starts_at_its_parents_weights(rig: Rig, tmp_path: Path) -> None:
    child = job_of(rig.played.checkpoint, phase={"id": "n2", "parent": "n1", "steps": 1}, learning_rate=0.0)
    assert play(rig.trainer, child, tmp_path).result.score == rig.played.result.score


def test_evaluate_scores_the_asked_split_and_writes_nothing(rig: Rig, tmp_path: Path) -> None:
    job = replace(job_of(rig.played.checkpoint), kind="evaluate")
    test = rig.trainer.evaluate(replace(job, split="test"), Letters(), workdir=tmp_path)
    validation = rig.trainer.evaluate(replace(job, split="validation"), Letters(), workdir=tmp_path)
    assert test.score is not None and 0 <= test.score <= 1
    assert validation.score == rig.played.result.score
    assert test.score != validation.score
    assert list(tmp_path.iterdir()) == []


def test_a_kept_optimizer_is_refused(rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(PhaseError, match="fresh optimizer") as caught:
        play(rig.trainer, job_of(rig.base, phase={"optimizer": "keep"}), tmp_path)
    assert caught.value.kind == "bad_config"


def test_a_trainer_prints_nothing(rig: Rig, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    play(rig.trainer, job_of(rig.base, phase={"steps": 1}), tmp_path)
    assert capfd.readouterr() == ("", "")
