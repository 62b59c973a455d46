"""TrlTrainer: a phase from start weights to a scored checkpoint."""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmzero.domain.config import RunConfig
from llmzero.domain.errors import PhaseError, UsageError
from llmzero.domain.examples import Example, Split
from llmzero.domain.jobs import Job
from llmzero.domain.seeds import derive_seed
from llmzero.domain.series import MetricRow, eval_points, summarise
from llmzero.domain.types import Checkpoint, Cost, EvalPoint, PhaseResult, Status
from llmzero.ports import Task, is_multi_turn
from llmzero.trainers.trl.checks import check_launch
from llmzero.trainers.trl.config import batch_sizes, checked_extra, grpo_config
from llmzero.trainers.trl.devices import use_one_gpu
from llmzero.trainers.trl.evaluation import Measured, measure
from llmzero.trainers.trl.generation import Sampling
from llmzero.trainers.trl.quiet import named_failures, quiet
from llmzero.trainers.trl.rewards import RewardMeter
from llmzero.trainers.trl.rollouts import EXAMPLE, rollout_function
from llmzero.trainers.trl.watch import PhaseWatch, absent_metrics, callback_for
from llmzero.trainers.trl.weights import (
    copy_of_tensors,
    folder_of,
    load_into,
    load_policy,
    load_tokenizer,
    policy_of,
    save_policy,
    size_bytes,
)

ONE_THREAD_BYTES = 20_000_000


class TrlTrainer:
    """Runs phases with TRL's GRPOTrainer, in this process. Stateless: every call stands for itself."""

    def refuse(self, config: RunConfig) -> None:
        """UsageError on `options` (there are none), on unknown or reserved extra fields, on batches that do not divide.

        TRL is imported only where there are extra fields to compare with its own.
        """
        if config.options:
            raise UsageError(f"options.{next(iter(config.options))}: the trl trainer has no options; remove it")
        try:
            batch_sizes(config.hyper)
            if config.hyper.extra:
                checked_extra(config.hyper)
        except PhaseError as error:
            raise UsageError(f"hyper: {error}") from None

    def train(
        self,
        job: Job,
        task: Task,
        *,
        report: Callable[[MetricRow], None],
        should_stop: Callable[[], bool],
        workdir: Path,
    ) -> PhaseResult:
        """See `ports.Trainer`. The score is measured on `workdir / "checkpoint"` after reloading it."""
        with quiet(), named_failures():
            start = folder_of(job.start.path)
            cuda = _prepare_torch(job.threads, start)
            if job.phase.steps == 0:
                return _measure(job, task, start, cuda=cuda, split="validation", report=report)
            with tempfile.TemporaryDirectory(prefix="llmzero-trl-") as scratch:
                run = _start(job, task, start, cuda=cuda, scratch=Path(scratch))
                return _train(run, report=report, should_stop=should_stop, workdir=workdir)

    def evaluate(self, job: Job, task: Task, *, workdir: Path) -> PhaseResult:
        with quiet(), named_failures():
            start = folder_of(job.start.path)
            cuda = _prepare_torch(job.threads, start)
            return _measure(job, task, start, cuda=cuda, split=job.split, report=lambda row: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A constructed phase, before its first step."""

    job: Job
    task: Task
    trainer: Any
    meter: RewardMeter
    start: Path
    anchor: Path
    cuda: bool
    began: float


def _prepare_torch(threads: int, start: Path) -> bool:
    """Sets the CPU threads; true where the phase runs on a GPU.

    Left to us (0), small weights get one thread: on such matrices a second one gains nothing, and where another
    process wants its core, waiting for it makes every operation about ten times slower.
    """
    import torch

    if threads > 0 or size_bytes(start) < ONE_THREAD_BYTES:
        torch.set_num_threads(threads or 1)
    return use_one_gpu()


def _start(job: Job, task: Task, start: Path, *, cuda: bool, scratch: Path) -> _Run:
    from transformers import PrinterCallback

    began = time.monotonic()
    anchor = folder_of(job.anchor.path) if job.phase.hyper.kl_coef else start
    config = grpo_config(job, output_dir=scratch, cuda=cuda, start_bytes=size_bytes(start))
    examples = _train_order(task, job)
    by_id = {example.id: example for example in examples}
    meter = RewardMeter(task, by_id, job.phase.hyper.group_size)
    rollouts = rollout_function(task, by_id) if is_multi_turn(task) else None
    trainer = _construct(start, config, meter, _dataset(task, examples), rollouts)
    trainer.remove_callback(PrinterCallback)
    if trainer.ref_model is not None and anchor != start:
        _set_anchor(trainer, anchor)
    return _Run(job=job, task=task, trainer=trainer, meter=meter, start=start, anchor=anchor, cuda=cuda, began=began)


def _construct(start: Path, config: Any, meter: RewardMeter, dataset: Any, rollouts: Any) -> Any:
    from safetensors import SafetensorError
    from trl.trainer.grpo_trainer import GRPOTrainer

    tokenizer = load_tokenizer(start)
    try:
        return GRPOTrainer(
            model=str(start),
            args=config,
            reward_funcs=meter,
            train_dataset=dataset,
            processing_class=tokenizer,
            rollout_func=rollouts,
        )
    except (OSError, SafetensorError) as error:
        raise PhaseError("bad_checkpoint", f"{start}: {str(error).strip().partition(chr(10))[0]}") from error
    except (ValueError, ImportError) as error:
        raise PhaseError("bad_config", f"TRL cannot start the phase: {str(error).partition(chr(10))[0]}") from error


def _set_anchor(trainer: Any, anchor: Path) -> None:
    """TRL makes the reference from the policy's own path, the phase's start; put the phase's anchor there."""
    load_into(trainer.accelerator.unwrap_model(trainer.ref_model), anchor)


def _train_order(task: Task, job: Job) -> list[Example]:
    """Exactly the prompts of the phase, in their order: seeded shuffles of the train split, one after the other."""
    pool = list(task.examples("train"))
    if not pool:
        raise PhaseError("bad_config", f"task {task.name}: no train examples")
    rng = random.Random(job.phase.seed)
    needed = job.phase.steps * job.phase.hyper.prompts_per_step
    order: list[Example] = []
    while len(order) < needed:
        order += rng.sample(pool, len(pool))
    return order[:needed]


def _dataset(task: Task, examples: Sequence[Example]) -> Any:
    from datasets import Dataset

    prompts: list[list[dict[str, Any]]] = [[dict(message) for message in task.prompt(e)] for e in examples]
    if is_multi_turn(task):
        prompts = [[{**m, EXAMPLE: e.id} for m in prompt] for e, prompt in zip(examples, prompts, strict=True)]
    return Dataset.from_dict({"prompt": prompts, "example_id": [example.id for example in examples]})


def _train(
    run: _Run, *, report: Callable[[MetricRow], None], should_stop: Callable[[], bool], workdir: Path
) -> PhaseResult:
    policy = policy_of(run.trainer.accelerator.unwrap_model(run.trainer.model), run.trainer.processing_class)
    items = run.task.examples("validation")[: run.job.eval.curve_items or None]
    sampling = _curve_sampling(run.job)
    watch = PhaseWatch(
        job=run.job,
        meter=run.meter,
        report=report,
        should_stop=should_stop,
        launch_check=lambda: check_launch(run.trainer, run.job, start=run.start, anchor=run.anchor),
        evaluate=lambda: measure(policy, run.task, items, sampling),
        snapshot=lambda: copy_of_tensors(policy.model),
        started=run.began,
    )
    run.trainer.add_callback(callback_for(watch))
    run.trainer.train()
    folder = workdir / "checkpoint"
    shutil.rmtree(folder, ignore_errors=True)
    save_policy(policy, watch.kept, folder)
    _release(run.trainer)
    began = time.monotonic()
    measured = _score(run.job, run.task, folder, cuda=run.cuda, split="validation")
    return _result(run, watch, measured, eval_s=watch.eval_s + time.monotonic() - began)


def _release(trainer: Any) -> None:
    """Make room on the device for the model that is reloaded and scored."""
    import torch

    trainer.optimizer.state.clear()
    for model in filter(None, (trainer.model, trainer.ref_model)):
        model.to("cpu")
    torch.cuda.empty_cache()


def _result(run: _Run, watch: PhaseWatch, measured: Measured, *, eval_s: float) -> PhaseResult:
    hyper = run.job.phase.hyper
    wall_s = time.monotonic() - run.began
    return PhaseResult(
        status=Status.STOPPED if watch.stopped else Status.FINISHED,
        steps_done=watch.steps_done,
        score=measured.score,
        score_se=measured.se,
        by_subtask=measured.by_subtask,
        items=measured.items,
        checkpoint=Checkpoint(path="checkpoint", digest="", step=watch.kept_step),
        curve=eval_points(watch.rows),
        summaries=summarise(watch.rows),
        missing=absent_metrics(hyper.kl_coef, hyper.updates_per_batch),
        cost=Cost(
            wall_s=wall_s,
            train_s=watch.train_s,
            eval_s=eval_s,
            start_s=watch.start_s,
            steps=watch.steps_done,
            optimizer_steps=watch.updates_done,
            generated_tokens=watch.generated_tokens,
        ),
        message=_note(run.job),
    )


def _note(job: Job) -> str:
    if job.phase.hyper.loss_type != "dr_grpo":
        return ""
    cap = job.phase.hyper.max_completion_tokens
    return f"dr_grpo divides the loss by max_completion_tokens ({cap}): loss and grad_norm scale with 1/cap"


def _measure(
    job: Job, task: Task, start: Path, *, cuda: bool, split: Split, report: Callable[[MetricRow], None]
) -> PhaseResult:
    """The start weights' own score, trained nothing and written nothing."""
    began = time.monotonic()
    measured = _score(job, task, start, cuda=cuda, split=split)
    wall_s = time.monotonic() - began
    report(MetricRow(kind="eval", step=0, values={"score": measured.score, "se": measured.se}, at_s=wall_s))
    return PhaseResult(
        status=Status.FINISHED,
        score=measured.score,
        score_se=measured.se,
        by_subtask=measured.by_subtask,
        items=measured.items,
        curve=(EvalPoint(0, measured.score, measured.se),),
        cost=Cost(wall_s=wall_s, eval_s=wall_s),
    )


def _score(job: Job, task: Task, folder: Path, *, cuda: bool, split: Split) -> Measured:
    """Weights on disk, scored with the run's common random numbers."""
    items = task.examples(split)[: job.eval.items or None]
    if not items:
        raise PhaseError("bad_config", f"task {task.name}: no {split} examples")
    sampling = Sampling(
        samples=job.eval.samples,
        temperature=job.eval.temperature,
        max_completion_tokens=job.eval.max_completion_tokens,
        seed=derive_seed(job.run_seed, "score", split),
    )
    return measure(load_policy(folder, cuda=cuda), task, items, sampling)


def _curve_sampling(job: Job) -> Sampling:
    """In-phase evaluations share one seed, in the whole run: curves differ by their weights, not by their luck."""
    return Sampling(
        samples=job.eval.curve_samples,
        temperature=job.eval.temperature,
        max_completion_tokens=job.eval.max_completion_tokens,
        seed=derive_seed(job.run_seed, "curve"),
    )
