"""What the plots show, as plain numbers and short texts: no matplotlib here.

x is always total steps from the base: a phase that kept an earlier checkpoint still paid for all its steps.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from llmzero.agents.evidence import evidence_of, why_not
from llmzero.domain.events import Tree
from llmzero.domain.series import MetricRow
from llmzero.domain.strategy import path_to, phase_diff
from llmzero.domain.types import EvalPoint, Node, NodeId, Scalar, Status

MAX_POINTS = 600
"""Most points a metric's line has over a path; a bucket's lowest and highest point are kept, so no spike is lost."""
MAX_VALUE = 1e15
"""A larger value is marked like NaN: it would flatten everything else."""
ID_CHARS = 12
"""Longest node id shown; a longer one loses its middle."""
REASON_CHARS = 90
SHORT_NAMES = {
    "learning_rate": "lr",
    "kl_coef": "kl",
    "temperature": "temp",
    "max_completion_tokens": "cap",
    "group_size": "group",
    "prompts_per_step": "prompts",
    "loss_type": "loss",
    "entropy_coef": "ent",
    "clip_high": "clip+",
    "clip_low": "clip-",
    "updates_per_batch": "updates",
    "advantage_norm": "adv",
    "kl_anchor": "anchor",
    "lr_schedule": "sched",
    "max_grad_norm": "gnorm",
    "top_p": "top_p",
    "warmup_steps": "warmup",
    "mask_truncated": "mask",
    "steps": "steps",
}
"""Hyperparameters, the most telling first; others follow in the order they come."""

Point = tuple[int, float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Span:
    """A phase on the x axis, at total steps `start` to `end`, and its rows inside it."""

    node: Node
    start: int
    end: int
    rows: tuple[MetricRow, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One metric over a path: (total step, value) of each phase, steps without a usable value, and what is missing."""

    parts: tuple[tuple[Point, ...], ...]
    bad: tuple[int, ...]
    gaps: tuple[tuple[Span, str], ...]

    @property
    def values(self) -> list[float]:
        return [y for part in self.parts for _, y in part]

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the curve's holes."""
        phases: dict[str, list[str]] = {}
        for span, reason in self.gaps:
            phases.setdefault(fit(clean(reason), REASON_CHARS), []).append(node_name(span.node.id))
        return [*(f"{', '.join(ids)}: {reason}" for reason, ids in phases.items()), *bad_notes(self.bad)]


def bad_notes(steps: Sequence[int]) -> list[str]:
    """Says what the crosses of `steps` mean; nothing where there are none."""
    return [f"x: not a number at {len(steps)} step{'s' * (len(steps) > 1)}, first {min(steps)}"] if steps else []


def spans_of(tree: Tree, node: NodeId, rows_of: Callable[[NodeId], Sequence[MetricRow]]) -> tuple[Span, ...]:
    """The phases from the root to `node`; the root's span has no width."""
    spans: list[Span] = []
    start = 0
    for each in path_to(tree, node):
        rows = rows_of(each.id)
        length = _length(each, rows)
        inside = sorted((r for r in rows if 0 <= r.step <= length), key=lambda r: r.step)
        spans.append(Span(each, start, start + length, tuple(inside)))
        start += length
    return tuple(spans)


def _length(node: Node, rows: Sequence[MetricRow]) -> int:
    """Steps done; planned ones while it runs; a failed phase may have reported more rows than its result counts."""
    if node.result is None:
        return node.phase.steps
    if node.result.status is Status.FAILED:
        return max(node.result.steps_done, min(node.phase.steps, max((r.step for r in rows), default=0)))
    return node.result.steps_done


def usable(value: float) -> bool:
    """Whether a value can be drawn; NaN compares false."""
    return -MAX_VALUE <= value <= MAX_VALUE


def series_of(tree: Tree, spans: Sequence[Span], name: str) -> Series:
    """One training metric over the phases; the root trains nothing and has no part."""
    parts: list[tuple[Point, ...]] = []
    bad: list[int] = []
    gaps: list[tuple[Span, str]] = []
    for span in spans[1:] or spans:
        found = {span.start + r.step: r.values[name] for r in span.rows if r.kind == "train" and name in r.values}
        parts.append(tuple((x, y) for x, y in found.items() if usable(y)))
        bad += [x for x, y in found.items() if not usable(y)]
        if not found:
            gaps.append((span, _why_missing(tree, span, name)))
    return Series(tuple(parts), tuple(bad), tuple(gaps))


def _why_missing(tree: Tree, span: Span, name: str) -> str:
    node = span.node
    if node.parent is None:
        return "nothing trained yet"
    if reason := why_not(evidence_of(tree, node.id, tree.config.space), name):
        return reason
    if any(r.kind == "train" for r in span.rows):
        return f"the trainer did not report {name}"
    if node.result is None:
        return "running, no step reported yet"
    failure = f" ({node.result.failure.value})" if node.result.failure else ""
    return f"{node.status}{failure}, no training row"


def curve_of(span: Span) -> tuple[list[EvalPoint], list[int]]:
    """A phase's validation points at total steps, and the steps whose score is no number."""
    rows = [r for r in span.rows if r.kind == "eval" and "score" in r.values]
    points = [EvalPoint(r.step, r.values["score"], r.values.get("se", 0.0)) for r in rows]
    if not points and span.node.result:
        points = [p for p in span.node.result.curve if p.step <= span.end - span.start]
    return placed(points, span.start)


def placed(points: Iterable[EvalPoint], start: int) -> tuple[list[EvalPoint], list[int]]:
    """Points moved by `start` steps, an unknown error as 0; and the steps whose score is no number."""
    at = sorted((EvalPoint(start + p.step, p.score, p.se) for p in points), key=lambda p: p.step)
    good = [EvalPoint(p.step, p.score, p.se if 0 <= p.se <= MAX_VALUE else 0.0) for p in at if usable(p.score)]
    return good, [p.step for p in at if not usable(p.score)]


def kept_score(span: Span) -> EvalPoint | None:
    """The node's own score, at the step of the checkpoint it was measured on."""
    result = span.node.result
    if result is None or result.score is None or not usable(result.score) or result.status is not Status.FINISHED:
        return None
    step = result.checkpoint.step if result.checkpoint else result.steps_done
    return placed([EvalPoint(min(step, span.end - span.start), result.score, result.score_se or 0.0)], span.start)[0][0]


def window_of(steps: int) -> int:
    """Width of the running median: 5 steps, wider (and odd) on paths of more than 300."""
    return max(5, steps // 50 | 1)


def running_median(points: Sequence[Point], window: int) -> list[Point]:
    """The median of the `window` points around each one, fewer at the ends."""
    half = window // 2
    values = [y for _, y in points]
    inside = sorted(values[:half])
    smooth: list[Point] = []
    for at, (x, _) in enumerate(points):
        if at + half < len(values):
            insort(inside, values[at + half])
        if at - half - 1 >= 0:
            inside.pop(bisect_left(inside, values[at - half - 1]))
        smooth.append((x, (inside[(len(inside) - 1) // 2] + inside[len(inside) // 2]) / 2))
    return smooth


def decimate(points: Sequence[T], limit: int, value: Callable[[T], float]) -> list[T]:
    """At most max(`limit`, 4) of the points, in order: the ends, and the lowest and highest of each bucket."""
    if len(points) <= max(limit, 4):
        return list(points)
    size = math.ceil(len(points) / max(1, (limit - 2) // 2))
    kept = {0, len(points) - 1}
    for at in range(0, len(points), size):
        bucket = range(at, min(at + size, len(points)))
        kept |= {min(bucket, key=lambda i: value(points[i])), max(bucket, key=lambda i: value(points[i]))}
    return [points[i] for i in sorted(kept)]


@dataclass(frozen=True, slots=True)
class Step:
    """A changed hyperparameter as text. `old` and `new` are empty where a phase changed nothing."""

    name: str
    old: str = ""
    new: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.old}→{self.new}" if self.new else self.name

    def within(self, width: int) -> list[str]:
        """One or two lines of `width` characters; [] where it needs more."""
        forms = [[str(self)], [f"{self.name} {self.old}", f"→{self.new}"]]
        return next((lines for lines in forms if max(map(len, lines)) <= width), [])

    def brief(self, width: int) -> str:
        """One line of `width` characters; the old value goes first."""
        return str(self) if len(str(self)) <= width else fit(f"{self.name}→{self.new}", width)


def steps_at(tree: Tree, node: Node) -> list[Step]:
    """What a phase changed, the most telling first; the root changed nothing and says nothing."""
    if node.parent is None:
        return []
    order = {name: at for at, name in enumerate(SHORT_NAMES)}
    changes = sorted(phase_diff(tree.nodes[node.parent], node), key=lambda c: order.get(c[0], len(order)))
    named = [Step(SHORT_NAMES.get(name) or clean(name), short(old), short(new)) for name, old, new in changes]
    return named or [Step("unchanged")]


def level_lines(steps: Sequence[Step], width: int) -> list[str]:
    """Up to three changes in lines of `width` characters, then how many more; [] if the first does not fit."""
    texts = [text for step in steps[:3] if (text := step.within(width))]
    if not texts or texts[0] != steps[0].within(width):
        return []
    left = len(steps) - len(texts)
    return [line for text in texts for line in text] + ([f"+{left}"] if left else [])


def upright_lines(steps: Sequence[Step], lines: int, width: int) -> list[str]:
    """Up to three changes in at most `lines` lines of `width` characters, then how many more."""
    if lines < 1 or not steps:
        return []
    if len(steps) > lines == 1:
        return [f"{steps[0].brief(width - 4)} +{len(steps) - 1}"]
    shown = steps[: min(3, lines if len(steps) <= lines else lines - 1)]
    left = len(steps) - len(shown)
    return [step.brief(width) for step in shown] + ([f"+{left}"] if left else [])


def short(value: Scalar, digits: int = 3) -> str:
    """A value in few characters: 0.0001 is 1e-4."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return fit(clean(str(value).lower()), ID_CHARS)
    number = float(value) if isinstance(value, float) or abs(value) < 1e300 else (math.inf if value > 0 else -math.inf)
    if number == 0 or 1e-3 <= abs(number) < 1e5 or not math.isfinite(number):
        return f"{number:.5g}" if isinstance(value, int) else f"{number:.{digits}g}"
    mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"


def clean(text: str) -> str:
    """Only characters every bundled font has, on one line: others become "?"."""
    return "".join(c if " " <= c <= "~" or c in "→±…−" else "?" for c in text)


def fit(text: str, width: int) -> str:
    """At most `width` characters; a longer text loses its end."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def node_name(node: NodeId, width: int = ID_CHARS) -> str:
    """A node id to show; a long one loses its middle, where ids of one kind differ least."""
    text = clean(node)
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
