"""Values as short text, and hostile text as harmless text. Shared by the terminal and the page."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from llmzero.domain.types import ROOT, Node

HUGE = 1e300
"""Differences of larger numbers overflow; no measured value comes near."""
_BARS = "▁▂▃▄▅▆▇█"
_JOINERS = "\u200c\u200d"


def clean(text: str, limit: int | None = None) -> str:
    """`text` on one line without control, bidi, surrogate or private characters, cut to `limit` characters."""
    head = text if limit is None else text[: 4 * limit + 64]
    kept = "".join(c if c in _JOINERS or unicodedata.category(c)[0] != "C" else _blank(c) for c in head)
    line = " ".join(kept.split())
    return line if limit is None or len(line) <= limit else line[: limit - 1].rstrip() + "…"


def _blank(char: str) -> str:
    return " " if char in "\n\r\t\v\f" else ""


def number(value: Any) -> str:
    """A hyperparameter or metric: four significant digits, an exponent below 0.001, without padding."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        mantissa, e, exponent = (f"{value:.3e}" if 0 < abs(value) < 1e-3 else f"{value:.4g}").partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}" if e else mantissa
    return clean(str(value), 40)


def score_text(score: float | None, se: float | None) -> str:
    if score is None or not math.isfinite(score):
        return "–"
    return f"{score:.3f}" if se is None else f"{score:.3f} ± {se:.3f}"


def signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def spoken(name: str) -> str:
    """A pathology's identifier as words; "" where none is named."""
    words = re.sub(r"\bkl\b", "KL", clean(name, 60).replace("_", " "))
    return "" if words in ("none", "healthy") else words


def change_text(changes: Iterable[tuple[str, Any, Any]]) -> str:
    """`kl_coef 0.001→0.02, temperature 1→1.2`"""
    return ", ".join(f"{clean(name, 32)} {number(old)}→{number(new)}" for name, old, new in changes)


def sparkline(values: Sequence[float], width: int = 10) -> str:
    """Block characters from the lowest to the highest value, resampled to at most `width` of them."""
    finite = [v for v in values if v is not None and abs(v) < HUGE]
    if not finite:
        return ""
    count = min(width, len(finite))
    picked = [finite[round(i * (len(finite) - 1) / max(1, count - 1))] for i in range(count)]
    low, span = min(picked), max(picked) - min(picked)
    return "".join(_BARS[round((v - low) / span * (len(_BARS) - 1)) if span else 0] for v in picked)


def duration(seconds: float | None) -> str:
    """`41 s`, `3 min 20 s`, `2 h 05 min`; a dash for what is no time"""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    whole = round(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def status_text(node: Node) -> str:
    """Status, and its reason where there is one: what the table, the page and the plain log say."""
    if node.result is None:
        return "running"
    if node.status == "failed":
        return f"failed ({node.result.failure or 'error'})"
    if node.status == "stopped" and node.verdict:
        return f"stopped at step {node.verdict.at_step}"
    return node.status


def changed_text(node: Node, changes: Iterable[tuple[str, Any, Any]]) -> str:
    """What is changed against the parent, also where that is nothing."""
    same = "the starting hyperparameters" if node.parent == ROOT else "the same hyperparameters again"
    return change_text(changes) or same


def why(node: Node, changes: Iterable[tuple[str, Any, Any]]) -> str:
    """The named pathology and what is changed against the parent, on one line."""
    name = spoken(node.proposal.pathology)
    return f"{name}: {changed_text(node, changes)}" if name else changed_text(node, changes)


def printable(text: str) -> str:
    """A path as it may be printed: a folder's name can hold anything."""
    return "".join(c if c.isprintable() else "?" for c in text)
