"""Names -> objects. The only module that knows concrete classes, and it knows them by entry point.

A plug-in is an installed package with an entry point in one of the groups below; the built-ins use the same door.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import inspect
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from llmzero.domain.codec import to_json
from llmzero.domain.config import RunConfig
from llmzero.domain.errors import UsageError, did_you_mean
from llmzero.domain.examples import SPLITS, Split
from llmzero.domain.jobs import Weights
from llmzero.domain.series import MetricRow
from llmzero.domain.types import HyperParams, NodeId
from llmzero.ports import LLM, EarlyStopper, Executor, Exporter, Proposer, Task, Trainer
from llmzero.store.checkpoints import verify, weights_digest
from llmzero.store.layout import RunPaths
from llmzero.trainers.hub import HUB_ID

RowsOf = Callable[[NodeId], Sequence[MetricRow]]

MAX_NAME = 1000
"""Characters of a path or name."""

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
    config: RunConfig, *, root: Path | None = None, rows_of: RowsOf | None = None, offline: bool = False
) -> tuple[Proposer, EarlyStopper]:
    """The proposer and the early stopper of a run, over one language model where they ask one.

    A factory is called with those of these arguments it takes: `seed`, `config` (a proposer's is the RunConfig, a
    stopper's its StopConfig), `llm`, `briefing`, `rows_of` (a node's metric rows) and `check_extra`; a stopper also the
    `proposer`. Calls are recorded in the run's folder, `root`; offline, only recorded calls are answered.
    """

    @functools.cache
    def llm() -> LLM:
        return make_llm(config, root or Path(), offline=offline)

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


def make_llm(config: RunConfig, root: Path, *, offline: bool = False) -> LLM:
    """The run's language model, every call recorded in its folder."""
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


# --- models


def resolve_model(model: str, task: str) -> str:
    """Where a model's weights are: the embedded base's folder, a user's folder, or a hub id as it is."""
    if model == "nano":
        from llmzero.trainers.nano import nano_path

        return str(nano_path(task))
    folder = Path(model)
    if len(model) > MAX_NAME or not model.isprintable():
        raise UsageError("model: neither nano, nor a folder, nor a Hugging Face id (owner/name)")
    if folder.is_dir():
        if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
            raise UsageError(f"model {model}: the folder needs a config.json and *.safetensors weights")
        return str(folder.resolve())
    if HUB_ID.fullmatch(model) and not folder.exists():
        return model
    raise UsageError(f"model {model!r}: neither nano, nor a folder, nor a Hugging Face id (owner/name)")


def local_model(model: str, task: str, *, revision: str = "", digest: str = "") -> str:
    """A model's folder on this machine; a hub model is fetched where it is not in the cache, at `revision`.

    Raises UsageError where its weights are not those of `digest` ("" = any).
    """
    path = resolve_model(model, task)
    if not Path(path).is_dir():
        from llmzero.trainers.hub import fetch

        path = str(fetch(path, revision))
    damage = verify(Path(path), digest) if digest else ""
    if damage:
        raise UsageError(f"model {model}: {damage}; give the right one, or another on purpose, with --model")
    return path


def base_weights(config: RunConfig) -> Weights:
    """The base model of a run on this machine, with the digest it had when the run began."""
    known = config.versions
    if config.trainer == "sim":  # loads no weights
        path = resolve_model(config.model, config.task)
    else:
        path = local_model(config.model, config.task, revision=known.get("base_revision", ""))
    return Weights(path=path, digest=known.get("base_sha256", ""))


def model_shape(config: RunConfig) -> dict[str, int | None]:
    """Parameters and vocabulary of a run's model, nothing of any size read or fetched; None where unknown."""
    path = resolve_model(config.model, config.task)
    if Path(path).is_dir():
        from llmzero.plan import folder_shape

        return folder_shape(Path(path))
    from llmzero.trainers.hub import shape

    parameters, vocabulary = shape(path)
    return {"parameters": parameters, "vocabulary": vocabulary}


def versions(config: RunConfig) -> dict[str, str]:
    """What a result depends on: package versions, the base model's digest and, from the hub, its commit."""
    packages = ("llmzero", "torch", "transformers", "trl", "datasets", "accelerate", "rdkit")
    found = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    base = Path(base_weights(config).path)
    if not base.is_dir():
        return found
    found["base_sha256"] = weights_digest(base)
    hub = not Path(config.model).is_dir() and HUB_ID.fullmatch(config.model)
    return {**found, "base_revision": base.name} if hub else found


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
