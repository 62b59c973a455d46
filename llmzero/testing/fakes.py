"""Fakes for people who write plug-ins and tests: the ports in memory, one phase after another, no process, no disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from llmzero.domain.codec import from_json, to_json
from llmzero.domain.config import RunConfig
from llmzero.domain.events import Event, PhaseFinished, PhaseProposed, RunStarted, Tree, event_from_json, event_to_json
from llmzero.domain.jobs import Job, JobState, Weights
from llmzero.domain.series import MetricRow, eval_points, summarise
from llmzero.domain.types import (
    ROOT,
    Change,
    Checkpoint,
    EvalPoint,
    NodeId,
    Phase,
    PhaseResult,
    Proposal,
    Scalar,
    Selection,
    Status,
)

Play = Callable[[Job], tuple[Sequence[MetricRow], PhaseResult]]
"""What a fake worker does with a job: its metric rows, then its result."""


def eval_rows(scores: Sequence[float], every: int = 10, se: float = 0.02) -> list[MetricRow]:
    """Validation rows at steps `every`, 2*`every`, ..."""
    return [
        MetricRow(kind="eval", step=every * k, values={"score": s, "se": se}) for k, s in enumerate(scores, start=1)
    ]


def finished_phase(scores: Sequence[float], *, every: int = 10, se: float = 0.02, node: str = "n") -> PhaseResult:
    """A finished result whose curve is `scores`; the node's score is the last."""
    rows = eval_rows(scores, every, se)
    return PhaseResult(
        status=Status.FINISHED,
        steps_done=every * len(scores),
        score=scores[-1],
        score_se=se,
        checkpoint=Checkpoint(path=f"phases/{node}/checkpoint", digest="d", step=every * len(scores)),
        curve=eval_points(rows),
        summaries=summarise(rows),
    )


class MemoryStore:
    """`ports.RunStore` without a disk. Events make a round trip through JSON, as they do in a journal."""

    def __init__(self, config: RunConfig, run: str = "test-run") -> None:
        self._events: list[Event] = [RunStarted(run=run, config=config)]
        self.jobs: dict[str, Job] = {}
        self.results: dict[str, PhaseResult] = {}
        self.metric_rows: dict[str, list[MetricRow]] = {}
        self.damaged: dict[str, str] = {}

    def events(self) -> tuple[Event, ...]:
        return tuple(self._events)

    def append(self, event: Event) -> None:
        self._events.append(event_from_json(event_to_json(event)))

    def folder(self, name: str) -> Path:
        return Path("/memory") / name

    def prepare(self, name: str, job: Job) -> Path:
        self.jobs[name] = from_json(Job, to_json(job))
        self.metric_rows[name] = []
        self.results.pop(name, None)
        return self.folder(name)

    def result(self, name: str) -> PhaseResult | None:
        return self.results.get(name)

    def rows(self, name: str) -> Sequence[MetricRow]:
        return tuple(self.metric_rows.get(name, ()))

    def weights(self, checkpoint: Checkpoint) -> Weights:
        return Weights(path=checkpoint.path, digest=checkpoint.digest)

    def damage(self, weights: Weights) -> str:
        return self.damaged.get(weights.path, "")

    def collect_garbage(self, tree: Tree) -> int:
        return 0


class InlineExecutor:
    """`ports.Executor` that plays each job at once, in this process, into a MemoryStore."""

    def __init__(self, store: MemoryStore, play: Play) -> None:
        self.store, self.play = store, play
        self.submitted: list[str] = []
        self.stopped: list[str] = []
        self.states: dict[Path, JobState] = {}

    def submit(self, job_dir: Path) -> None:
        name = job_dir.name
        self.submitted.append(name)
        rows, result = self.play(self.store.jobs[name])
        self.store.metric_rows[name] = list(rows)
        self.store.results[name] = result
        self.states[job_dir] = JobState(state="done")

    def attach(self, job_dir: Path) -> JobState:
        return self.states.get(job_dir, JobState(state="absent"))

    def poll(self, timeout_s: float) -> Mapping[Path, JobState]:
        return dict(self.states)

    def stop(self, job_dir: Path) -> None:
        self.stopped.append(job_dir.name)

    def kill(self, job_dir: Path) -> None:
        self.states[job_dir] = JobState(state="dead")

    def close(self) -> None:
        return


class SilentObserver:
    """`ports.Observer` that counts what it was told."""

    def __init__(self) -> None:
        self.calls = 0

    def changed(self, tree: Tree, live: Mapping[NodeId, Sequence[MetricRow]]) -> None:
        self.calls += 1


class FixedProposer:
    """`ports.Proposer` that always asks for the same values: a fixed configuration as a search."""

    name = "fixed"

    def __init__(self, values: Mapping[str, Scalar] | None = None) -> None:
        self.values = dict(values or {})

    def propose(self, tree: Tree, parent: NodeId, space: object) -> Proposal:
        changes = tuple(Change(field=k, value=v, reason="fixed") for k, v in self.values.items())
        return Proposal(proposer=self.name, pathology="none", diagnosis="fixed values", changes=changes)


def tree_events(
    config: RunConfig,
    phases: Sequence[tuple[NodeId, NodeId | None, PhaseResult | None]],
    hyper: Mapping[NodeId, Mapping[str, Scalar]] | None = None,
) -> list[Event]:
    """Journal events of a hand-made tree: (node, parent, result) in the order they were proposed."""
    events: list[Event] = [RunStarted(run="hand-made", config=config)]
    for node, parent, result in phases:
        values = (hyper or {}).get(node, {})
        phase = Phase(
            id=node,
            parent=parent,
            hyper=config.hyper.with_values(values),
            steps=0 if node == ROOT else config.steps,
            eval_every=config.eval.every,
            seed=0,
        )
        proposal = Proposal(proposer="hand", pathology="none", diagnosis="by hand")
        selection = Selection(parent=parent or ROOT, kind="uct" if parent else "base", reason="by hand")
        events.append(PhaseProposed(phase=phase, selection=selection, proposal=proposal))
        if result is not None:
            events.append(PhaseFinished(node=node, result=result))
    return events


def base_result(score: float, se: float = 0.02) -> PhaseResult:
    """A measured base model."""
    return PhaseResult(status=Status.FINISHED, score=score, score_se=se, curve=(EvalPoint(0, score, se),))
