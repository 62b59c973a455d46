"""The conformance suite of `ports.Exporter`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath
from typing import ClassVar

from llmzero.domain.codec import to_json
from llmzero.domain.config import RunConfig
from llmzero.domain.errors import UsageError
from llmzero.domain.events import Event, PhaseProposed, TestScored, Tree, fold
from llmzero.domain.strategy import strategy_of
from llmzero.domain.types import ROOT, FailureKind, NodeId, Phase, PhaseResult, Scalar, Status, Strategy, TestScore
from llmzero.ports import Exporter
from llmzero.testing.checks import refuses
from llmzero.testing.fakes import base_result, finished_phase, tree_events

NASTY = "é \"quoted\" 'single' {{braces}} ${x} %s # no comment\n---\n- a: b\\"
"""Text an agent may write: it must stay data in every file."""

MATTERS: tuple[tuple[str, Scalar], ...] = (
    ("learning_rate", 3.7e-6),
    ("kl_coef", 0.0371),
    ("temperature", 0.637),
    ("group_size", 14),
    ("prompts_per_step", 22),
    ("max_completion_tokens", 1472),
    ("clip_high", 0.337),
)
"""Hyperparameters a GRPO trainer cannot train the same phase without."""

PLAIN: dict[NodeId, dict[str, Scalar]] = {"n1": {}, "n2": {"learning_rate": 5e-7}}
"""What the two stages set."""


class ExporterContract:
    """What every exporter promises: text files that parse, from the strategy alone, with every stage in them."""

    factory: ClassVar[Callable[..., Exporter]]

    def make(self) -> Exporter:
        return type(self).factory()

    def test_it_has_a_name_for_its_folder(self) -> None:
        name = self.make().name
        assert isinstance(name, str) and PurePosixPath(name).name == name != "", f"name is {name!r}: no folder's name"

    def test_every_path_stays_inside_the_folder(self) -> None:
        for where, files in self._exports():
            assert files, f"{where}: no file"
            for name in files:
                path = PurePosixPath(name)
                outside = path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive or "\\" in name
                assert name and str(path) == name and not outside, f"{where}: {name!r} is no plain relative path"
                shadowed = [p for p in map(str, path.parents) if p in files]
                assert not shadowed, f"{where}: {shadowed} is a file and a folder"

    def test_every_file_is_utf8_text(self) -> None:
        for where, files in self._exports():
            for name, text in files.items():
                assert isinstance(text, str), f"{where}: {name} is no text but {type(text).__name__}"
                assert text.encode("utf-8", errors="replace").decode() == text, f"{where}: {name} is not UTF-8"

    def test_every_file_parses(self) -> None:
        """*.json, *.yaml, *.toml and *.py, also where an agent's text holds quotes, braces and line ends."""
        for where, files in self._exports():
            for name, text in files.items():
                problem = _parse_problem(name, text)
                assert not problem, f"{where}: {name}: {problem}"

    def test_the_same_strategy_gives_the_same_files(self) -> None:
        for where, tree, strategy in _strategies():
            exporter = self.make()
            first = exporter.files(tree, strategy)
            assert exporter.files(tree, strategy) == first, f"{where}: exported again, the files differ"
            assert self.make().files(tree, strategy) == first, f"{where}: a new exporter writes other files"

    def test_the_tree_is_left_alone(self) -> None:
        for where, tree, strategy in _strategies():
            before = to_json((tree, strategy))
            self.make().files(tree, strategy)
            assert to_json((tree, strategy)) == before, f"{where}: files() changed the tree"

    def test_every_stage_hyperparameter_is_exported(self) -> None:
        plain = self._plain()
        for node in ("n1", "n2"):
            for name, value in MATTERS:
                tree = _tree(hyper={node: {name: value}})
                files = self.make().files(tree, strategy_of(tree, "n2"))
                assert files != plain, f"another {name} in {node} changes no file"

    def test_every_stage_length_is_exported(self) -> None:
        for node in ("n1", "n2"):
            tree = _tree(phases={node: {"steps": 77}})
            same = self.make().files(tree, strategy_of(tree, "n2")) == self._plain()
            assert not same, f"other steps in {node} change no file"

    def test_the_model_is_exported(self) -> None:
        tree = _tree(config=replace(_config(), model="other/model"))
        assert self.make().files(tree, strategy_of(tree, "n2")) != self._plain(), "another model changes no file"

    def test_the_base_model_alone_is_no_strategy(self) -> None:
        tree = _tree()
        refused = refuses(UsageError, lambda: self.make().files(tree, strategy_of(tree, ROOT)))
        assert refused, "a strategy without phases must raise UsageError"

    def test_a_failed_phase_ends_no_strategy(self) -> None:
        failed = PhaseResult(status=Status.FAILED, steps_done=3, failure=FailureKind.NAN, message="loss is nan")
        tree = _tree(last=failed)
        refused = refuses(UsageError, lambda: self.make().files(tree, strategy_of(tree, "n2")))
        assert refused, "a path whose last phase failed has no weights to hand over: it must raise UsageError"

    def _plain(self) -> dict[str, str]:
        tree = _tree()
        return self.make().files(tree, strategy_of(tree, "n2"))

    def _exports(self) -> Iterator[tuple[str, dict[str, str]]]:
        for where, tree, strategy in _strategies():
            yield where, self.make().files(tree, strategy)


def _config() -> RunConfig:
    return RunConfig(model="owner/model", steps=40)


def _tree(
    *,
    config: RunConfig | None = None,
    hyper: Mapping[NodeId, Mapping[str, Scalar]] | None = None,
    phases: Mapping[NodeId, Mapping[str, int]] | None = None,
    text: str = "by hand",
    last: PhaseResult | None = None,
) -> Tree:
    """Base, n1 and n2 below it, all finished, or n2 with the result `last`."""
    first, second = (finished_phase((0.4, s), every=20, node=n) for s, n in ((0.5, "n1"), (0.6, "n2")))
    results = [(ROOT, None, base_result(0.4)), ("n1", ROOT, first), ("n2", "n1", last or second)]
    events: list[Event] = []
    values = {node: {**PLAIN[node], **(hyper or {}).get(node, {})} for node in PLAIN}
    for event in tree_events(config or _config(), results, values):
        if isinstance(event, PhaseProposed):
            phase: Phase = replace(event.phase, **(phases or {}).get(event.phase.id, {}))  # type: ignore[arg-type]
            said = replace(event.proposal, diagnosis=text, rationale=text, pathology="none")
            events.append(replace(event, phase=phase, proposal=said))
        else:
            events.append(event)
    score = TestScore(score=0.58, se=0.02, items=100)
    return fold([*events, TestScored(node="n2", score=score)])


def _strategies() -> Iterator[tuple[str, Tree, Strategy]]:
    plain, nasty = _tree(), _tree(text=NASTY)
    for where, tree, node in (("one stage", plain, "n1"), ("two stages", plain, "n2"), ("odd text", nasty, "n2")):
        yield where, tree, strategy_of(tree, node)


def _parse_problem(name: str, text: str) -> str:
    """Why a file of a known kind cannot be read; empty otherwise."""
    import tomllib

    import yaml

    readers: dict[str, Callable[[str], object]] = {
        ".json": json.loads,
        ".yaml": lambda source: list(yaml.safe_load_all(source)),
        ".yml": lambda source: list(yaml.safe_load_all(source)),
        ".toml": tomllib.loads,
        ".py": lambda source: compile(source, name, "exec"),
    }
    try:
        readers.get(PurePosixPath(name).suffix, str)(text)
    except (ValueError, SyntaxError, yaml.YAMLError) as error:
        return f"cannot be read: {error}"
    return ""
