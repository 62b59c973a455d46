"""A hand-made search (journal.jsonl) and every file its best strategy is exported to.

UPDATE_GOLDEN=1 pytest tests/golden/test_exports.py writes the files anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from llmzero.domain.events import Tree, event_from_json, fold
from llmzero.domain.strategy import best_node, strategy_of
from llmzero.exports.schedule import StrategyExporter, load_strategy, schedule_doc
from llmzero.exports.schema import documented
from llmzero.exports.trl import TrlExporter
from llmzero.ports import Exporter

GOLDEN = Path(__file__).with_name("exports")
TEMPLATES = {"train.py": "trl_train.py.txt"}
"""Files that are one fixed text whatever the strategy: compared with their template, not stored again."""


def tree() -> Tree:
    lines = (GOLDEN / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return fold(event_from_json(json.loads(line)) for line in lines)


def best_files(exporter: Exporter) -> dict[str, str]:
    searched = tree()
    best = best_node(searched)
    assert best is not None
    return exporter.files(searched, strategy_of(searched, best.id))


@pytest.mark.parametrize("exporter", [StrategyExporter(), TrlExporter()], ids=lambda e: e.name)
def test_files_are_the_golden_ones(exporter: Exporter) -> None:
    files = {name: text for name, text in best_files(exporter).items() if name not in TEMPLATES}
    folder = GOLDEN / exporter.name
    if os.environ.get("UPDATE_GOLDEN"):
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    stored = {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in folder.rglob("*") if p.is_file()}
    assert files == stored


def test_every_exporter_tells_the_same_story() -> None:
    assert best_files(TrlExporter())["strategy.yaml"] == best_files(StrategyExporter())["strategy.yaml"]


def test_the_golden_strategy_reads_back_as_the_tree_says() -> None:
    searched = tree()
    doc = schedule_doc(searched, strategy_of(searched, "n4"))
    assert load_strategy(best_files(StrategyExporter())["strategy.yaml"]) == doc
    assert [s.node for s in doc.stages] == ["n1", "n2", "n4"]
    assert [s.starts_from for s in doc.stages] == ["base", "stage 1", "stage 2"]
    assert [(s.steps, s.optimizer_steps, s.handover_step) for s in doc.stages] == [
        (60, 60, 40),
        (40, 80, 40),
        (20, 40, 10),
    ]
    assert [s.cumulative_steps for s in doc.stages] == [60, 100, 120]
    assert [s.cumulative_tokens for s in doc.stages] == [n * 64 * 48 for n in (60, 100, 120)]
    assert [s.kl_anchor for s in doc.stages] == ["base", "base", "parent"]
    assert doc.outcome.base_score == 0.412
    assert doc.outcome.test is not None
    assert doc.outcome.test.items == 400


def test_changes_are_those_against_the_stage_before_with_the_reason_given() -> None:
    searched = tree()
    stages = schedule_doc(searched, strategy_of(searched, "n4")).stages
    changes = {c.field: (c.old, c.new, c.reason) for c in stages[2].changes}
    assert changes["learning_rate"] == (3e-4, 5e-5, "anneal")
    assert changes["steps"] == (40, 20, "")
    assert changes["kl_anchor"] == ("base", "parent", "")
    assert {c.field for c in stages[0].changes} == {"learning_rate"}


def test_the_yaml_explains_each_of_its_fields_where_it_first_stands() -> None:
    text = best_files(StrategyExporter())["strategy.yaml"]
    for path, doc in documented():
        key = path.rpartition(".")[2]
        assert any(
            line.strip(" -").startswith(f"{key}:") and line.endswith(f"# {doc}") for line in text.splitlines()
        ), path


def test_stage_files_hold_numbers_not_texts() -> None:
    files = best_files(TrlExporter())
    fields = yaml.safe_load(files["stages/stage3.yaml"])
    assert fields["learning_rate"] == 5e-5
    assert fields["max_steps"] == 40
    assert fields["warmup_steps"] == 6
    assert fields["llmzero"] == {
        "stage": 3,
        "starts_from": "stage 2",
        "kl_anchor": "parent",
        "handover_step": 10,
        "handover_update": 20,
    }
    assert not [k for k, v in fields.items() if isinstance(v, str) and v[:1].isdigit()]


def test_fixed_files_are_their_templates() -> None:
    files = best_files(TrlExporter())
    templates = Path(__file__).parents[2] / "llmzero" / "exports" / "templates"
    assert files["train.py"] == (templates / TEMPLATES["train.py"]).read_text(encoding="utf-8")
