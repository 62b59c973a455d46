"""The exporter suite over the built-in exporters, and over exporters broken in every way it looks for."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract_kit import caught, promises_of

from llmzero.domain.errors import UsageError
from llmzero.domain.events import Tree
from llmzero.domain.types import Strategy
from llmzero.exports.schedule import StrategyExporter
from llmzero.exports.trl import TrlExporter
from llmzero.testing import ExporterContract
from llmzero.testing.exporters import MATTERS

CALLS = itertools.count()
Files = dict[str, Any]


class TestStrategy(ExporterContract):
    factory = StrategyExporter


class TestTrl(ExporterContract):
    factory = TrlExporter


class Good:
    """One JSON file; `change` breaks it."""

    name = "good"

    def __init__(self, change: Callable[[Files, Tree, Strategy], Files] = lambda files, *_: files) -> None:
        self.change = change

    def files(self, tree: Tree, strategy: Strategy) -> Files:
        if not strategy.phases or tree.nodes[strategy.nodes[-1]].status == "failed":
            raise UsageError("nothing to hand over")
        stages = [{**phase.hyper.flat(), "steps": phase.steps} for phase in strategy.phases]
        said = tree.nodes[strategy.nodes[-1]].proposal.diagnosis
        text = json.dumps({"model": tree.config.model, "stages": stages, "diagnosis": said})
        return self.change({"run/schedule.json": text}, tree, strategy)


class TestGood(ExporterContract):
    factory = Good


class Nested(Good):
    name = "a/b"


class Lenient(Good):
    def files(self, tree: Tree, strategy: Strategy) -> Files:
        try:
            return super().files(tree, strategy)
        except UsageError:
            return {}


def forgetting(field: str) -> Callable[[Files, Tree, Strategy], Files]:
    """Every stage's `field` (or the model) is left out; "last ..." keeps the first stage's."""

    def change(files: Files, tree: Tree, strategy: Strategy) -> Files:
        document = json.loads(files["run/schedule.json"])
        document.pop(field, None)
        for stage in document["stages"][1 if field.startswith("last ") else 0 :]:
            stage.pop(field.removeprefix("last "), None)
        return {"run/schedule.json": json.dumps(document)}

    return change


def meddling(files: Files, tree: Tree, strategy: Strategy) -> Files:
    nodes: Any = tree.nodes
    nodes["n1"] = replace(tree.nodes["n1"], lost="exported")
    return files


def pasting(files: Files, tree: Tree, strategy: Strategy) -> Files:
    said = tree.nodes[strategy.nodes[-1]].proposal.diagnosis
    return {**files, "train.py": f'WHY = "{said}"\n'}


def adding(name: str, text: object = "") -> Callable[[Files, Tree, Strategy], Files]:
    return lambda files, *_: {**files, name: text}


INSIDE = "test_every_path_stays_inside_the_folder"
BROKEN: list[tuple[str, Callable[[], Good]]] = [
    ("test_it_has_a_name_for_its_folder", Nested),
    *[
        (INSIDE, lambda name=name: Good(adding(name)))  # type: ignore[misc]
        for name in ("../up.txt", "/etc/x", "a//b", "C:\\x", "run", "")
    ],
    (INSIDE, lambda: Good(lambda *_: {})),
    ("test_every_file_is_utf8_text", lambda: Good(adding("a.bin", b"\0"))),
    ("test_every_file_is_utf8_text", lambda: Good(adding("a.txt", "\ud800"))),
    *[
        ("test_every_file_parses", lambda name=name: Good(adding(name, "{ x = [")))  # type: ignore[misc]
        for name in ("a.json", "a.yaml", "a.toml", "a.py")
    ],
    ("test_every_file_parses", lambda: Good(pasting)),
    ("test_the_same_strategy_gives_the_same_files", lambda: Good(lambda f, *_: {**f, "n.txt": f"{next(CALLS)}"})),
    ("test_the_tree_is_left_alone", lambda: Good(meddling)),
    *[
        ("test_every_stage_hyperparameter_is_exported", lambda name=name: Good(forgetting(name)))  # type: ignore[misc]
        for name, _ in MATTERS
    ],
    ("test_every_stage_hyperparameter_is_exported", lambda: Good(forgetting("last kl_coef"))),
    ("test_every_stage_length_is_exported", lambda: Good(forgetting("last steps"))),
    ("test_the_model_is_exported", lambda: Good(forgetting("model"))),
    ("test_the_base_model_alone_is_no_strategy", Lenient),
    ("test_a_failed_phase_ends_no_strategy", Lenient),
]


@pytest.mark.parametrize(("test", "exporter"), BROKEN)
def test_the_suite_catches(test: str, exporter: Callable[[], Good], tmp_path: Path) -> None:
    assert caught(type("Suite", (ExporterContract,), {"factory": staticmethod(exporter)}), test, tmp_path)


def test_every_test_of_the_suite_can_fail() -> None:
    assert {test for test, _ in BROKEN} == set(promises_of(ExporterContract))
