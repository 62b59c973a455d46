"""The agent's pictures: equal bytes for equal input, nothing cut off or unsaid, no input that breaks them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib
import playbook_trees as trees
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from trainer_kit import job_of, play

from llmzero.agents import plots_canvas, plots_data
from llmzero.agents.plots import overlay_png, path_png
from llmzero.domain.events import PhaseFinished, PhaseProposed, Tree, apply
from llmzero.domain.series import METRICS, MetricRow, eval_points
from llmzero.domain.types import ROOT, EvalPoint, FailureKind, NodeId, Phase, Proposal, Selection, Status
from llmzero.trainers.sim import SimTrainer

Rows = dict[NodeId, Sequence[MetricRow]]
LIMIT_BYTES = 250_000
HOSTILE = "$\\frac{1}{0}$<b>&\n\t\x00中文😀_^{}%#" + "W" * 200


def trained(folder: Path, *moves: dict[str, Any], steps: int = 40) -> tuple[Tree, Rows]:
    """A path n1, n2, ... of sim phases, each with its own changed hyperparameters (and steps)."""
    tree, rows, start = trees.root_tree(), dict[NodeId, Sequence[MetricRow]]({ROOT: ()}), folder / "base"
    for move in moves:
        parent = list(tree.nodes)[-1]
        hyper = tree.nodes[parent].phase.hyper.with_values({k: v for k, v in move.items() if k != "steps"})
        node = f"n{len(tree.nodes)}"
        spec = {"id": node, "parent": parent, "steps": move.get("steps", steps), "eval_every": 10, "seed": 7}
        phase = Phase(hyper=hyper, **spec)
        job = replace(job_of(start, anchor=folder / "base", phase=spec), phase=phase)
        played = play(SimTrainer(), job, folder / node)
        tree, start = grow(tree, phase, played.result), played.checkpoint
        rows[node] = played.rows
    return tree, rows


def grow(tree: Tree, phase: Phase, result: Any = None) -> Tree:
    chosen = Selection(parent=phase.parent or ROOT, kind="uct", reason="test")
    proposal = Proposal(proposer="test", pathology="test", diagnosis="test")
    tree = apply(tree, PhaseProposed(phase=phase, selection=chosen, proposal=proposal))
    return tree if result is None else apply(tree, PhaseFinished(node=phase.id, result=result))


def train_rows(values: Sequence[float], names: Sequence[str] = tuple(METRICS)) -> list[MetricRow]:
    return [MetricRow(kind="train", step=i + 1, values=dict.fromkeys(names, v)) for i, v in enumerate(values)]


def one(rows: Sequence[MetricRow], **result: Any) -> tuple[Tree, Rows]:
    """The base and one phase n1 of 60 steps with these rows."""
    return trees.child(trees.root_tree(), ROOT, trees.NANO, trees.outcome(**result)), {ROOT: (), "n1": rows}


def picture(tree: Tree, rows: Rows, node: NodeId | None = None) -> bytes:
    return path_png(tree, node or list(tree.nodes)[-1], rows.__getitem__)


def size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])


def watch(seen: list[Figure], patch: pytest.MonkeyPatch) -> None:
    """Collect the figures behind the PNGs made from now on."""
    real = plots_canvas.png

    def png(height: int, paint: Callable[[Figure], None]) -> bytes:
        return real(height, lambda figure: (paint(figure), seen.append(figure))[0])

    patch.setattr(plots_canvas, "png", png)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures behind the PNGs a test makes."""
    seen: list[Figure] = []
    watch(seen, monkeypatch)
    return seen


def texts(figure: Figure) -> list[Text]:
    return [t for t in figure.findobj(Text) if t.get_text() and t.get_visible()]


def words(figure: Figure) -> str:
    """Everything written on a picture, lines joined."""
    return " | ".join(t.get_text().replace("\n", " ") for t in texts(figure))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tree, Rows]:
    second = {"learning_rate": 5e-5, "kl_coef": 0.01, "temperature": 1.1, "top_p": 0.9, "group_size": 12}
    folder = tmp_path_factory.mktemp("three")
    return trained(folder, {"learning_rate": 2e-4}, second, {"max_completion_tokens": 16})


def test_the_same_input_gives_the_same_bytes(three: tuple[Tree, Rows]) -> None:
    tree, rows = three
    assert picture(tree, rows) == picture(tree, rows)
    assert overlay_png(tree, "n3", trees.curve(0.5)) == overlay_png(tree, "n3", trees.curve(0.5))


def test_a_users_matplotlib_settings_neither_matter_nor_change(three: tuple[Tree, Rows]) -> None:
    tree, rows = three
    plain = picture(tree, rows)
    mine = {"font.size": 30, "lines.linewidth": 9, "figure.dpi": 30, "axes.facecolor": "red", "text.parse_math": True}
    with matplotlib.rc_context(mine):
        before = dict(matplotlib.rcParams)
        assert picture(tree, rows) == plain
        assert dict(matplotlib.rcParams) == before


def test_pictures_are_of_the_promised_size_and_say_nothing_of_their_maker(three: tuple[Tree, Rows]) -> None:
    tree, rows = three
    for png, shape in ((picture(tree, rows), (1024, 1050)), (overlay_png(tree, "n3", trees.curve(0.5)), (1024, 640))):
        assert size(png) == shape
        assert len(png) < LIMIT_BYTES
        assert not any(chunk in png for chunk in (b"tEXt", b"iTXt", b"tIME", b"Matplotlib"))


@pytest.fixture(scope="module")
def gallery(three: tuple[Tree, Rows], tmp_path_factory: pytest.TempPathFactory) -> list[Figure]:
    """Pictures of paths of many shapes, and of their last phases over the best."""
    folder = tmp_path_factory.mktemp("gallery")
    many = [{"learning_rate": 1e-5 * (i + 1), "kl_coef": 0.001 * i, "steps": 10 + 20 * (i % 3)} for i in range(12)]
    failed = one((), score=None, steps=0, status=Status.FAILED, failure=FailureKind.HANG, summaries={})
    tree, rows = trained(folder / "12", *many)
    seen: list[Figure] = []
    with pytest.MonkeyPatch.context() as patch:
        watch(seen, patch)
        for node in ("n1", "n5", "n8", "n12", ROOT):
            picture(tree, rows, node)
        for each in (three, failed, trained(folder / "bad", {"kl_coef": 0.0}, {"learning_rate": 1e-3, "steps": 90})):
            picture(*each)
            overlay_png(each[0], list(each[0].nodes)[-1], trees.curve(0.3, 0.5))
    return seen


def test_letters_and_lines_survive_shrinking_to_768_pixels(gallery: list[Figure]) -> None:
    for figure in gallery:
        assert all(text.get_fontsize() * 0.75 >= 11 for text in texts(figure))
        drawn = [line for ax in figure.axes for line in ax.lines if line.get_linestyle() != "None"]
        assert all(line.get_linewidth() * 0.75 >= 1.5 for line in drawn)


def test_nothing_is_cut_off(gallery: list[Figure]) -> None:
    for figure in gallery:
        for text in texts(figure):
            box = text.get_window_extent()
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= 1024 and box.y1 <= figure.bbox.y1, text


def test_labels_do_not_overlap(gallery: list[Figure]) -> None:
    for figure in gallery:
        for ax in figure.axes:
            own = [t for t in texts(figure) if t.axes is ax and (isinstance(t, Annotation) or t.get_weight() == "bold")]
            boxes = [(t, t.get_window_extent()) for t in own]
            for at, (text, box) in enumerate(boxes):
                for other, there in boxes[at + 1 :]:
                    wide = min(box.x1, there.x1) - max(box.x0, there.x0)
                    high = min(box.y1, there.y1) - max(box.y0, there.y0)
                    assert wide <= 1 or high <= 3, (text, other)


def test_borders_name_nodes_and_their_most_telling_changes(three: tuple[Tree, Rows], figures: list[Figure]) -> None:
    picture(*three)
    said = words(figures[0])
    for part in ("lr 1e-4→2e-4", "lr 2e-4→5e-5", "kl 0.02→0.01", "+2", "cap 40→16", "n0 → n1 → n2 → n3"):
        assert part in said, part
    shown = [text.get_text() for text in texts(figures[0])]
    assert all(shown.count(node) == 6 for node in ("n1", "n2", "n3"))


def test_a_last_phase_without_width_is_named(three: tuple[Tree, Rows], figures: list[Figure]) -> None:
    tree, rows = three
    died = trees.outcome(None, steps=0, status=Status.FAILED, failure=FailureKind.DIED, summaries={})
    phase = Phase(id="n4", parent="n3", hyper=trees.NANO, steps=40, eval_every=10, seed=1)
    picture(grow(tree, phase, died), {**rows, "n4": ()})
    assert [text.get_text() for text in texts(figures[0])].count("n4") == 6


def test_a_missing_metric_says_why(figures: list[Figure], tmp_path: Path) -> None:
    picture(*trained(tmp_path / "a", {"kl_coef": 0.0}))
    assert "no data n1: kl_coef is 0" in words(figures[-1])
    picture(*trained(tmp_path / "b", {"kl_coef": 0.0}, {"kl_coef": 0.02}))
    assert "n1: kl_coef is 0" in words(figures[-1]) and "no data" not in words(figures[-1])
    picture(*one(train_rows([0.5] * 60, ["reward"])))
    assert words(figures[-1]).count("no data") == 5
    assert "the trainer did not report entropy" in words(figures[-1])
    picture(*one((), score=None, status=Status.FAILED, failure=FailureKind.OUT_OF_MEMORY))
    assert words(figures[-1]).count("failed (out_of_memory)") == 6


def test_values_that_are_no_numbers_are_marked(figures: list[Figure]) -> None:
    values = [0.5] * 30 + [math.nan, math.inf, 1e300] + [0.5] * 20
    picture(*one(train_rows(values)))
    assert words(figures[0]).count("x: not a number at 3 steps, first 31") == 6


def test_wide_metrics_get_a_log_axis_and_narrow_ones_do_not(figures: list[Figure]) -> None:
    picture(*one(train_rows([0.1, 0.2, 30.0] * 9)))
    scales = {ax.get_ylabel(): ax.get_yscale() for ax in figures[0].axes}
    assert scales["nats per token, log"] == scales["L2 norm, log"] == "log"
    assert scales["nats per token"] == scales["share of groups"] == "linear"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, 1e14, 5e-324, -3.0, 0.0])
def test_no_value_breaks_a_picture(value: float) -> None:
    points = [MetricRow(kind="eval", step=s, values={"score": value, "se": value}) for s in (0, 10, 20)]
    tree, rows = one([*train_rows([value, 1.0] * 10), *points], points=eval_points(points))
    assert size(picture(tree, rows)) == (1024, 1050)
    assert size(overlay_png(tree, "n1", eval_points(points))) == (1024, 640)


@pytest.mark.parametrize("rows", [(), train_rows([0.5]), [MetricRow(kind="eval", step=5, values={})]])
def test_little_or_nothing_to_draw(rows: Sequence[MetricRow]) -> None:
    assert size(picture(*one(rows))) == (1024, 1050)


def test_strings_are_shown_as_they_are_and_kept_short(figures: list[Figure]) -> None:
    tree, rows, parent = trees.root_tree(), dict[NodeId, Sequence[MetricRow]]({ROOT: ()}), ROOT
    for i in range(3):
        hyper = trees.NANO.with_values({HOSTILE: f"{HOSTILE}{i}", "n": 10**400 + i, "b": bool(i % 2)})
        phase = Phase(id=f"{HOSTILE}{i}", parent=parent, hyper=hyper, steps=60, eval_every=10, seed=1)
        why = dict.fromkeys(("kl", "entropy"), HOSTILE)
        tree = grow(tree, phase, trees.outcome(missing=why, points=trees.curve(0.4, 0.5)) if i < 2 else None)
        rows[phase.id], parent = train_rows([0.1, 0.2, 0.3], ["reward"]), phase.id
    picture(tree, rows)
    overlay_png(tree, parent, trees.curve(0.4))
    for figure in figures:
        assert "$\\frac…" in words(figure)
        assert all(not text.get_parse_math() and len(text.get_text()) < 300 for text in texts(figure))
        assert all(text.get_window_extent().x1 <= 1024 for text in texts(figure))


def test_a_long_run_is_thinned_out_and_its_spikes_stay(figures: list[Figure]) -> None:
    values = [0.1 + 0.05 * math.sin(i * i) for i in range(5000)]
    values[3333] = 7.0
    tree = grow(
        trees.root_tree(),
        Phase(id="n1", parent=ROOT, hyper=trees.NANO, steps=5000, eval_every=10, seed=1),
        trees.outcome(steps=5000),
    )
    points = [MetricRow(kind="eval", step=s, values={"score": 0.4, "se": 0.02}) for s in range(0, 5001, 10)]
    png = picture(tree, {ROOT: (), "n1": [*train_rows(values), *points]})
    assert len(png) < LIMIT_BYTES
    lines = [line for ax in figures[0].axes for line in ax.lines if len(line.get_xdata()) > 2]
    assert lines and all(len(line.get_xdata()) <= plots_data.MAX_POINTS for line in lines)
    assert sum(max(line.get_ydata()) == 7.0 for line in lines) == 7


def test_the_overlay_tells_the_present_difference(three: tuple[Tree, Rows], figures: list[Figure]) -> None:
    tree = three[0]
    phase = Phase(id="n4", parent="n1", hyper=trees.NANO, steps=40, eval_every=10, seed=1)
    overlay_png(grow(tree, phase), "n4", trees.curve(0.2, 0.1))
    said = words(figures[0])
    for part in ("n4 (running) against n", "n4: 0.100 ± 0.02 at step 20 of 40", "below the best's", "base 0.400"):
        assert part in said, part
    assert "planned end (step 80)" in said and "n4 so far" in said and "ancestors" in said


def test_the_overlay_without_points_or_rivals(figures: list[Figure]) -> None:
    tree = trees.child(trees.root_tree(), ROOT, trees.NANO, None)
    overlay_png(tree, "n1", ())
    assert "no evaluation yet" in words(figures[0])
    overlay_png(tree, "n1", [EvalPoint(10, math.nan, 0.1)])
    assert "x: not a number at 1 step, first 10" in words(figures[1])


def test_rows_after_a_stopped_phase_ended_are_not_shown() -> None:
    tree, rows = one(train_rows([0.5] * 60), steps=20, status=Status.STOPPED)
    spans = plots_data.spans_of(tree, "n1", rows.__getitem__)
    assert (spans[1].end, len(spans[1].rows)) == (20, 20)


NUMBERS = st.one_of(st.floats(), st.floats(0, 1), st.sampled_from([0.0, 1e-9, 1e9]))


@settings(max_examples=6, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_rows_give_a_picture(data: st.DataObject) -> None:
    row = st.builds(
        MetricRow,
        kind=st.sampled_from(["train", "train", "eval", "other"]),
        step=st.integers(-2, 70),
        values=st.dictionaries(st.sampled_from([*METRICS, "score", "se"]), NUMBERS),
    )
    tree, rows = one(data.draw(st.lists(row, max_size=25)))
    assert size(picture(tree, rows)) == (1024, 1050)


FINITE = st.floats(-1e15, 1e15)


@given(st.lists(FINITE, max_size=60), st.sampled_from([1, 3, 5, 11]))
def test_the_running_median_is_the_median_of_its_window(values: list[float], window: int) -> None:
    half, smooth = window // 2, plots_data.running_median(list(enumerate(values)), window)
    assert smooth == [(i, median(values[max(0, i - half) : i + half + 1])) for i in range(len(values))]


@given(st.lists(FINITE, max_size=300), st.integers(0, 50))
def test_decimation_keeps_ends_and_extremes(values: list[float], limit: int) -> None:
    kept = plots_data.decimate(values, limit, float)
    assert len(kept) <= max(limit, 4)
    if values:
        assert (kept[0], kept[-1], min(kept), max(kept)) == (values[0], values[-1], min(values), max(values))


@given(st.one_of(st.floats(), st.integers(), st.text(), st.booleans(), st.none()))
def test_values_are_short(value: Any) -> None:
    assert len(plots_data.short(value)) <= plots_data.ID_CHARS
    assert plots_data.clean(plots_data.short(value)) == plots_data.short(value)


def test_values_read_as_people_write_them() -> None:
    shown = [plots_data.short(v) for v in (1e-4, 0.00015, 0.02, 1024, 0, True, None, "cosine", 2.5e6)]
    assert shown == ["1e-4", "1.5e-4", "0.02", "1024", "0", "true", "none", "cosine", "2.5e6"]
