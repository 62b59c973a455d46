"""The sheet the plots are drawn on: size, style, phase borders, limits, notes; and its PNG bytes.

One point is one pixel (72 dots per inch). Nothing is smaller than 15 px or thinner than 2 px, so that a picture shrunk
from 1024 to 768 px keeps 11 px letters and 1.5 px lines. Colours: Okabe and Ito's, told apart by colour-blind people.
"""

from __future__ import annotations

import io
import math
import textwrap
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmzero.agents.plots_data import Span, Step, clean, fit, level_lines, node_name, short, upright_lines

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, DPI, FONT = 1024, 72, 15
CHAR = 0.602 * FONT
"""Pixels: the width of every character of DejaVu Sans Mono."""
LINE = 17
"""Pixels from one line of text to the next."""
BLACK, BLUE, ORANGE, GREEN, PURPLE, GREY = "#000000", "#0072B2", "#D55E00", "#007A5A", "#8A3F80", "#6E6E6E"
DASHED = (0, (4, 1.5))
SHADE, HATCH = "#F9F3DE", "#C9C9C9"
UPRIGHT_CHARS = 16
"""Characters of an upright line: about half a reward panel's height."""
STYLE: dict[str, Any] = {
    "text.parse_math": False,
    "text.usetex": False,
    "font.family": ["DejaVu Sans"],
    "font.size": FONT,
    "axes.titlesize": FONT + 1,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 22,
    "axes.labelsize": FONT,
    "axes.labelpad": 3,
    "axes.linewidth": 1.5,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#E2E2E2",
    "grid.linewidth": 1.5,
    "xtick.labelsize": FONT,
    "ytick.labelsize": FONT,
    "xtick.major.width": 1.5,
    "ytick.major.width": 1.5,
    "legend.fontsize": FONT,
    "legend.frameon": False,
    "lines.linewidth": 3,
    "hatch.linewidth": 2,
}
COLOURS = 64
"""Of the PNG's palette: a third of the bytes of full colour, and no difference to the eye."""
KEPT_OUT = ("backend", "backend_fallback", "interactive", "toolbar", "timezone")
"""Settings of a program, not of a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Where a panel lies, in pixels from the sheet's lower left corner."""

    left: float
    bottom: float
    width: float
    height: float


_TURN = threading.Lock()


def png(height: int, paint: Callable[[Figure], None]) -> bytes:
    """What `paint` puts on a sheet, as a PNG that depends on nothing else: no user's settings, no time.

    matplotlib's settings are global: they are replaced while this runs and put back, so threads draw in turn.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    settings: dict[Any, Any] = {k: v for k, v in matplotlib.rcParamsDefault.items() if k not in KEPT_OUT}
    with _TURN, matplotlib.rc_context(settings | STYLE):
        figure = Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI, facecolor="white")
        canvas: Any = FigureCanvasAgg(figure)
        paint(figure)
        canvas.draw()
        image = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba(), "raw", "RGBA", 0, 1)
    file = io.BytesIO()
    few = image.convert("RGB").quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(file, "PNG")
    return file.getvalue()


def add_head(figure: Figure, title: str, words: str) -> None:
    """The sheet's title and the line below it."""
    height = figure.bbox.height
    figure.text(12 / WIDTH, 1 - 8 / height, title, fontsize=18, weight="bold", ha="left", va="top")
    figure.text(12 / WIDTH, 1 - 34 / height, words, fontsize=16, ha="left", va="top")


def add_key(figure: Figure, handles: Sequence[Artist], *, columns: int) -> None:
    """What the lines mean, below the head."""
    anchor = (4 / WIDTH, 1 - 50 / figure.bbox.height)
    spacing: dict[str, Any] = {"columnspacing": 1.4, "handlelength": 2}
    figure.legend(handles=handles, ncols=columns, loc="upper left", bbox_to_anchor=anchor, **spacing)


def add_panel(figure: Figure, frame: Frame, *, title: str, unit: str, steps: int) -> Axes:
    """An empty panel over `steps` total steps."""
    width, height = figure.bbox.width, figure.bbox.height
    ax = figure.add_axes((frame.left / width, frame.bottom / height, frame.width / width, frame.height / height))
    margin = 0.02 * max(steps, 1)
    ax.set_xlim(-margin, max(steps, 1) + margin)
    ticks = _round_ticks(0, max(steps, 1), integer=True)
    ax.set_xticks(ticks, labels=[short(round(tick)) for tick in ticks])
    ax.set_title(title)
    ax.set_ylabel(unit)
    return ax


def x_pixels(ax: Axes, step: float) -> float:
    """Pixels from the panel's left edge."""
    low, high = ax.get_xlim()
    return float((step - low) / (high - low) * ax.bbox.width)


def add_phases(ax: Axes, spans: Sequence[Span]) -> None:
    """Borders with node ids above them; the last phase shaded. Ids without room are left out, the last one never."""
    shown = spans[1:] or spans
    ax.axvspan(shown[-1].start, shown[-1].end, color=SHADE, linewidth=0, zorder=0)
    free = ax.bbox.width
    for span in reversed(shown):
        ax.axvline(span.start, color=GREY, linewidth=2, zorder=1)
        left = x_pixels(ax, span.start)
        name = node_name(span.node.id)
        if span is shown[-1]:
            left = min(left, free - CHAR * len(name))
        chars = int((free - left) / CHAR + 0.01)
        if chars < min(3, len(name)):
            continue
        write(ax, node_name(name, chars), left, ax.bbox.height + 3, va="bottom", weight="bold")
        free = left - CHAR / 2


def write(ax: Axes, text: str, x: float, y: float, **more: Any) -> None:
    """Text at pixels from the panel's lower left corner."""
    more = {"family": "DejaVu Sans Mono", "ha": "left", "annotation_clip": False, "zorder": 6, **more}
    ax.annotate(text, (0, 0), (x, y), xycoords="axes fraction", textcoords="offset points", **more)


def add_changes(ax: Axes, spans: Sequence[Span], steps: Sequence[Sequence[Step]]) -> float:
    """What changed at each border, at the panel's top; returns the pixels of height it took.

    Level text where each phase has room for its most telling change, else upright text along the borders.
    """
    widths = [x_pixels(ax, span.end) - x_pixels(ax, span.start) - 4 for span in spans]
    texts = [level_lines(own, int(width / CHAR)) for own, width in zip(steps, widths, strict=True)]
    level = all(text or not own for own, text in zip(steps, texts, strict=True))
    if not level:
        texts = [upright_lines(own, int(width / LINE), UPRIGHT_CHARS) for own, width in zip(steps, widths, strict=True)]
    for span, text in zip(spans, texts, strict=True):
        at = x_pixels(ax, span.start) + 4, ax.bbox.height - 4
        write(ax, "\n".join(text), *at, va="top", rotation=0 if level else 90)
    return 6 + max(LINE * len(text) if level else CHAR * max(map(len, text), default=0) for text in texts)


def unlabelled(ax: Axes, spans: Sequence[Span]) -> list[str]:
    """A note naming the phases too short for `add_changes`."""
    names = [node_name(s.node.id) for s in spans if x_pixels(ax, s.end) - x_pixels(ax, s.start) - 4 < LINE]
    return [f"no room for the changes of {', '.join(names)}"] if names else []


def add_notes(ax: Axes, notes: Sequence[str]) -> float:
    """Small print at the panel's lower edge, four lines at most; returns the pixels of height it took."""
    chars = int(ax.bbox.width / CHAR) - 1
    lines = [line for note in notes for line in textwrap.wrap(clean(note), chars)]
    shown = lines if len(lines) <= 4 else [*lines[:3], fit(lines[3], chars - 1) + "…"]
    box = {"facecolor": "white", "alpha": 0.85, "linewidth": 0, "pad": 1}
    write(ax, "\n".join(shown), 5, 6, va="bottom", **({"bbox": box} if shown else {}))
    return LINE * len(shown) + 8 if shown else 0


def hatch(ax: Axes, gaps: Sequence[tuple[Span, str]]) -> None:
    """Mark phases without a metric."""
    for span, _ in gaps:
        ax.axvspan(span.start, span.end, fill=False, hatch="//", edgecolor=HATCH, linewidth=0, zorder=0.5)


def add_bad(ax: Axes, steps: Sequence[int], color: str) -> None:
    """Crosses on the x axis where a value is no number."""
    kept = steps[:: math.ceil(len(steps) / 100) or 1]
    place: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False, "zorder": 7}
    ax.plot(kept, [0.0] * len(kept), "x", color=color, markersize=9, markeredgewidth=2.5, **place)


def say_empty(ax: Axes, notes: Sequence[str]) -> None:
    """A panel without a single value: the reason instead of a curve."""
    chars = int(ax.bbox.width / CHAR) - 4
    lines = [line for note in ("no data", *notes) for line in textwrap.wrap(clean(note), chars)]
    box = {"facecolor": "white", "edgecolor": GREY, "linewidth": 1.5, "pad": 8}
    centre = ax.bbox.width / 2, ax.bbox.height / 2
    write(ax, "\n".join(lines[:7]), *centre, ha="center", va="center", bbox=box)
    ax.set_yticks([])


def set_limits(ax: Axes, low: float, high: float, *, log: bool = False, above: float = 0, below: float = 0) -> None:
    """Show `low` to `high`, leaving `above` and `below` pixels free of curves; ticks only where values are."""
    if log:
        ax.set_yscale("log")
        low, high = math.log10(low), math.log10(high)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = (low - 0.5 * abs(low or 1), high + 0.5 * abs(high or 1))
    unit = (high - low) / max(ax.bbox.height - above - below - 20, 20)
    ends = low - unit * (below + 10), high + unit * (above + 10)
    ax.set_ylim(*(10**end for end in ends) if log else ends)
    ticks = _decades(low, high) if log else _round_ticks(low, high)
    ax.set_yticks(ticks, labels=[short(tick, 4) for tick in ticks])
    ax.minorticks_off()


def _decades(low: float, high: float) -> list[float]:
    decades = range(math.ceil(low - 0.05), math.floor(high + 0.05) + 1)
    return [10.0**decade for decade in decades[:: math.ceil(len(decades) / 6)]]


def _round_ticks(low: float, high: float, *, integer: bool = False) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    margin = 0.02 * (high - low)
    ticks = MaxNLocator(nbins=6, steps=(1, 2, 2.5, 5, 10), integer=integer).tick_values(low, high)
    return [float(tick) for tick in ticks if low - margin <= tick <= high + margin]
