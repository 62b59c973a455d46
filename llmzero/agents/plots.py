"""The pictures an LLM agent sees: a path's metrics for the proposer, a running phase against the best for the stopper.

Pure functions from the tree to PNG bytes; equal input gives equal bytes on one machine. `plots_data` decides what is
shown, `plots_canvas` how it is set on the sheet; `overlay_png` is in `plots_overlay`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from llmzero.agents import plots_canvas as canvas
from llmzero.agents.plots_canvas import BLACK, BLUE, DASHED, GREEN, GREY, ORANGE, PURPLE, SHADE, Frame
from llmzero.agents.plots_data import (
    MAX_POINTS,
    Series,
    Span,
    curve_of,
    decimate,
    fit,
    kept_score,
    node_name,
    running_median,
    series_of,
    short,
    spans_of,
    steps_at,
    window_of,
)
from llmzero.agents.plots_overlay import overlay_png
from llmzero.domain.events import Tree
from llmzero.domain.series import MetricRow
from llmzero.domain.types import EvalPoint, NodeId

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["overlay_png", "path_png"]

HEIGHT = 1050
COLUMNS = ((82, 378), (622, 382))
"""Left edge and width of the panels, pixels."""
ROWS = ((604, 316), (330, 198), (56, 198))
"""Lower edge and height of the panels, pixels; the first row has the changes on top."""
MAX_BARS = 60
"""Most validation points with error bars; of more, the lowest and highest of each stretch are shown."""
PALE = 0.35
VALIDATION: dict[str, Any] = {"color": BLACK, "linestyle": ":", "linewidth": 2, "marker": "o", "markersize": 6}
KEPT: dict[str, Any] = {
    "color": ORANGE,
    "linestyle": "",
    "marker": "D",
    "markersize": 9,
    "markerfacecolor": "white",
    "markeredgewidth": 2.5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel of one metric. `scale` zero starts at 0, share is 0..1, wide is zero unless the values need decades."""

    metric: str
    title: str
    unit: str
    color: str
    scale: Literal["zero", "share", "wide"]


LENGTH = "mean_length_tokens"
PANELS = (
    Panel(metric="kl", title="KL to the anchor", unit="nats per token", color=PURPLE, scale="wide"),
    Panel(metric="entropy", title="Entropy of the policy", unit="nats per token", color=GREEN, scale="zero"),
    Panel(metric="grad_norm", title="Gradient norm before clipping", unit="L2 norm", color=BLUE, scale="wide"),
    Panel(metric=LENGTH, title="Completion length, truncation", unit="tokens (solid)", color=BLUE, scale="zero"),
    Panel(metric="zero_std_share", title="Zero-variance groups", unit="share of groups", color=PURPLE, scale="share"),
)


def path_png(tree: Tree, node: NodeId, rows_of: Callable[[NodeId], Sequence[MetricRow]]) -> bytes:
    """Six panels over the whole path from the base to `node`, 1024 x 1050 pixels.

    `rows_of` gives the metric rows of each node of the path, the root included (none is fine).
    """
    spans = spans_of(tree, node, rows_of)
    return canvas.png(HEIGHT, lambda figure: _paint(figure, tree, spans))


def _paint(figure: Figure, tree: Tree, spans: Sequence[Span]) -> None:
    frames = [Frame(left=x, bottom=y, width=w, height=h) for y, h in ROWS for x, w in COLUMNS]
    _head(figure, spans)
    title, unit = "Training reward and validation score", "reward, score (0 to 1)"
    ax = canvas.add_panel(figure, frames[0], title=title, unit=unit, steps=spans[-1].end)
    _reward(ax, tree, spans)
    for frame, panel in zip(frames[1:], PANELS, strict=True):
        ax = canvas.add_panel(figure, frame, title=panel.title, unit=panel.unit, steps=spans[-1].end)
        canvas.add_phases(ax, spans)
        paint = _length if panel.metric == LENGTH else _metric
        paint(ax, panel, tree, spans)
        if frame.bottom == ROWS[-1][0]:
            ax.set_xlabel("total steps from the base")


def _head(figure: Figure, spans: Sequence[Span]) -> None:
    """The path and its scores in words, and the key to all panels."""
    last = spans[-1]
    path = " → ".join(node_name(s.node.id) for s in spans)
    if len(path) > 78:
        path = f"{node_name(spans[0].node.id)} → … → " + " → ".join(node_name(s.node.id) for s in spans[-3:])
    scores = [f"base {_score(spans[0])}", *(f"{node_name(s.node.id)} {_score(s)}" for s in spans[1:][-2:])]
    phases = f"{len(spans) - 1} phase{'s' * (len(spans) != 2)}"
    words = f"{last.node.status}, {last.end} steps in {phases}; validation: {', '.join(scores)}"
    canvas.add_head(figure, fit(f"Path {path}", 84), fit(words, 112))
    _key(figure, window_of(last.end))


def _score(span: Span) -> str:
    result = span.node.result
    if result is None or result.score is None:
        return "none"
    return f"{result.score:.3f} ± {result.score_se or 0:.3f}"


def _key(figure: Figure, window: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Line2D([], [], color=BLUE, alpha=PALE, linewidth=2, label="each step"),
        Line2D([], [], color=BLUE, label=f"running median ({window} steps)"),
        Line2D([], [], **VALIDATION, label="validation ± se"),
        Line2D([], [], **KEPT, label="kept checkpoint ± se"),
        Patch(facecolor=SHADE, edgecolor=GREY, label="last phase"),
    ]
    canvas.add_key(figure, handles, columns=5)


def _reward(ax: Axes, tree: Tree, spans: Sequence[Span]) -> None:
    """Training reward, validation curve and kept scores, below what each phase changed."""
    canvas.add_phases(ax, spans)
    reward = series_of(tree, spans, "reward")
    curves = [curve_of(span) for span in spans]
    kept = [point for span in spans if (point := kept_score(span))]
    points = [p for good, _ in curves for p in good]
    bad = sorted({*reward.bad, *(step for _, steps in curves for step in steps)})
    notes = [*replace(reward, bad=tuple(bad)).notes, *canvas.unlabelled(ax, spans[1:])]
    canvas.hatch(ax, reward.gaps)
    canvas.add_bad(ax, bad, BLUE)
    ends = [p.score + sign * p.se for p in (*points, *kept) for sign in (-1, 1)]
    values = [*reward.values, *ends]
    if not values:
        canvas.say_empty(ax, notes)
        return
    below = canvas.add_notes(ax, notes)
    above = canvas.add_changes(ax, spans, [steps_at(tree, span.node) for span in spans])
    canvas.set_limits(ax, *_spread(values), above=above, below=below)
    _lines(ax, reward, color=BLUE, window=window_of(spans[-1].end))
    for good, _ in curves:
        _bars(ax, decimate(good, MAX_BARS * len(good) // max(1, len(points)), lambda p: p.score), VALIDATION)
    _bars(ax, kept, KEPT)


def _spread(values: Sequence[float], least: float = 0.1) -> tuple[float, float]:
    """Lowest and highest value, moved apart to `least`: noise must not look like a trend."""
    low, high = min(values), max(values)
    more = max(0.0, least - (high - low)) / 2
    return low - more, high + more


def _bars(ax: Axes, points: Sequence[EvalPoint], look: dict[str, Any]) -> None:
    if points:
        xs, ys, ses = zip(*((p.step, p.score, p.se) for p in points), strict=True)
        ax.errorbar(xs, ys, yerr=ses, elinewidth=2, capsize=4, capthick=2, zorder=4, **look)


def _metric(ax: Axes, panel: Panel, tree: Tree, spans: Sequence[Span]) -> None:
    """One metric, or why there is none."""
    series = series_of(tree, spans, panel.metric)
    _holes(ax, series, panel.color)
    if not series.values:
        canvas.say_empty(ax, series.notes)
        return
    floor = _log_floor(series.values) if panel.scale == "wide" else 0.0
    ax.set_ylabel(panel.unit + ", log" * (floor > 0))
    below = [y for y in series.values if y <= floor] if floor else []
    notes = [*series.notes, *([f"{len(below)} steps at or below {short(floor)}"] if len(below) > len(spans) else [])]
    low = floor or min(0.0, *series.values)
    high = max([*series.values, *([1.0] if panel.scale == "share" else [])])
    canvas.set_limits(ax, low, high, log=floor > 0, below=canvas.add_notes(ax, notes))
    _lines(ax, series, color=panel.color, window=window_of(spans[-1].end), floor=floor)


def _log_floor(values: Sequence[float]) -> float:
    """The lowest value a log axis shows, at most eight decades down; 0 where a linear axis is wide enough."""
    positive = [value for value in values if value > 0]
    if not positive or max(positive) <= 100 * min(positive):
        return 0.0
    return max(min(positive), 1e-8 * max(positive))


def _length(ax: Axes, panel: Panel, tree: Tree, spans: Sequence[Span]) -> None:
    """Completion length and cap on the left axis, the truncated share on the right."""
    length, cut = series_of(tree, spans, LENGTH), series_of(tree, spans, "truncated_share")
    _holes(ax, length, panel.color)
    if not length.values and not cut.values:
        canvas.say_empty(ax, length.notes)
        return
    right = ax.twinx()
    right.grid(visible=False)
    right.set_ylabel("truncated share (dashed)", color=ORANGE)
    canvas.add_bad(right, cut.bad, ORANGE)
    top = max(length.values, default=0.0)
    caps = [(s, s.node.phase.hyper.max_completion_tokens) for s in spans[1:]]
    caps = [(s, cap) for s, cap in caps if length.values and cap <= 1.6 * top]
    more = [f"truncated share, {note}" for note in cut.notes if note not in length.notes]
    below = canvas.add_notes(ax, [*length.notes, *more])
    highs = max([top, *(cap for _, cap in caps)]), max([1.0, *cut.values])
    for each, series, high in zip((ax, right), (length, cut), highs, strict=True):
        canvas.set_limits(each, min([0.0, *series.values]), high, above=canvas.LINE if caps else 0, below=below)
    _caps(ax, caps)
    window = window_of(spans[-1].end)
    _lines(ax, length, color=panel.color, window=window)
    _lines(right, cut, color=ORANGE, window=window, dash=DASHED)


def _caps(ax: Axes, caps: Sequence[tuple[Span, int]]) -> None:
    """The completion cap of each phase where it is in sight, named at the first."""
    for span, cap in caps:
        ax.plot((span.start, span.end), (cap, cap), color=GREY, linewidth=2, linestyle=":")
    for span, cap in caps[:1]:
        place: dict[str, Any] = {"xytext": (4, 2), "textcoords": "offset points", "va": "bottom", "color": "#444444"}
        ax.annotate("cap (dotted)", (span.start, cap), **place)


def _holes(ax: Axes, series: Series, color: str) -> None:
    canvas.hatch(ax, series.gaps)
    canvas.add_bad(ax, series.bad, color)


def _lines(ax: Axes, series: Series, *, color: str, window: int, floor: float = 0.0, dash: Any = "-") -> None:
    """Each step thin and pale, the running median strong; broken at the borders of phases."""
    total = max(1, len(series.values))
    looks: tuple[dict[str, Any], ...] = ({"alpha": PALE, "linewidth": 2}, {"linestyle": dash})
    for part in series.parts:
        marker = "o" if len(part) == 1 else ""
        for points, look in zip((part, running_median(part, window)), looks, strict=True):
            shown = decimate(points, MAX_POINTS * len(part) // total, lambda point: point[1])
            ys = [max(y, floor) if floor else y for _, y in shown]
            ax.plot([x for x, _ in shown], ys, color=color, marker=marker, **look)
