"""What the report's views promise beyond their golden files."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmzero.domain.types import ROOT
from llmzero.report.outcome import headline, interval
from llmzero.report.render import embed, render
from llmzero.report.view import MAX_TEXT, anytime, downsample, page_data, summary
from llmzero.report.words import clean, duration, number, sparkline

TREES = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "report_trees.py"))


def test_the_test_score_is_null_until_it_was_read() -> None:
    before, after = summary(TREES["example_tree"]()), summary(TREES["finished_tree"]())
    assert before["best"]["node"] == after["best"]["node"] == "n7"
    assert (before["best"]["test_score"], after["best"]["test_score"]) == (None, 0.471)
    assert after["base"]["test_score"] == 0.209


def test_a_stage_says_which_step_was_handed_over() -> None:
    stages = summary(TREES["finished_tree"]())["best"]["stages"]
    assert [(s["node"], s["steps"], s["handover_step"]) for s in stages] == [
        ("n1", 60, 50),
        ("n2", 60, 50),
        ("n4", 60, 50),
        ("n7", 60, 50),
    ]
    assert [c["field"] for c in stages[2]["changes"]] == ["group_size", "advantage_norm"]


def test_the_running_node_has_a_curve_at_total_steps() -> None:
    rows = TREES["example_rows"]()
    nodes = {n["id"]: n for n in page_data(TREES["example_tree"](), rows)["nodes"]}
    assert [p["total_step"] for p in nodes["n10"]["curve"]] == [240, 250, 260]
    assert nodes["n5"]["curve"][-1]["step"] == 30  # a failed phase keeps what its rows say


def test_the_headline_carries_both_intervals() -> None:
    found = headline(TREES["finished_tree"]())
    assert found["text"].startswith("A strategy of 4 phases takes chemcot from 0.214 to 0.489 on validation; held-out")
    assert found["test"]["low"] < found["test"]["difference"] < found["test"]["high"]
    assert [g["node"] for g in found["how"]] == ["n1", "n2", "n4", "n7"]
    assert math.fsum(g["gain"] for g in found["how"]) == pytest.approx(found["validation"]["difference"])


def test_failures_only_are_said_to_have_failed() -> None:
    assert headline(TREES["failed_tree"]())["text"] == "The base model scores 0.214 on chemcot; 2 phases so far failed."


def test_the_interval_of_a_difference() -> None:
    found = interval(0.5, 0.03, 0.6, 0.04)
    assert found["difference"] == pytest.approx(0.1)
    assert found["high"] - found["low"] == pytest.approx(2 * 1.959964 * 0.05)


def test_stopped_and_failed_phases_cost_time_and_never_lead() -> None:
    points = anytime(TREES["finished_tree"]())
    assert [p["node"] for p in points if p["improved"]] == [ROOT, "n1", "n2", "n4", "n7"]
    assert [p["worker_s"] for p in points] == sorted(p["worker_s"] for p in points)
    assert len(points) == 11


@given(st.lists(st.floats(-10, 10), max_size=500), st.integers(4, 150))
def test_downsampling_keeps_ends_order_and_extremes(values: list[float], limit: int) -> None:
    points = list(enumerate(values))
    kept = downsample(points, limit)
    assert len(kept) <= max(limit, 0) and kept == sorted(kept) and set(kept) <= set(points)
    if values:
        assert kept[0] == points[0] and kept[-1] == points[-1]
        assert max(v for _, v in kept) == max(values) and min(v for _, v in kept) == min(values)


@given(st.text(max_size=300))
def test_embedded_data_reads_back_and_holds_no_markup(text: str) -> None:
    data = embed({"text": text.encode("utf-8", "replace").decode()})
    assert not set("<>&\u2028\u2029") & set(data)
    assert json.loads(data)["text"] == text.encode("utf-8", "replace").decode()


def test_hostile_text_is_cleaned_cut_and_finite() -> None:
    data = page_data(TREES["hostile_tree"](), {})
    node = data["nodes"][1]
    assert len(node["proposal"]["diagnosis"]) == MAX_TEXT
    assert not {"\u202e", "\x1b", "\x00", "\n"} & set(json.dumps(data, ensure_ascii=False))
    assert None in node["by_subtask"].values()


def test_the_page_is_one_file_under_a_strict_policy() -> None:
    page = render(TREES["hostile_tree"](), {})
    assert "default-src 'none'" in page and "unsafe" not in page
    assert page.count("</script>") == 2 and "<img" not in page
    assert not any(f'{name}="http' in page for name in ("src", "href"))
    assert page == render(TREES["hostile_tree"](), {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (True, "true"),
        (1e-05, "1e-5"),
        (0.0001, "1e-4"),
        (0.00025, "2.5e-4"),
        (0.02, "0.02"),
        (0.0, "0"),
        (12345678.0, "1.235e7"),
        (48, "48"),
        ("dapo\x1b[0m", "dapo[0m"),
    ],
)
def test_numbers(value: Any, text: str) -> None:
    assert number(value) == text


def test_text_helpers() -> None:
    assert clean("a\n\tb\u202e\x1bc\u2028d", 6) == "a bc d"
    assert clean("x" * 50, 10) == "x" * 9 + "…"
    assert [duration(s) for s in (41.2, 200, 7500)] == ["41 s", "3 min 20 s", "2 h 05 min"]
    assert sparkline([0, 1, 2, math.nan, 3], 4) == "▁▃▆█"
    assert sparkline([0.5, 0.5]) == "▁▁" and sparkline([]) == ""
