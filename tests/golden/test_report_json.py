"""The report's JSON on hand-made runs. UPDATE_GOLDEN=1 writes the files anew: read the difference before a commit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import report_calls
import report_trees

from llmzero.domain.types import ROOT
from llmzero.report.ledger import calls_by_node
from llmzero.report.view import node_view, page_data, summary

HERE = Path(__file__).parent


def check(name: str, value: Any) -> None:
    path = HERE / f"{name}.json"
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_the_summary_of_a_finished_run() -> None:
    check("report_summary", summary(report_trees.finished_tree()))


def test_what_model_calls_took() -> None:
    tree, calls = report_calls.asked_tree(), report_calls.example_calls()
    own = calls_by_node(tree, calls)
    nodes = {node: node_view(tree, node, (), own.get(node, ()))["llm"] for node in ("n3", "n4", "n5", "n7")}
    page = page_data(tree, {}, calls)
    assert {n["id"]: n["llm"] for n in page["nodes"] if n["llm"]} == {n: v for n, v in nodes.items() if v}
    assert page["cost"] == summary(tree, calls)["cost"]
    check("report_llm", {"run": page["cost"]["llm"], "nodes": nodes})


@pytest.mark.parametrize("node", [ROOT, "n3", "n5", "n7", "n8"])
def test_one_node(node: str) -> None:
    check(f"report_node_{node}", node_view(report_trees.finished_tree(), node))


def test_the_data_of_the_page() -> None:
    rows = {"n4": report_trees.example_rows()["n4"][:12], "n10": report_trees.example_rows()["n10"][:12]}
    data = page_data(report_trees.example_tree(), rows)
    check("report_page", {**data, "config": {"space": "left out", "task": data["config"]["task"]}})


def test_runs_without_a_result() -> None:
    trees = {
        "empty": report_trees.empty_tree(),
        "measuring": report_trees.measuring_tree(),
        "base": report_trees.base_tree(),
        "failed": report_trees.failed_tree(),
    }
    pages = {name: page_data(tree, {}) for name, tree in trees.items()}
    keys = ("headline", "best", "base", "best_path", "anytime", "ended")
    check("report_without_result", {name: {k: page[k] for k in keys} for name, page in pages.items()})
