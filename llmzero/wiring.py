"""Names -> objects. The only module that knows concrete classes, and it knows them by entry point.

A plug-in is an installed package with an entry point in one of the groups below; the built-ins use the same door.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from llmzero.domain.codec import to_json
from llmzero.domain.config import RunConfig
from llmzero.domain.errors import UsageError, did_you_mean
from llmzero.domain.examples import SPLITS, Split
from llmzero.domain.series import MetricRow
from llmzero.domain.types import HyperParams, NodeId
from llmzero.models import model_shape, resolve_model
from llmzero.ports import LLM, EarlyStopper, Executor, Exporter, Proposer, Task, Trainer
from llmzero.store.layout import RunPaths

if TYPE_CHECKING:
    from llmzero.agents.llm.recorder import RecordedLLM

RowsOf = Callable[[NodeId], Sequence[MetricRow]]

GROUPS = ("tasks", "trainers", "executors", "proposers", "stoppers", "exporters")


@functools.cache
def _entry_points(group: str) -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=f"llmzero.{group}")}


def names(group: str) -> list[str]:
    """The names a user may give for one group of plug-ins."""
    return sorted(_entry_points(group))


def _factory(group: str, name: str) -> Callable[..., Any]:
    points = _entry_points(group)
    if name not in points:
        raise UsageError(f"unknown {group[:-1]} {name[:60]!r}: {did_you_mean(name[:60], points)}")
    return cast(Callable[..., Any], points[name].load())


def make_task(name: str, *, data: str = "mini", seed: int = 0) -> Task:
    """The task `name` with its data source; the same seed gives the same items."""
    return cast(Task, _factory("tasks", name)(data=data, seed=seed))


def make_trainer(name: str) -> Trainer:
    return cast(Trainer, _factory("trainers", name)())


def make_executor(config: RunConfig) -> Executor:
    """The executor of a run. Workers enter through `llmzero.trainers.worker:main`, given the job's folder."""
    factory = _factory("executors", config.executor)
    heavy = config.trainer != "sim"
    task = {"name": config.task, "data": config.data, "seed": config.seed}
    executor = factory(
        entry="llmzero.trainers.worker:main",
        preload=("llmzero.trainers.preload", "llmzero.trainers.warm") if heavy else (),
        environment={"LLMZERO_WARM_TASK": json.dumps(task)} if heavy else {},
        hang_after_s=config.hang_after_s,
    )
    return cast(Executor, executor)


def _made(factory: Callable[..., Any], offered: Mapping[str, Callable[[], Any]]) -> Any:
    """Call a factory with those of the offered arguments it takes; the others are never made."""
    taken = inspect.signature(factory).parameters
    return factory(**{name: make() for name, make in offered.items() if name in taken})


def make_agents(
    config: RunConfig,
    *,
    root: Path | None = None,
    rows_of: RowsOf | None = None,
    offline: bool = False,
    closing: contextlib.ExitStack | None = None,
) -> tuple[Proposer, EarlyStopper]:
    """The proposer and the early stopper of a run, over one language model where they ask one.

    A factory is called with those of these arguments it takes: `seed`, `config` (a proposer's is the RunConfig, a
    stopper's its StopConfig), `llm`, `briefing`, `rows_of` (a node's metric rows) and `check_extra`; a stopper also the
    `proposer`. Calls are recorded in the run's folder, `root`; offline, only recorded calls are answered. `closing`
    is given what holds connections.
    """

    @functools.cache
    def llm() -> LLM:
        made = make_llm(config, root or Path(), offline=offline)
        if closing is not None:
            closing.callback(made.close)
        return made

    @functools.cache
    def briefing() -> Any:
        return make_briefing(config)

    common: dict[str, Callable[[], Any]] = {
        "seed": lambda: config.seed,
        "llm": llm,
        "briefing": briefing,
        "rows_of": lambda: rows_of or (lambda node: ()),
        "check_extra": lambda: _check_extra(config),
    }
    proposer = _made(_factory("proposers", proposer_name(config)), {**common, "config": lambda: config})
    offered = {**common, "config": lambda: config.stop, "proposer": lambda: proposer}
    stopper = _made(_factory("stoppers", stopper_name(config)), offered)
    return cast(Proposer, proposer), cast(EarlyStopper, stopper)


def proposer_name(config: RunConfig) -> str:
    """What `auto` stands for: the language model where one is configured, else the playbook."""
    own = "llm" if config.llm.model else "playbook"
    return own if config.agent == "auto" else config.agent


def stopper_name(config: RunConfig) -> str:
    """What `auto` stands for: the skill agent's own, else rule and agent where a model is configured, else the rule."""
    own = "skill" if config.agent == "skill" else "both" if config.llm.model else "rule"
    return own if config.stopper == "auto" else config.stopper


def make_llm(config: RunConfig, root: Path, *, offline: bool = False) -> RecordedLLM:
    """The run's language model, every call recorded in its folder; to be closed."""
    from llmzero.agents.llm.client import OpenAIClient
    from llmzero.agents.llm.recorder import RecordedLLM

    return RecordedLLM(None if offline else OpenAIClient(config.llm), RunPaths(root).calls, config.llm)


def make_briefing(config: RunConfig) -> Any:
    """What the agents are told of the run: its settings, the cards, the task's own card."""
    from llmzero.agents.cards import load_cards
    from llmzero.agents.llm.prompt import Briefing

    prompts = Path(config.prompts) if config.prompts else None
    task = make_task(config.task, data=config.data, seed=config.seed)
    about = {**describe_task(task), "prompt": [dict(m) for m in task.prompt(task.examples("train")[0])]}
    text = json.dumps(about, indent=1, ensure_ascii=False)
    cards = load_cards(prompts / "knowledge" if prompts else None)
    return Briefing(config=config, cards=cards, task=text, prompts=prompts)


def _check_extra(config: RunConfig) -> Callable[[HyperParams], None]:
    """Refuses hyperparameters outside the space that the run's trainer does not have."""
    refuse = getattr(make_trainer(config.trainer), "refuse", None)

    def check(hyper: HyperParams) -> None:
        if refuse is None:
            raise UsageError(f"the {config.trainer} trainer takes no further fields")
        refuse(replace(config, hyper=hyper))

    return check


def make_exporter(name: str) -> Exporter:
    return cast(Exporter, _factory("exporters", name)())


def check(config: RunConfig) -> None:
    """Refuse what no search could start with before a run folder is made: unknown names, trainer settings."""
    for group, name in (
        ("tasks", config.task),
        ("trainers", config.trainer),
        ("executors", config.executor),
        ("proposers", proposer_name(config)),
        ("stoppers", stopper_name(config)),
    ):
        _factory(group, name)
    path = Path(resolve_model(config.model, config.task))
    if path.is_dir():
        model_shape(config)
    if not config.llm.model and asks_a_model(config):
        raise UsageError(
            "this agent or stopper asks a language model, and none is configured: give --llm-model NAME, and "
            "--llm-base-url URL or OPENAI_API_KEY"
        )
    refuse = getattr(make_trainer(config.trainer), "refuse", None)
    if refuse is not None:
        refuse(config)


def asks_a_model(config: RunConfig) -> bool:
    """Whether the proposer or the stopper asks the language model."""
    return bool({proposer_name(config), stopper_name(config)} & {"llm", "skill", "agent", "both"})


def check_endpoint(config: RunConfig) -> None:
    """UsageError where an agent asks a language model whose endpoint cannot be reached or refuses the key."""
    if asks_a_model(config):
        from llmzero.agents.llm.client import OpenAIClient

        with contextlib.closing(OpenAIClient(config.llm)) as client:
            client.check()


# --- tasks


def task_sizes(config: RunConfig) -> dict[Split, int]:
    """Items in each split of a run's task."""
    task = make_task(config.task, data=config.data, seed=config.seed)
    return {split: len(task.examples(split)) for split in SPLITS}


def describe_task(task: Task) -> dict[str, Any]:
    """A task's card: source, licence, sizes; empty where a plug-in has none."""
    describe = getattr(task, "describe", None)
    return dict(describe()) if describe else {"name": task.name}


def check_task(task: Task) -> list[dict[str, Any]]:
    """One row a policy: its mean reward against its bound. Raises UsageError for a task without policies."""
    from llmzero.tasks.base import CheckableTask
    from llmzero.tasks.base import check_task as rows_of

    if not hasattr(task, "policies"):
        raise UsageError(f"task {task.name} brings no policies to check its reward with")
    return [to_json(row) for row in rows_of(cast(CheckableTask, task))]
