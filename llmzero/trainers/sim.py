"""SimTrainer: a phase in milliseconds, for tests, crash loops and search benchmarks.

Not a model of any real run: a few hidden numbers that react to the hyperparameters in the direction practitioners
report, with noise from the phase's seed. A checkpoint is a folder with `sim.json`; any other start is the base.
What it reproduces: a learning rate may be too timid, good, or too high (collapse above about 3e-4); a high rate learns
fast but levels off lower, so lowering it in a later phase pays; a large KL weight ties the policy to its anchor; small
batches are noisy; a low completion cap truncates; sharpening lowers entropy, which slows learning.

`options` (see OPTIONS): `sim_step_s` sleeps that long each step; `sim_fault` (nan, oom, error, die, hang) strikes at
step `sim_fault_step` (1), only in phase `sim_fault_phase` and up to attempt `sim_fault_attempts` where these are given.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from llmzero.domain.config import RunConfig
from llmzero.domain.errors import PhaseError, UsageError, did_you_mean
from llmzero.domain.jobs import Job
from llmzero.domain.seeds import derive_seed
from llmzero.domain.series import MetricRow, eval_points, summarise
from llmzero.domain.types import Checkpoint, Cost, EvalPoint, HyperParams, PhaseResult, Status
from llmzero.ports import Task

FILE = "sim.json"
FAULTS = ("nan", "oom", "error", "die", "hang")
NUMBERS = ("sim_step_s", "sim_fault_step", "sim_fault_attempts")
OPTIONS = (*NUMBERS, "sim_fault", "sim_fault_phase")
MOST = 1_000_000
GOOD_RATE = 1e-4
ALL_ITEMS = 200
"""How many validation items `items = 0` stands for: the task's own are never read."""


@dataclass(frozen=True, slots=True)
class SimState:
    """The policy: `skill` is the logit of its success rate, `entropy` in nats, `length` in tokens."""

    skill: float = -0.6
    entropy: float = 0.8
    length: float = 18.0

    @property
    def success(self) -> float:
        return 1 / (1 + math.exp(-self.skill))


def load_state(path: str) -> SimState:
    """The state in a folder's sim.json; the base for a model folder or a hub id."""
    file = Path(path) / FILE
    if not file.exists():
        return SimState()
    try:
        return SimState(**json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise PhaseError("bad_checkpoint", f"{file}: {error}") from None


def advance(
    state: SimState, hyper: HyperParams, rate: float, rng: random.Random, *, anchor: SimState
) -> tuple[SimState, dict[str, float]]:
    """One step at learning rate `rate`: the next state and the step's metrics, timing excepted."""
    batch = hyper.group_size * hyper.prompts_per_step
    push = rate / GOOD_RATE * math.sqrt(hyper.updates_per_batch)
    truncated = 1 / (1 + math.exp((hyper.max_completion_tokens - state.length) / 2.5))
    reward = state.success * (1 - truncated) + rng.gauss(0, 0.25 / math.sqrt(batch))
    dead = min(1.0, state.success**hyper.group_size + (1 - state.success) ** hyper.group_size)
    kl = 0.05 * (state.skill - anchor.skill) ** 2 + 0.002 * push
    moved = _skill_change(state, hyper, push, kl=kl, signal=(1 - truncated) * (1 - dead), batch=batch)
    noise = rng.gauss(0, 0.02 * push / math.sqrt(batch / 64))
    sharpened = 0.6 * hyper.temperature * (1 - 0.5 * state.success) + 20 * hyper.entropy_coef
    after = SimState(
        skill=max(-6.0, min(6.0, state.skill + moved + noise)),
        entropy=max(0.02, state.entropy + 0.03 * min(push, 3.0) * (sharpened - state.entropy)),
        length=max(4.0, state.length + rng.gauss(0, 0.05) - 0.1 * truncated),
    )
    bound = min(1.0, max(0.0, reward))
    return after, {
        "reward": bound,
        "reward_std": math.sqrt(max(0.0, bound * (1 - bound))),
        "zero_std_share": dead,
        "kl": kl,
        "entropy": after.entropy,
        "grad_norm": abs((0.3 + 0.4 * max(0.0, push - 3)) * (1 + rng.gauss(0, 0.15))),
        "clip_ratio": 0.0 if hyper.updates_per_batch == 1 else min(0.5, 0.01 * push),
        "truncated_share": truncated,
        "mean_length_tokens": min(state.length, float(hyper.max_completion_tokens)),
        "loss": hyper.kl_coef * kl + rng.gauss(0, 0.003),
        "learning_rate": rate,
        "generated_tokens": float(round(batch * min(state.length, hyper.max_completion_tokens))),
    }


def _skill_change(state: SimState, hyper: HyperParams, push: float, *, kl: float, signal: float, batch: int) -> float:
    """Learning towards a ceiling that falls with the push, less the pull of the KL term and a high push's damage."""
    ceiling = max(0.05, 0.95 - 0.12 * push / math.sqrt(batch / 64))
    exploring = max(0.2, 1 - ((hyper.temperature - 1) / 0.7) ** 2) * (0.5 + 0.5 * hyper.top_p)
    room = (ceiling - state.success) * min(1.0, state.entropy / 0.4)
    learning = 0.08 * min(push, 3.0) * room * signal * exploring
    pull = 0.5 * hyper.kl_coef * kl * push
    damage = 0.12 * max(0.0, math.log(push / 3)) if push > 3 else 0.0
    return learning - pull - damage / (1 + 2 * hyper.kl_coef)


def rate_at(hyper: HyperParams, step: int, steps: int) -> float:
    """The learning rate of `step` (from 1) of `steps`."""
    if step <= hyper.warmup_steps:
        return hyper.learning_rate * (step - 1) / hyper.warmup_steps
    done = (step - 1 - hyper.warmup_steps) / max(1, steps - hyper.warmup_steps)
    shapes = {"constant": 1.0, "linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done))}
    return hyper.learning_rate * shapes[hyper.lr_schedule]


def measured(state: SimState, *, items: int, samples: int, seed: int) -> tuple[float, float]:
    """A score and its standard error, as if sampled: half of the variance is between items."""
    p = state.success
    se = math.sqrt(p * (1 - p) * (0.5 + 0.5 / samples) / items)
    return min(1.0, max(0.0, p + random.Random(seed).gauss(0, se))), se


@dataclass(slots=True)
class _Progress:
    """What a running phase has gathered."""

    state: SimState
    kept: SimState
    kept_step: int = 0
    best: float = -1.0
    steps: int = 0
    tokens: int = 0
    stopped: bool = False
    rows: list[MetricRow] = field(default_factory=list)


class SimTrainer:
    """`ports.Trainer` over `advance`. Stateless, deterministic but for times."""

    def refuse(self, config: RunConfig) -> None:
        """UsageError on options that are not its own, and on any extra field."""
        for name in config.options:
            if name not in OPTIONS:
                raise UsageError(f"options: unknown option {name!r} of the sim trainer: {did_you_mean(name, OPTIONS)}")
            _refuse_value(name, config.options[name])
        if config.hyper.extra:
            raise UsageError(f"the sim trainer has no further field such as {next(iter(config.hyper.extra))!r}")

    def train(
        self,
        job: Job,
        task: Task,
        *,
        report: Callable[[MetricRow], None],
        should_stop: Callable[[], bool],
        workdir: Path,
    ) -> PhaseResult:
        """See `ports.Trainer`."""
        began = time.monotonic()
        if job.phase.steps == 0:
            return _measure_start(job, began, report=report)
        if job.phase.optimizer == "keep":
            raise PhaseError("bad_config", "optimizer 'keep': sim phases start with a fresh optimizer; use 'reset'")
        start = load_state(job.start.path)
        progress = _Progress(state=start, kept=start)

        def emit(kind: str, values: dict[str, float]) -> None:
            row = MetricRow(kind=kind, step=progress.steps, values=values, at_s=time.monotonic() - began)
            progress.rows.append(row)
            report(row)

        emit("eval", _curve_point(job, start, 0))
        _run(job, progress, emit, should_stop)
        folder = workdir / "checkpoint"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / FILE).write_text(json.dumps(asdict(progress.kept)), encoding="utf-8")
        return _result(job, progress, load_state(str(folder)), wall_s=time.monotonic() - began)

    def evaluate(self, job: Job, task: Task, *, workdir: Path) -> PhaseResult:
        return _measure_start(job, time.monotonic(), report=lambda row: None)


def _run(
    job: Job, progress: _Progress, emit: Callable[[str, dict[str, float]], None], should_stop: Callable[[], bool]
) -> None:
    phase = job.phase
    rng, anchor = random.Random(phase.seed), load_state(job.anchor.path)
    pause_s = _number(job, "sim_step_s", 0.0)
    absent = _missing(phase.hyper)
    while progress.steps < phase.steps and not progress.stopped:
        began = time.monotonic()
        progress.steps += 1
        _fault(job, progress.steps)
        time.sleep(pause_s)
        rate = rate_at(phase.hyper, progress.steps, phase.steps)
        progress.state, values = advance(progress.state, phase.hyper, rate, rng, anchor=anchor)
        progress.tokens += int(values["generated_tokens"])
        shown = {name: value for name, value in values.items() if name not in absent}
        emit("train", {**shown, "step_time_s": time.monotonic() - began})
        last = progress.steps == phase.steps
        progress.stopped = not last and should_stop()
        if last or progress.stopped or progress.steps % phase.eval_every == 0:
            point = _curve_point(job, progress.state, progress.steps)
            emit("eval", point)
            _keep(job, progress, point["score"])


def _keep(job: Job, progress: _Progress, score: float) -> None:
    if job.phase.keep == "last" or score > progress.best:
        progress.kept, progress.kept_step, progress.best = progress.state, progress.steps, score


def _curve_point(job: Job, state: SimState, step: int) -> dict[str, float]:
    seed = derive_seed(job.phase.seed, "curve", step)
    items = job.eval.curve_items or ALL_ITEMS
    score, se = measured(state, items=items, samples=job.eval.curve_samples, seed=seed)
    return {"score": score, "se": se}


def _score(job: Job, state: SimState, split: str) -> tuple[float, float, int]:
    """Score, standard error and items of a state: the same state scores the same throughout a run."""
    items = job.eval.items or ALL_ITEMS
    seed = derive_seed(job.run_seed, "score", split, f"{state.skill:.12g}")
    return (*measured(state, items=items, samples=job.eval.samples, seed=seed), items)


def _result(job: Job, progress: _Progress, kept: SimState, *, wall_s: float) -> PhaseResult:
    score, se, items = _score(job, kept, "validation")
    return PhaseResult(
        status=Status.STOPPED if progress.stopped else Status.FINISHED,
        steps_done=progress.steps,
        score=score,
        score_se=se,
        checkpoint=Checkpoint(path="checkpoint", digest="", step=progress.kept_step),
        curve=eval_points(progress.rows),
        summaries=summarise(progress.rows),
        missing=_missing(job.phase.hyper),
        by_subtask={"sim": score},
        items=items,
        cost=Cost(
            wall_s=wall_s,
            train_s=wall_s,
            steps=progress.steps,
            optimizer_steps=progress.steps * job.phase.hyper.updates_per_batch,
            generated_tokens=progress.tokens,
        ),
    )


def _measure_start(job: Job, began: float, *, report: Callable[[MetricRow], None]) -> PhaseResult:
    split = job.split if job.kind == "evaluate" else "validation"
    score, se, items = _score(job, load_state(job.start.path), split)
    wall_s = time.monotonic() - began
    report(MetricRow(kind="eval", step=0, values={"score": score, "se": se}, at_s=wall_s))
    return PhaseResult(
        status=Status.FINISHED,
        score=score,
        score_se=se,
        curve=(EvalPoint(0, score, se),),
        by_subtask={"sim": score},
        items=items,
        cost=Cost(wall_s=wall_s, eval_s=wall_s),
    )


def _missing(hyper: HyperParams) -> dict[str, str]:
    kl = {} if hyper.kl_coef else {"kl": "kl_coef is 0: there is no anchor"}
    clip = {} if hyper.updates_per_batch > 1 else {"clip_ratio": "one update per batch: nothing can be clipped"}
    return {**kl, **clip}


def _number(job: Job, name: str, default: float) -> float:
    given = job.options.get(name, str(default))
    try:
        return float(given)
    except ValueError:
        raise PhaseError("bad_config", f"option {name}={given!r} is not a number") from None


def _refuse_value(name: str, value: str) -> None:
    """UsageError on a value that an option cannot take."""
    if name == "sim_fault" and value not in FAULTS:
        raise UsageError(f"options.sim_fault = {value!r}: {did_you_mean(value, FAULTS)}")
    if name in NUMBERS and not (value.replace(".", "", 1).isdecimal() and float(value) <= MOST):
        raise UsageError(f"options.{name} = {value!r}: must be a number from 0 to {MOST}")


def _fault(job: Job, step: int) -> None:
    """The failure asked for in the job's options, when its step, phase and attempt have come."""
    kind = job.options.get("sim_fault")
    if kind is None or step != int(_number(job, "sim_fault_step", 1)):
        return
    if job.options.get("sim_fault_phase", job.phase.id) != job.phase.id:
        return
    if job.attempt > _number(job, "sim_fault_attempts", math.inf):
        return
    match kind:
        case "nan":
            raise PhaseError("nan", f"loss is nan at step {step}: lower learning_rate")
        case "oom":
            raise PhaseError("out_of_memory", f"out of memory at step {step}: lower max_completion_tokens")
        case "error":
            raise RuntimeError(f"simulated error at step {step}")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            while True:
                time.sleep(3600)
        case _:
            raise PhaseError("bad_config", f"option sim_fault={kind!r}: {did_you_mean(kind, FAULTS)}")
