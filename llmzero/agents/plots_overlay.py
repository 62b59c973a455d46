"""The stopper's picture: a running phase's validation curve laid over the best completed strategy's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmzero.agents import plots_canvas as canvas
from llmzero.agents.plots_canvas import BLUE, DASHED, GREY, ORANGE, SHADE, Frame
from llmzero.agents.plots_data import MAX_POINTS, bad_notes, decimate, node_name, placed, usable
from llmzero.agents.stopping import level_at, reference_curve
from llmzero.domain.events import Tree
from llmzero.domain.strategy import path_curve, total_steps
from llmzero.domain.types import ROOT, EvalPoint, Node, NodeId

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 640
FRAME = Frame(left=82, bottom=56, width=922, height=464)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Everything on the picture, at total steps from the base."""

    node: Node
    start: int
    end: int
    before: list[EvalPoint]
    now: list[EvalPoint]
    bad: list[int]
    best: Node | None
    reference: list[EvalPoint]
    final: EvalPoint | None
    base: float | None


def overlay_png(tree: Tree, node: NodeId, curve: Sequence[EvalPoint]) -> bytes:
    """Validation against total steps, 1024 x 640 pixels: the path of `node`, then its `curve` (steps of its own phase)
    so far, over the best completed strategy."""
    overlay = _overlay(tree, node, curve)
    return canvas.png(HEIGHT, lambda figure: _paint(figure, tree, overlay))


def _overlay(tree: Tree, node: NodeId, curve: Sequence[EvalPoint]) -> Overlay:
    running = tree.nodes[node]
    start = total_steps(tree, running.parent) if running.parent else 0
    reference, best = reference_curve(tree)
    before, bad = placed(path_curve(tree, running.parent) if running.parent else (), 0)
    now, also_bad = placed(curve, start)
    root = tree.nodes.get(ROOT)
    return Overlay(
        node=running,
        start=start,
        end=start + running.phase.steps,
        before=before,
        now=now,
        bad=sorted({*bad, *also_bad}),
        best=best,
        reference=placed(reference, 0)[0],
        final=_final_of(tree, best),
        base=root.score if root and root.score is not None and usable(root.score) else None,
    )


def _final_of(tree: Tree, best: Node | None) -> EvalPoint | None:
    if best is None or best.score is None or not usable(best.score):
        return None
    return EvalPoint(total_steps(tree, best.id), best.score, 0.0)


def _paint(figure: Figure, tree: Tree, overlay: Overlay) -> None:
    points = [*overlay.before, *overlay.now, *overlay.reference, *([overlay.final] if overlay.final else [])]
    steps = max([overlay.end, *(p.step for p in points)])
    ax = canvas.add_panel(figure, FRAME, title="", unit="validation score", steps=steps)
    ax.set_xlabel("total steps from the base")
    _head(figure, tree, overlay)
    levels = [p.score for p in points] + ([] if overlay.base is None else [overlay.base])
    canvas.add_bad(ax, overlay.bad, BLUE)
    if not levels:
        canvas.say_empty(ax, ["no validation score yet", *bad_notes(overlay.bad)])
        return
    ends = [*levels, *(p.score - p.se for p in points), *(p.score + p.se for p in points)]
    canvas.set_limits(ax, min(ends), max(ends), above=20, below=canvas.add_notes(ax, bad_notes(overlay.bad)))
    _marks(ax, overlay)
    _curves(ax, overlay)
    canvas.add_key(figure, ax.get_legend_handles_labels()[0], columns=3)


def _head(figure: Figure, tree: Tree, overlay: Overlay) -> None:
    """Who is compared with whom, and the present difference."""
    name = node_name(overlay.node.id)
    best, final = overlay.best, overlay.final
    other = f"{node_name(best.id)} (best completed{f', {final.score:.3f}' if final else ''})" if best else "no other"
    title = f"{name} ({overlay.node.status}) against {other}"
    canvas.add_head(figure, title, f"{name}: {_difference(tree, overlay)}")


def _difference(tree: Tree, overlay: Overlay) -> str:
    if not overlay.now:
        return "no evaluation yet"
    last = overlay.now[-1]
    words = f"{last.score:.3f} ± {last.se:.2g} at step {last.step - overlay.start} of {overlay.node.phase.steps}"
    level = level_at(tree, last.step)
    if level is None or not usable(level.score):
        return f"{words}; nothing to compare with"
    gap, se = last.score - level.score, math.hypot(last.se, level.se)
    size = f"{abs(gap):.3f}" + (f" ({abs(gap) / se:.1f} combined se)" if se > 0 else "")
    return f"{words}; {size} {'below' if gap < 0 else 'above'} the best's {level.score:.3f} ± {level.se:.2g} there"


def _marks(ax: Axes, overlay: Overlay) -> None:
    """The base score and the running phase's place."""
    if overlay.base is not None:
        ax.axhline(overlay.base, color=GREY, linewidth=2, linestyle=":", label=f"base {overlay.base:.3f}")
    ax.axvspan(overlay.start, overlay.end, color=SHADE, linewidth=0, zorder=0)
    ax.axvline(overlay.start, color=GREY, linewidth=2, zorder=1)
    at, name = canvas.x_pixels(ax, overlay.start) + 4, node_name(overlay.node.id)
    canvas.write(ax, f"{name} starts", at, ax.bbox.height - 4, va="top", weight="bold")
    end = f"planned end (step {overlay.end})"
    ax.axvline(overlay.end, color="#000000", linewidth=2.5, linestyle=(0, (1, 1.5)), zorder=1, label=end)


def _curves(ax: Axes, overlay: Overlay) -> None:
    name = node_name(overlay.node.id)
    if overlay.best:
        label = f"best completed, {node_name(overlay.best.id)} ± se"
        _curve(ax, overlay.reference, color=ORANGE, dash=DASHED, marker="s", label=label)
    if overlay.final:
        _final(ax, overlay.final)
    _curve(ax, overlay.before, color=GREY, dash="-", marker="^", label="ancestors ± se")
    _curve(ax, overlay.now, color=BLUE, dash="-", marker="o", label=f"{name} so far ± se")


def _final(ax: Axes, point: EvalPoint) -> None:
    """The best strategy's final score, which is what counts beyond its end."""
    at, end = point.step, ax.get_xlim()[1]
    ax.plot((at, end), (point.score, point.score), color=ORANGE, linewidth=2, linestyle=DASHED, zorder=2)
    look: dict[str, Any] = {"linestyle": "", "marker": "D", "markersize": 9, "markerfacecolor": "white"}
    ax.plot([at], [point.score], color=ORANGE, markeredgewidth=2.5, zorder=5, label="its final score", **look)


def _curve(ax: Axes, points: Sequence[EvalPoint], *, color: str, dash: object, marker: str, label: str) -> None:
    """Scores with a band of one standard error on each side."""
    if not points:
        return
    shown = decimate(points, MAX_POINTS, lambda p: p.score)
    xs, ys = [p.step for p in shown], [p.score for p in shown]
    low, high = ([p.score + sign * p.se for p in shown] for sign in (-1, 1))
    ax.fill_between(xs, low, high, color=color, alpha=0.2, linewidth=0)
    ax.plot(xs, ys, color=color, linestyle=dash, marker=marker if len(shown) <= 60 else "", markersize=8, label=label)
