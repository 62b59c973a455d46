"""A factory that passes its suite is one that a search can build: suites and wiring call it with the same arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llmzero import testing, wiring
from llmzero.domain.config import RunConfig

Call = Callable[[], object]
MAKERS: dict[str, Call] = {
    "tasks": lambda: wiring.make_task("chemcot"),
    "trainers": lambda: wiring.make_trainer("sim"),
    "executors": lambda: wiring.make_executor(RunConfig()),
    "exporters": lambda: wiring.make_exporter("trl"),
}
SUITES: dict[str, type] = {
    "tasks": testing.TaskContract,
    "trainers": testing.TrainerContract,
    "executors": testing.ExecutorContract,
    "exporters": testing.ExporterContract,
}


def called_with(use: Callable[[Callable[..., object]], object]) -> dict[str, type]:
    """Names and types of what a factory is given."""
    given: dict[str, type] = {}

    def factory(*arguments: object, **named: object) -> object:
        assert not arguments, "by name, so that a factory may take them in any order"
        given.update({name: type(value) for name, value in named.items()})
        return object()

    use(factory)
    return given


@pytest.mark.parametrize("group", SUITES)
def test_a_suite_builds_a_plug_in_as_a_search_does(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wired(factory: Callable[..., object]) -> None:
        monkeypatch.setattr(wiring, "_factory", lambda *_: factory)
        MAKERS[group]()

    def suited(factory: Callable[..., Any]) -> None:
        type("Suite", (SUITES[group],), {"factory": staticmethod(factory)})().make()

    assert called_with(suited) == called_with(wired)


def test_agents_are_offered_what_a_search_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is offered they take what they name; a suite offers everything but a language model."""
    seen: dict[str, tuple[type, ...]] = {}

    def proposer(seed: object, config: object, rows_of: object) -> str:
        assert callable(rows_of)
        seen["proposer"] = (type(seed), type(config))
        return "proposer"

    def stopper(seed: object, config: object, rows_of: object) -> str:
        assert callable(rows_of)
        seen["stopper"] = (type(seed), type(config))
        return "stopper"

    made = {"proposers": proposer, "stoppers": stopper}
    monkeypatch.setattr(wiring, "_factory", lambda group, name: made[group])
    wiring.make_agents(RunConfig())
    wired = dict(seen)
    seen.clear()
    type("Suite", (testing.ProposerContract,), {"factory": staticmethod(proposer)})().make()
    type("Suite", (testing.StopperContract,), {"factory": staticmethod(stopper)})().make()
    assert seen == wired
