"""The conformance suite of `ports.Trainer`."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, cast

from llmzero.domain.config import EvalConfig, RunConfig
from llmzero.domain.errors import UsageError
from llmzero.domain.examples import Example, Split
from llmzero.domain.jobs import Job, Weights
from llmzero.domain.series import METRICS, MetricRow, eval_points, summarise
from llmzero.domain.types import HyperParams, Phase, PhaseResult, Status
from llmzero.ports import Task, Trainer
from llmzero.testing.checks import refuses, survives_json

STEPS, EVERY = 5, 2
HYPER = HyperParams(
    learning_rate=1e-4, kl_coef=0.01, group_size=4, prompts_per_step=2, updates_per_batch=2, max_completion_tokens=16
)
EVAL = EvalConfig(every=EVERY, curve_items=4, curve_samples=1, items=8, samples=2, max_completion_tokens=16)


@dataclass(slots=True)
class Played:
    """What a trainer did with a job in `folder`."""

    result: PhaseResult
    rows: list[MetricRow] = field(default_factory=list)
    folder: Path = Path()

    def steps_of(self, kind: str) -> list[int]:
        return [row.step for row in self.rows if row.kind == kind]


class TrainerContract:
    """What every trainer promises, shown on one phase of 5 steps (evaluated at 2, 4, 5) and short ones beside it.

    `base` is the model phases start from and `task` the task, by default the embedded ones; `hyper`, `eval` and
    `options` (the run's `[options]`) can be replaced too. `slack` is how many standard errors two scores of the same
    weights may lie apart: 0 for a trainer that samples its evaluations with fixed seeds.
    """

    factory: ClassVar[Callable[..., Trainer]]
    hyper: ClassVar[HyperParams] = HYPER
    eval: ClassVar[EvalConfig] = EVAL
    options: ClassVar[Mapping[str, str]] = {}
    slack: ClassVar[float] = 0.0
    _root: ClassVar[Path]
    _played: ClassVar[Played]

    def make(self) -> Trainer:
        return type(self).factory()

    def base(self) -> str:
        from llmzero.trainers.nano import nano_path

        return str(nano_path("chemcot"))

    def task(self) -> Task:
        from llmzero.wiring import make_task

        return make_task("chemcot")

    @classmethod
    def setup_class(cls) -> None:
        cls._root = Path(tempfile.mkdtemp(prefix="llmzero-trainer-"))
        suite = cls()
        cls._played = suite.play(suite.job(), cls._root / "n1")

    @classmethod
    def teardown_class(cls) -> None:
        shutil.rmtree(cls._root, ignore_errors=True)

    def job(self, start: Path | None = None, **phase: Any) -> Job:
        """A train job of the suite from `start` (the base), with fields of its phase replaced."""
        given = {"id": "n1", "parent": "n0", "steps": STEPS, "eval_every": EVERY, "seed": 3, **phase}
        base = self.base()
        return Job(
            kind="train",
            phase=Phase(hyper=self.hyper, **given),
            start=Weights(path=str(start or base)),
            anchor=Weights(path=base),
            task=self.task().name,
            data="mini",
            model=base,
            trainer="",
            eval=self.eval,
            options=self.options,
            threads=1,
        )

    def play(self, job: Job, folder: Path, should_stop: Callable[[], bool] = lambda: False) -> Played:
        """Train a job in `folder`, which holds nothing but what the trainer writes."""
        folder.mkdir(parents=True, exist_ok=True)
        rows: list[MetricRow] = []
        result = self.make().train(job, self.task(), report=rows.append, should_stop=should_stop, workdir=folder)
        return Played(result, rows, folder)

    def test_a_phase_ends_with_a_score(self) -> None:
        result = self._played.result
        assert result.status is Status.FINISHED, f"status is {result.status}: {result.message}"
        assert result.steps_done == STEPS, f"steps_done is {result.steps_done}, not {STEPS}"
        assert _is_score(result.score), f"score is {result.score}"
        assert result.score_se is not None and result.score_se >= 0, f"score_se is {result.score_se}"
        assert result.items > 0, "items must say on how many examples the score was measured"
        assert result.failure is None, f"a finished phase has the failure {result.failure}"

    def test_the_checkpoint_is_written_and_nothing_else(self) -> None:
        checkpoint = self._played.result.checkpoint
        assert checkpoint is not None and checkpoint.path == "checkpoint", f"checkpoint is {checkpoint}"
        folder = self._played.folder / "checkpoint"
        assert folder.is_dir() and any(folder.iterdir()), "workdir/checkpoint is missing or empty"
        others = sorted(p.name for p in self._played.folder.iterdir() if p.name != "checkpoint")
        assert not others, f"written outside workdir/checkpoint: {others}"

    def test_it_evaluates_when_asked(self) -> None:
        steps = self._played.steps_of("eval")
        assert steps == sorted(set(steps)), f"evaluations at {steps}: not in order"
        assert set(steps) - {0} == {2, 4, STEPS}, f"evaluations at {steps}: eval_every is {EVERY}, the last step counts"
        for point in eval_points(self._played.rows):
            assert _is_score(point.score) and point.se >= 0, f"evaluation {point}"
        curve = self._played.result.curve
        assert curve in ((), eval_points(self._played.rows)), "result.curve is not what was reported"

    def test_it_keeps_the_checkpoint_it_was_asked_for(self, tmp_path: Path) -> None:
        trained = [point for point in eval_points(self._played.rows) if point.step > 0]
        best = max(point.score for point in trained)
        checkpoint = self._played.result.checkpoint
        kept = next((p for p in trained if checkpoint and p.step == checkpoint.step), None)
        assert kept is not None and kept.score == best, f"keep = best of {trained}, but kept {checkpoint}"
        last = self.play(self.job(keep="last"), tmp_path).result.checkpoint
        assert last is not None and last.step == STEPS, f"keep = last, but kept {last}"

    def test_every_step_is_reported(self) -> None:
        steps = self._played.steps_of("train")
        assert steps == list(range(1, STEPS + 1)), f"train rows at {steps}"

    def test_every_metric_is_reported_or_said_to_be_missing(self) -> None:
        result = self._played.result
        for row in (row for row in self._played.rows if row.kind == "train"):
            silent = sorted(set(METRICS) - set(row.values) - set(result.missing))
            assert not silent, f"step {row.step}: {silent} neither reported nor in `missing`"
            assert all(isinstance(value, float | int) for value in row.values.values()), (
                f"step {row.step}: {row.values}"
            )
        assert all(reason for reason in result.missing.values()), f"missing without a reason: {result.missing}"
        assert result.summaries in ({}, summarise(self._played.rows)), "summaries are not those of the reported rows"

    def test_the_cost_is_counted(self) -> None:
        cost = self._played.result.cost
        assert cost.steps == STEPS, f"cost.steps is {cost.steps}, not {STEPS}"
        updates = STEPS * self.hyper.updates_per_batch
        assert cost.optimizer_steps == updates, f"cost.optimizer_steps is {cost.optimizer_steps}, not {updates}"
        most = STEPS * self.hyper.group_size * self.hyper.prompts_per_step * self.hyper.max_completion_tokens
        assert 0 < cost.generated_tokens <= most, f"cost.generated_tokens is {cost.generated_tokens}, not 1..{most}"

    def test_a_stop_ends_the_phase_early_with_a_score(self, tmp_path: Path) -> None:
        asked = iter((False, False))
        played = self.play(self.job(), tmp_path, should_stop=lambda: next(asked, True))
        result = played.result
        assert result.status is Status.STOPPED, f"status is {result.status}"
        assert 1 <= result.steps_done <= 3, f"asked before step 3 or 4, stopped after {result.steps_done}"
        assert _is_score(result.score), f"a stopped phase has the score {result.score}"

    def test_the_score_is_that_of_the_checkpoint(self, tmp_path: Path) -> None:
        """Measured again from disk it is the same, within `slack`."""
        first = self._played.result
        again = self.play(self.job(self._checkpoint(), steps=0), tmp_path).result
        assert self._near(first, again), f"score {first.score} in the phase, {again.score} from its checkpoint"

    def test_a_child_starts_from_its_parents_weights(self, tmp_path: Path) -> None:
        """With no learning rate a child keeps what its parent had."""
        still = replace(self.hyper, learning_rate=0.0)
        job = self.job(self._checkpoint(), id="n2", parent="n1", steps=1)
        child = self.play(replace(job, phase=replace(job.phase, hyper=still)), tmp_path).result
        assert self._near(self._played.result, child), (
            f"{self._played.result.score} became {child.score} without training"
        )

    def test_a_phase_of_no_steps_measures_its_start(self, tmp_path: Path) -> None:
        played = self.play(self.job(steps=0), tmp_path)
        assert played.result.status is Status.FINISHED, f"status is {played.result.status}"
        assert _is_score(played.result.score), f"score is {played.result.score}"
        assert (played.result.steps_done, played.result.checkpoint) == (0, None), "it trained, or kept a checkpoint"
        assert not list(tmp_path.iterdir()), f"it wrote {sorted(p.name for p in tmp_path.iterdir())}"

    def test_an_evaluation_scores_and_writes_nothing(self, tmp_path: Path) -> None:
        job = replace(self.job(self._checkpoint()), kind="evaluate")
        scores = {}
        for split in ("validation", "test"):
            result = self.make().evaluate(replace(job, split=split), self.task(), workdir=tmp_path)
            assert result.status is Status.FINISHED and _is_score(result.score), f"{split}: {result}"
            scores[split] = result
        assert self._near(scores["validation"], self._played.result), "validation is not scored as in the phase"
        assert not list(tmp_path.iterdir()), f"it wrote {sorted(p.name for p in tmp_path.iterdir())}"

    def test_training_never_reads_the_test_split(self, tmp_path: Path) -> None:
        """A trainer that reads no items at all (the simulator) has nothing to show here."""
        seen = _Seen(self.task())
        job = self.job(steps=1)
        self.make().train(job, cast(Task, seen), report=lambda row: None, should_stop=lambda: False, workdir=tmp_path)
        assert "test" not in seen.splits, "a phase asked the task for its test split"
        seen.splits.clear()
        test = replace(job, kind="evaluate", split="test")
        self.make().evaluate(test, cast(Task, seen), workdir=tmp_path)
        assert set(seen.splits) <= {"test"}, f"evaluating the test split, it read {sorted(set(seen.splits))}"

    def test_a_result_survives_its_file(self) -> None:
        assert survives_json(self._played.result), f"not the same after JSON: {self._played.result}"

    def test_it_refuses_options_it_does_not_know(self) -> None:
        """For a trainer with `refuse`: asked before a run begins."""
        refuse = getattr(self.make(), "refuse", None)
        if refuse is None:
            return
        refuse(RunConfig(hyper=self.hyper, options=self.options))
        unknown = RunConfig(hyper=self.hyper, options={"no_such_option": "1"})
        assert refuses(UsageError, lambda: refuse(unknown)), "an unknown option must raise UsageError"

    def _checkpoint(self) -> Path:
        return self._played.folder / "checkpoint"

    def _near(self, one: PhaseResult, other: PhaseResult) -> bool:
        """Whether two scores are those of the same weights."""
        if one.score is None or other.score is None:
            return False
        noise = math.hypot(one.score_se or 0.0, other.score_se or 0.0)
        return abs(one.score - other.score) <= 1e-9 + self.slack * noise


class _Seen:
    """A task that notes which splits it is asked for."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.splits: list[Split] = []

    def examples(self, split: Split) -> Sequence[Example]:
        self.splits.append(split)
        return self._task.examples(split)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)


def _is_score(score: float | None) -> bool:
    return score is not None and math.isfinite(score) and 0 <= score <= 1
