"""Every Protocol of the program. Rooms meet here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeGuard, runtime_checkable

from llmzero.domain.events import Event, Tree
from llmzero.domain.examples import Example, Message, Observation, Reward, Split, Transcript
from llmzero.domain.jobs import Job, JobState, Weights
from llmzero.domain.llm import Reply, Request
from llmzero.domain.series import MetricRow
from llmzero.domain.space import SearchSpace
from llmzero.domain.types import Checkpoint, EvalPoint, NodeId, PhaseResult, Proposal, Selection, Strategy, Verdict


@runtime_checkable
class Task(Protocol):
    """Data, prompts and rewards of one kind of work. The training core never changes with the task."""

    @property
    def name(self) -> str: ...

    def examples(self, split: Split) -> Sequence[Example]:
        """All items of a split, in a fixed order. Splits never share what would leak (for molecules: a scaffold)."""

    def prompt(self, example: Example) -> tuple[Message, ...]:
        """The chat messages the model sees; never holds the gold answer."""

    def reward(self, example: Example, transcript: Transcript) -> Reward:
        """Score one transcript. Never raises on any model output; the value is in [0, 1]."""


class Environment(Protocol):
    """One episode of one example: what happens between a model's turns. Made anew for every rollout.

    The reward comes once, at the end: `Task.reward` reads the transcript of the whole episode.
    """

    @property
    def max_turns(self) -> int:
        """Replies the model may give; after the last one the episode ends."""

    @property
    def stop(self) -> Sequence[str]:
        """Strings that end a turn (`</search>`), kept in the reply; the end-of-turn token always does."""

    @property
    def max_observation_tokens(self) -> int:
        """Cap of what one step shows the model; longer observations are cut at the end."""

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """JSON schemas for chat templates that list tools; () where the prompt says it all."""

    def reset(self) -> tuple[Message, ...]:
        """The messages the episode begins with, usually `Task.prompt(example)`."""

    def step(self, reply: str) -> Observation:
        """Answer one reply of the model, whatever it wrote; never raises on it."""


@runtime_checkable
class MultiTurnTask(Task, Protocol):
    """A task whose examples are episodes. Trained and scored by the same code as a single question."""

    def environment(self, example: Example) -> Environment: ...


def is_multi_turn(task: Task) -> TypeGuard[MultiTurnTask]:
    """Whether a task's examples are episodes; a task may be wrapped, so its attributes decide, not its class."""
    return callable(getattr(task, "environment", None))


class Trainer(Protocol):
    """Runs one phase, inside the worker process only.

    A trainer may also have `refuse(config: RunConfig) -> None`, which raises UsageError on settings it could not train
    with (unknown `options`, unknown `[hyper.extra]` fields); it is asked before a run is begun.
    """

    def train(
        self,
        job: Job,
        task: Task,
        *,
        report: Callable[[MetricRow], None],
        should_stop: Callable[[], bool],
        workdir: Path,
    ) -> PhaseResult:
        """Train `job.phase` and score what it kept; raises PhaseError where it cannot.

        Writes weights only under `workdir / "checkpoint"`. Calls `report` after every step and evaluation, and ends
        early, with a score, once `should_stop` says so (checked every step).
        """

    def evaluate(self, job: Job, task: Task, *, workdir: Path) -> PhaseResult:
        """Score `job.start` on `job.split`; trains nothing."""


class Proposer(Protocol):
    """Names what ails the parent's training and proposes a coordinated transition. A pure function of its input."""

    @property
    def name(self) -> str: ...

    def propose(self, tree: Tree, parent: NodeId, space: SearchSpace) -> Proposal: ...


@runtime_checkable
class SelfDirected(Proposer, Protocol):
    """A proposer that grows the tree itself, where others leave that to UCT. Pure functions of the tree, too.

    Both are asked about the tree as the decision on the next phase may know it, `ended` first.
    """

    def ended(self, tree: Tree) -> str:
        """Why no further phase should be trained, budget or not; empty to go on."""

    def select(self, tree: Tree) -> Selection | None:
        """Where the next phase starts; None leaves this one to UCT."""


class EarlyStopper(Protocol):
    """Judges a running phase each time it was evaluated. A pure function of its input.

    One whose class says `slow = True` is asked in a thread of its own.
    """

    def judge(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        """`curve` is the running phase's validation so far (steps within the phase), `rows` its metric rows so far."""


class Executor(Protocol):
    """Where workers run. A job is a folder (see `domain.jobs`); every call is idempotent."""

    def submit(self, job_dir: Path) -> None:
        """Start a worker on a folder that holds a phase.json. Raises StateError when one already runs there."""

    def attach(self, job_dir: Path) -> JobState:
        """How the job stands, also when another (dead) controller started it; a live worker is watched from now on."""

    def poll(self, timeout_s: float) -> Mapping[Path, JobState]:
        """The state of every watched job; returns early when one ends, after `timeout_s` otherwise."""

    def stop(self, job_dir: Path) -> None:
        """Ask the worker to end its phase early, with a score."""

    def kill(self, job_dir: Path) -> None:
        """End the worker at once (hung, or the user gave up)."""

    def close(self) -> None:
        """End every watched worker and free what the executor holds."""


class Observer(Protocol):
    """Someone who watches the search: the terminal view. Never changes it."""

    def changed(self, tree: Tree, live: Mapping[NodeId, Sequence[MetricRow]]) -> None:
        """The tree after each event or poll, and the rows of the phases that run."""


class LLM(Protocol):
    """A language model behind an endpoint, or a recording of one."""

    def complete(self, request: Request) -> Reply:
        """One answer, within bounded tries and time. Never raises for trouble at the endpoint: see `Reply.error`."""


class Exporter(Protocol):
    """A strategy as files for one trainer. Pure: strategy -> {relative path: text}."""

    @property
    def name(self) -> str: ...

    def files(self, tree: Tree, strategy: Strategy) -> dict[str, str]: ...


class RunStore(Protocol):
    """One run's folder as the controller sees it: the journal, and a folder for each job."""

    def events(self) -> tuple[Event, ...]: ...

    def append(self, event: Event) -> None:
        """Make `event` durable; raises StateError (disk full, ...) and then leaves the journal as it was."""

    def prepare(self, name: str, job: Job) -> Path:
        """The absolute folder of job `name`, cleared of an earlier attempt, with its phase.json written."""

    def folder(self, name: str) -> Path: ...

    def result(self, name: str) -> PhaseResult | None:
        """The job's result once it is whole; None before. Raises StateError when it cannot be read."""

    def rows(self, name: str) -> Sequence[MetricRow]:
        """All metric rows so far, in order."""

    def weights(self, checkpoint: Checkpoint) -> Weights: ...

    def damage(self, weights: Weights) -> str:
        """Why weights cannot be used; empty when they are whole, or nothing is known to check them against."""

    def collect_garbage(self, tree: Tree) -> int:
        """Remove weights nobody may resume from; returns bytes freed."""
