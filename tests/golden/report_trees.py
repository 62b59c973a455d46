"""Hand-made runs for the report's tests: a realistic one, a hostile one and the empty states."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from llmzero.domain.config import RunConfig
from llmzero.domain.events import (
    CheckpointLost,
    Event,
    PhaseFinished,
    PhaseProposed,
    RunFinished,
    RunStarted,
    StopDecided,
    TestScored,
    Tree,
    fold,
)
from llmzero.domain.series import MetricRow, eval_points, summarise
from llmzero.domain.types import (
    ROOT,
    Change,
    Checkpoint,
    Cost,
    FailureKind,
    HyperParams,
    Phase,
    PhaseResult,
    Proposal,
    Scalar,
    Selection,
    Status,
    TestScore,
    Verdict,
)
from llmzero.profiles import nano_space

HYPER = HyperParams(learning_rate=1e-4, kl_coef=0.0, max_completion_tokens=48)
CONFIG = RunConfig(trainer="sim", nodes=12, hours=2.0, hyper=HYPER, space=nano_space())

# id, parent, selection, pathology, diagnosis, changes, (from, to) score, end
PLAN: tuple[tuple[str, str, str, str, str, dict[str, Scalar], tuple[float, float], str], ...] = (
    ("n1", "n0", "base", "none", "The base is untrained on this reward.", {}, (0.214, 0.331), "finished"),
    (
        "n2",
        "n1",
        "uct",
        "entropy_collapse",
        "Entropy fell from 1.9 to 0.35 nats while the reward flattened: the policy stopped exploring.",
        {"temperature": 1.2, "clip_high": 0.28, "entropy_coef": 0.005},
        (0.331, 0.402),
        "finished",
    ),
    (
        "n3",
        "n1",
        "uct",
        "slow_progress",
        "The reward rises steadily with small gradients: the learning rate is too low.",
        {"learning_rate": 8e-4},
        (0.331, 0.236),
        "stopped",
    ),
    (
        "n4",
        "n2",
        "uct",
        "weak_signal",
        "61 % of the groups have equal rewards: no gradient comes from them.",
        {"group_size": 16, "advantage_norm": "batch"},
        (0.402, 0.447),
        "finished",
    ),
    ("n5", "n2", "uct", "instability", "Gradient norm spikes.", {"learning_rate": 1e-3}, (0.402, 0.4), "failed"),
    (
        "n6",
        "n0",
        "fresh",
        "plateau",
        "Three expansions without a better score: start again with a larger batch and a KL leash.",
        {"prompts_per_step": 16, "kl_coef": 0.02, "learning_rate": 3e-4},
        (0.214, 0.352),
        "finished",
    ),
    (
        "n7",
        "n4",
        "uct",
        "kl_drift",
        "The KL to the base reached 0.41 nats per token and validation turned down.",
        {"kl_coef": 0.01, "learning_rate": 5e-5, "temperature": 1.0, "lr_schedule": "cosine"},
        (0.447, 0.489),
        "finished",
    ),
    (
        "n8",
        "n6",
        "uct",
        "length_growth",
        "Truncated completions rose to 23 %.",
        {"max_completion_tokens": 64, "mask_truncated": True},
        (0.352, 0.377),
        "finished",
    ),
    ("n9", "n7", "uct", "plateau", "Validation is flat.", {"updates_per_batch": 2}, (0.489, 0.474), "finished"),
    ("n10", "n7", "uct", "reward_noise", "Noise.", {"prompts_per_step": 16}, (0.489, 0.5), "running"),
)


def rows_of(node: str, scores: tuple[float, float], steps: int) -> list[MetricRow]:
    """Metric rows of a phase with a saturating curve; seeded by the node's id."""
    rng = random.Random(node)
    low, high = scores
    rows: list[MetricRow] = []
    for step in range(steps + 1):
        share = 1 - math.exp(-2.6 * step / 60)
        level = low + (high - low) * share
        if step:
            values = {
                "reward": level + rng.gauss(0, 0.02),
                "zero_std_share": 0.2 + 0.4 * share + rng.gauss(0, 0.02),
                "kl": 0.05 * share + abs(rng.gauss(0, 0.003)),
                "entropy": 1.9 - 1.1 * share + rng.gauss(0, 0.03),
                "grad_norm": 0.6 + abs(rng.gauss(0, 0.1)) + (4.0 if step == 37 else 0.0),
                "truncated_share": 0.05 + 0.1 * share + rng.gauss(0, 0.01),
                "mean_length_tokens": 22 + 9 * share + rng.gauss(0, 0.5),
            }
            rows.append(MetricRow(kind="train", step=step, values=values, at_s=1.5 * step))
        if step % 10 == 0:
            values = {"score": level + rng.gauss(0, 0.006), "se": 0.014}
            rows.append(MetricRow(kind="eval", step=step, values=values, at_s=1.5 * step))
    return rows


def _result(node: str, scores: tuple[float, float], end: str, rows: list[MetricRow]) -> PhaseResult:
    steps = max(r.step for r in rows)
    cost = Cost(
        wall_s=96.0 + steps,
        train_s=70.0 + steps,
        eval_s=20.0,
        start_s=6.0,
        steps=steps,
        optimizer_steps=steps,
        generated_tokens=1800 * steps,
    )
    if end == "failed":
        return PhaseResult(
            status=Status.FAILED,
            steps_done=steps,
            failure=FailureKind.NAN,
            message="loss is not finite at step 38",
            cost=cost,
        )
    return PhaseResult(
        status=Status.FINISHED,
        steps_done=steps,
        score=scores[1],
        score_se=0.0125,
        checkpoint=Checkpoint(path=f"phases/{node}/checkpoint", digest="ab" * 32, step=max(0, steps - 10)),
        curve=eval_points(rows),
        summaries=summarise(rows),
        missing={"clip_ratio": "0 by construction at one update per batch"},
        by_subtask={"add": scores[1] + 0.05, "delete": scores[1] - 0.08, "substitute": scores[1] + 0.03},
        cost=cost,
    )


def _steps(end: str) -> int:
    return {"finished": 60, "stopped": 40, "failed": 38, "running": 27}[end]


def example_rows() -> dict[str, list[MetricRow]]:
    rows = {p[0]: rows_of(p[0], p[6], _steps(p[7])) for p in PLAN}
    return {ROOT: rows_of(ROOT, (0.214, 0.214), 0), **rows}


def started(config: RunConfig = CONFIG) -> RunStarted:
    return RunStarted(run="2026-12-01-chemcot-x7k2", config=config, at="2026-12-01T09:30:00+00:00")


def base_events(score: float | None = 0.214) -> Iterator[Event]:
    phase = Phase(id=ROOT, parent=None, hyper=HYPER, steps=0, eval_every=10, seed=1)
    selection = Selection(parent=ROOT, kind="base", reason="the base model is measured first")
    yield PhaseProposed(phase=phase, selection=selection, proposal=Proposal(proposer="", pathology="", diagnosis=""))
    if score is not None:
        rows = [MetricRow(kind="eval", step=0, values={"score": score, "se": 0.0125})]
        yield PhaseFinished(node=ROOT, result=_result(ROOT, (score, score), "finished", rows))


def example_events() -> Iterator[Event]:
    """Ten phases: two openings, a stopped, a failed and a running one."""
    yield started()
    yield from base_events()
    hypers = {ROOT: HYPER}
    for node, parent, kind, pathology, diagnosis, values, scores, end in PLAN:
        hypers[node] = hypers[parent].with_values(values)
        phase = Phase(id=node, parent=parent, hyper=hypers[node], steps=60, eval_every=10, seed=7)
        yield PhaseProposed(
            phase=phase,
            selection=Selection(parent=parent, kind=kind, reason=f"{parent} has the highest bound, 0.71"),  # type: ignore[arg-type]
            proposal=Proposal(
                proposer="playbook",
                pathology=pathology,
                diagnosis=diagnosis,
                evidence=("entropy 1.90 → 0.35 (slope −0.026 per step)", "zero_std_share 0.61 in the last quarter"),
                changes=tuple(Change(field=k, value=v, reason=f"{k} acts on {pathology}") for k, v in values.items()),
                rationale="Raise exploration and let unlikely tokens grow, then keep the rest as it was.",
                expected="entropy back above 0.8 nats within 20 steps",
                confidence=0.6,
            ),
        )
        rows = rows_of(node, scores, _steps(end))
        if end == "stopped":
            reason = "0.236 is 0.095 below the parent's 0.331, more than 3 SE, at two evaluations in a row"
            yield StopDecided(node=node, verdict=Verdict(action="stop", reason=reason, at_step=40))
        if end != "running":
            yield PhaseFinished(node=node, result=_result(node, scores, end, rows))
    yield CheckpointLost(node="n8", reason="model.safetensors is missing")


def example_tree() -> Tree:
    return fold(example_events())


def finished_tree() -> Tree:
    """The example after its last phase, with the held-out test read."""
    last = _result("n10", (0.489, 0.481), "finished", rows_of("n10", (0.489, 0.481), 60))
    tail: list[Event] = [
        PhaseFinished(node="n10", result=last),
        RunFinished(reason="12 nodes trained"),
        TestScored(node=ROOT, score=TestScore(score=0.209, se=0.011, items=300)),
        TestScored(node="n7", score=TestScore(score=0.471, se=0.014, items=300)),
    ]
    return fold([*example_events(), *tail])


def empty_tree() -> Tree:
    return fold([started()])


def measuring_tree() -> Tree:
    return fold([started(), *base_events(None)])


def base_tree() -> Tree:
    return fold([started(), *base_events()])


def failed_tree() -> Tree:
    """Every phase failed."""
    events: list[Event] = [started(), *base_events()]
    for i in (1, 2):
        phase = Phase(id=f"n{i}", parent=ROOT, hyper=HYPER, steps=60, eval_every=10, seed=1)
        selection = Selection(parent=ROOT, kind="uct", reason="only the base is there")
        proposal = Proposal(proposer="playbook", pathology="", diagnosis="")
        events.append(PhaseProposed(phase=phase, selection=selection, proposal=proposal))
        events.append(PhaseFinished(node=f"n{i}", result=_result("", (0.0, 0.0), "failed", rows_of("", (0.0, 0.0), 3))))
    return fold(events)


HOSTILE = (
    '<img src=x onerror="window.pwned=1"></script><script>window.pwned=1</script><!--<script>'
    "\u202eevil\u202c\u2028\u2029\x1b[31m\x07\x00[bold red]markup[/bold red] [/] ]]> &amp; ' \" `${window.pwned=1}` "
)


def hostile_tree() -> Tree:
    """Every text of a model or a task is an attack, and some are 100 kB long."""
    long = HOSTILE + "W" * 100_000
    config = RunConfig(task=HOSTILE, model=long, hyper=HYPER, versions={HOSTILE: long})
    hyper = HYPER.with_values({HOSTILE: long, "normal": "ע" * 3000})
    phase = Phase(id="n1", parent=ROOT, hyper=hyper, steps=60, eval_every=10, seed=1)
    proposal = Proposal(
        proposer=HOSTILE,
        pathology=long,
        diagnosis=long,
        evidence=(HOSTILE, long),
        changes=(Change(field=HOSTILE, value=long, reason=long),),
        rationale=long,
        expected=HOSTILE,
        notes=(long,),
    )
    result = PhaseResult(
        status=Status.FAILED,
        failure=FailureKind.ERROR,
        message=long,
        missing={HOSTILE: long},
        by_subtask={HOSTILE: math.nan, long: math.inf},
    )
    good = PhaseResult(
        status=Status.FINISHED,
        steps_done=60,
        score=0.3,
        score_se=0.01,
        checkpoint=Checkpoint(path=long, digest=HOSTILE, step=60),
        by_subtask={HOSTILE: 0.3, "x" * 5000: 0.2},
    )
    selection = Selection(parent=ROOT, kind="fresh", reason=long)
    return fold(
        [
            RunStarted(run=HOSTILE, config=config, at=HOSTILE),
            *base_events(),
            PhaseProposed(phase=phase, selection=selection, proposal=proposal),
            StopDecided(node="n1", verdict=Verdict(action="stop", reason=long, at_step=3)),
            PhaseFinished(node="n1", result=result),
            PhaseProposed(
                phase=Phase(id="n2", parent=ROOT, hyper=hyper, steps=60, eval_every=10, seed=1),
                selection=selection,
                proposal=proposal,
            ),
            PhaseFinished(node="n2", result=good),
            CheckpointLost(node="n2", reason=long),
            RunFinished(reason=long),
        ]
    )
