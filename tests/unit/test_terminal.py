"""The terminal views: live on a terminal, plain lines elsewhere, harmless and unbroken whatever a model wrote."""

from __future__ import annotations

import io
import runpy
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from llmzero.domain.events import Tree, apply
from llmzero.report.terminal import TerminalView, node_text, print_final, runs_table, screen, time_left_s, tree_text
from llmzero.report.view import summary

TREES = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "report_trees.py"))


def shown(what: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, force_terminal=False, color_system=None)
    console.print(what)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert not [c for c in text if ord(c) < 32 and c != "\n"] and "\u202e" not in text
    return text


@pytest.mark.parametrize("width", [80, 140])
def test_the_tree_marks_status_best_and_fresh_starts(width: int) -> None:
    lines = shown(tree_text(TREES["example_tree"](), TREES["example_rows"]()), width).splitlines()
    line = {name: next(each for each in lines if f" {name} " in each) for name in ("n0", "n3", "n5", "n6", "n7", "n10")}
    assert "★" in line["n7"] and "0.489 ± 0.013" in line["n7"] and "KL drift: learning_rate 1e-4→5e-5" in line["n7"]
    assert "■ n3" in line["n3"] and "stopped at step 40" in line["n3"]
    assert "✕ n5" in line["n5"] and "failed (nan)" in line["n5"]
    assert "fresh start" in line["n6"] and "step 27/60" in line["n10"]
    assert line["n0"].startswith("● n0") and len(lines) == 12


def test_a_low_screen_keeps_the_best_path_and_the_running_node() -> None:
    text = shown(screen(TREES["example_tree"](), {}, elapsed_s=5, height=13))
    assert len(text.splitlines()) <= 13
    assert "★" in text and " n10 " in text and "… and 4 more nodes" in text


def test_progress_names_the_budget_and_the_time_left() -> None:
    tree = TREES["example_tree"]()
    rows = {"n10": TREES["example_rows"]()["n10"]}
    text = shown(screen(tree, rows, elapsed_s=812, height=40))
    assert "10/12 nodes · 0.41/2 worker hours · 13 min 32 s elapsed · about" in text
    times = [n.result.cost.wall_s for n in tree.nodes.values() if n.result and n.parent]
    assert time_left_s(tree, rows) == pytest.approx(sum(times) / len(times) * (2 + 33 / 60))
    assert time_left_s(TREES["base_tree"](), {}) is None


def test_plain_lines_one_an_event() -> None:
    out = io.StringIO()
    view = TerminalView(Console(file=out, force_terminal=False))
    tree = Tree()
    for event in TREES["example_events"]():
        tree = apply(tree, event)
        view.changed(tree, {"n10": TREES["example_rows"]()["n10"]} if "n10" in tree.nodes else {})
    view.close()
    lines = out.getvalue().splitlines()
    assert lines[0] == "run 2026-12-01-chemcot-x7k2: chemcot, nano"
    assert lines[1:3] == ["n0 measuring the base model", "n0 finished: 0.214 ± 0.013 in 1 min 36 s"]
    assert "n1 finished: 0.331 ± 0.013 (+0.117 against n0) in 2 min 36 s, best so far" in lines
    assert "n6 fresh start from n0: plateau: learning_rate 1e-4→3e-4, kl_coef 0→0.02, prompts_per_step 8→16" in lines
    assert "n5 failed (nan): loss is not finite at step 38" in lines
    assert sum(line.startswith("n10 step ") for line in lines) == 3
    assert any(line.startswith("n3 stopping at step 40: ") for line in lines) and "\x1b" not in out.getvalue()


def test_nothing_is_said_twice() -> None:
    out = io.StringIO()
    view = TerminalView(Console(file=out, force_terminal=False))
    for _ in range(3):
        view.changed(TREES["finished_tree"](), TREES["example_rows"]())
    lines = out.getvalue().splitlines()
    assert len(lines) == len(set(lines)) and "search ended: 12 nodes trained" in lines


def test_a_terminal_gets_a_live_display_and_is_left_clean() -> None:
    out = io.StringIO()
    with TerminalView(Console(file=out, force_terminal=True, width=80, height=30), clock=lambda: 0.0) as view:
        view.changed(TREES["example_tree"](), {})
        view.changed(TREES["finished_tree"](), {})
    assert out.getvalue().count("LLMZero") >= 2
    assert out.getvalue().rindex("\x1b[?25h") > out.getvalue().rindex("\x1b[?25l")  # the cursor is back


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    with TerminalView(Console(file=out, force_terminal=True, width=80, height=30)) as view:
        view.changed(TREES["example_tree"](), {})
    assert "\x1b[3" not in out.getvalue().replace("\x1b[3m", "")  # italics are no colour


def final(tree: Tree, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_final(tree, console, ["llmzero show r n7", "llmzero export r --to trl"], "runs/r/report/index.html")
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("width", [80, 140])
def test_the_final_words(width: int) -> None:
    text = final(TREES["finished_tree"](), width)
    assert "validation     0.214 ± 0.013  0.489 ± 0.013  +0.275 (+0.240 to +0.310)" in text
    assert "held-out test  0.209 ± 0.011  0.471 ± 0.014  +0.262 (+0.227 to +0.297)" in text
    assert "Report runs/r/report/index.html" in text and "llmzero export r --to trl" in text
    assert "not read yet" in final(TREES["example_tree"](), width)


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ("empty_tree", "is being measured"),
        ("base_tree", "no phase has ended"),
        ("failed_tree", "2 phases so far failed"),
    ],
)
def test_final_words_without_a_better_strategy(tree: str, words: str) -> None:
    assert words in final(TREES[tree](), 80)
    shown(tree_text(TREES[tree]()))


@pytest.mark.parametrize("node", ["n0", "n3", "n5", "n7", "n8", "n10"])
def test_one_node(node: str) -> None:
    text = shown(node_text(TREES["finished_tree"](), node))
    assert text.startswith("node ") and node in text.splitlines()[0]


def test_one_running_node_shows_its_metrics_so_far() -> None:
    text = shown(node_text(TREES["example_tree"](), "n10", TREES["example_rows"]()["n10"]))
    assert "running" in text and "zero_std_share" in text and "validation " in text


def test_the_list_of_runs_never_cuts_a_run_name() -> None:
    text = shown(runs_table([summary(TREES["finished_tree"]()), summary(TREES["empty_tree"]())]))
    assert text.count("2026-12-01-chemcot-x7k2") == 2 and "0.471" in text
    assert "nano" in text and "…" not in text, "80 columns are enough for a run on the embedded base"
    assert "no runs" in shown(runs_table([]))


@pytest.mark.parametrize("width", [80, 140])
def test_hostile_text(width: int) -> None:
    tree = TREES["hostile_tree"]()
    whole = [shown(tree_text(tree), width), shown(screen(tree, {}, elapsed_s=1, height=20), width)]
    whole += [shown(node_text(tree, "n1"), width), shown(runs_table([summary(tree)]), width), final(tree, width)]
    assert all("\x1b" not in text and "\x07" not in text and len(text) < 40_000 for text in whole)
    assert "[bold red]" in whole[2]  # markup is text
    out = io.StringIO()
    TerminalView(Console(file=out, force_terminal=False)).changed(tree, {})
    assert "\x1b" not in out.getvalue() and max(len(line) for line in out.getvalue().splitlines()) < 500
