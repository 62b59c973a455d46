"""Names -> objects. The only module that knows concrete classes, and it knows them by entry point.

A plug-in is an installed package with an entry point in one of the groups below; the built-ins use the same door.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable
from typing import Any, cast

from llmzero.domain.config import RunConfig
from llmzero.domain.errors import UsageError, did_you_mean
from llmzero.ports import EarlyStopper, Executor, Exporter, Proposer, Task, Trainer

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
        raise UsageError(f"unknown {group[:-1]} {name!r}: {did_you_mean(name, points)}")
    return cast(Callable[..., Any], points[name].load())


def make_task(name: str, *, data: str = "mini", seed: int = 0) -> Task:
    """The task `name` with its data source; the same seed gives the same items."""
    return cast(Task, _factory("tasks", name)(data=data, seed=seed))


def make_trainer(name: str) -> Trainer:
    return cast(Trainer, _factory("trainers", name)())


def make_executor(config: RunConfig) -> Executor:
    """The executor of a run. Workers enter through `llmzero.trainers.worker:main`, given the job's folder."""
    factory = _factory("executors", config.executor)
    preload = ("llmzero.trainers.preload",) if config.trainer == "trl" else ()
    return cast(
        Executor,
        factory(entry="llmzero.trainers.worker:main", preload=preload, hang_after_s=config.hang_after_s),
    )


def make_proposer(config: RunConfig) -> Proposer:
    name = "playbook" if config.agent == "auto" else config.agent
    return cast(Proposer, _factory("proposers", name)(seed=config.seed))


def make_stopper(config: RunConfig) -> EarlyStopper:
    return cast(EarlyStopper, _factory("stoppers", config.stopper)(config.stop))


def make_exporter(name: str) -> Exporter:
    return cast(Exporter, _factory("exporters", name)())
