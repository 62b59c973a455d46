"""The diagnosis set: what each case is, what its stored curve measures, and whether its written criterion holds.

Facts are computed from the stored rows and scores alone, never by the code that is being scored.
"""

from __future__ import annotations

import operator
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmzero.domain.codec import from_json
from llmzero.domain.errors import UsageError, did_you_mean
from llmzero.domain.events import Tree, fold
from llmzero.domain.jobs import JobPaths
from llmzero.domain.series import METRICS, MetricRow, eval_points, metric
from llmzero.domain.statistics import mean, median
from llmzero.domain.strategy import path_to
from llmzero.domain.types import Node, NodeId
from llmzero.store.journal import read_journal
from llmzero.store.layout import RunPaths
from llmzero.store.metrics import read_rows

HOME = Path(__file__).parent / "diagnosis"
LABELS = HOME / "labels.toml"
HEAD = 5
"""Steps whose mean is a metric's start."""
TAIL = 15
"""Steps whose mean is a metric's end."""
JUMP = 5
"""Times the phase's median; a higher value is a jump."""
RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
CLAUSE = re.compile(r"(.+?)\s*(<=|>=|<|>)\s*(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One labelled path. `phases` are the changes of each phase against the one before it, `steps` among them.

    `accepted` are the names of RULES that count as right, the best first; `criterion` holds on the stored curve, every
    clause of it; `made` says how the curve came about and `why` why these names follow from that.
    """

    name: str
    accepted: tuple[str, ...]
    made: str
    why: str
    criterion: tuple[str, ...]
    phases: tuple[Mapping[str, Any], ...]
    seed: int = 0
    keep: str = "best"


@dataclass(frozen=True, slots=True)
class Stored:
    """A case's run as the normal code reads it; the node that is diagnosed is the path's last."""

    case: Case
    tree: Tree
    rows: Mapping[NodeId, tuple[MetricRow, ...]]

    @property
    def node(self) -> Node:
        return list(self.tree.nodes.values())[-1]


def load_cases(path: Path = LABELS) -> dict[str, Case]:
    """The labels file; UsageError where it is not what `Case` says."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
        return {name: from_json(Case, {"name": name, **value}, name) for name, value in found.items()}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from None


def load_stored(case: Case, home: Path = HOME) -> Stored:
    """A stored case; UsageError where it has not been made."""
    paths = RunPaths(home / case.name)
    if not paths.journal.is_file():
        raise UsageError(f"case {case.name} is not stored in {home}: `python benchmarks/diagnosis.py make`")
    tree = fold(read_journal(paths.journal))
    return Stored(case, tree, {n: read_rows(JobPaths(paths.phase_dir(n)).metrics) for n in tree.nodes})


def facts(stored: Stored) -> dict[str, float]:
    """What a criterion may speak of, of the last phase.

    `start`, `score`, `gain` and `gain_se` are validation scores on all items, of the phase's start and of its kept
    checkpoint; `curve_start`, `curve_top`, `curve_end` and `curve_se` (of the last point) the in-phase validation; of
    each metric `NAME_start` (mean of the first 5 steps), `NAME_end` (of the last 15), `NAME_max`, `NAME_median`,
    `NAME_jumps` (steps above 5 times the median), `NAME_base` (as `NAME_start`, of the path's first phase);
    hyperparameters by their own names.
    """
    node, tree = stored.node, stored.tree
    parent = tree.nodes[node.parent or ""]
    if node.result is None or parent.result is None or node.score is None or parent.score is None:
        raise UsageError(f"case {stored.case.name}: the phase or its start has no score")
    ses = (node.result.score_se or 0.0, parent.result.score_se or 0.0)
    found = {"start": parent.score, "score": node.score, "gain": node.score - parent.score}
    found["gain_se"] = (ses[0] ** 2 + ses[1] ** 2) ** 0.5
    numbers = {k: v for k, v in node.phase.hyper.flat().items() if isinstance(v, int | float)}
    first = path_to(tree, node.id)[1].id
    return found | _curve(stored.rows[node.id]) | _levels(stored.rows, node.id, first) | numbers


def _curve(rows: tuple[MetricRow, ...]) -> dict[str, float]:
    points = eval_points(rows)
    scores = [p.score for p in points]
    return {
        "curve_start": scores[0],
        "curve_top": max(scores),
        "curve_end": scores[-1],
        "curve_se": (points[-1].se ** 2 + max(points, key=lambda p: p.score).se ** 2) ** 0.5,
    }


def _levels(rows: Mapping[NodeId, tuple[MetricRow, ...]], node: NodeId, first: NodeId) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in METRICS:
        values = [v for _, v in metric(rows[node], name)]
        early = [v for _, v in metric(rows[first], name)]
        if values:
            found[f"{name}_start"] = mean(values[:HEAD])
            found[f"{name}_end"] = mean(values[-TAIL:])
            found[f"{name}_max"] = max(values)
            found[f"{name}_median"] = median(values)
            found[f"{name}_jumps"] = float(sum(v > JUMP * median(values) for v in values))
        if early:
            found[f"{name}_base"] = mean(early[:HEAD])
    return found


def broken(case: Case, known: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """The clauses of a case's criterion that do not hold, with both sides; () where the label stands.

    `known` holds the facts of every case: a clause may name those of another one (`CASE.NAME`), its control.
    """
    return tuple(text for clause in case.criterion if (text := _clause(clause, case.name, known)))


def _clause(clause: str, case: str, known: Mapping[str, Mapping[str, float]]) -> str:
    found = CLAUSE.fullmatch(clause.strip())
    if found is None:
        raise UsageError(f"case {case}: {clause!r} is no clause; write LEFT < RIGHT, sides being sums of products")
    left, relation, right = found.groups()
    sides = (_sum(left, case, known), _sum(right, case, known))
    return "" if RELATIONS[relation](*sides) else f"{clause} ({sides[0]:.4g} against {sides[1]:.4g})"


def _sum(text: str, case: str, known: Mapping[str, Mapping[str, float]]) -> float:
    """`A + B * C - D`: names and numbers, every sign and operator between blanks."""
    terms = re.split(r"\s+([+-])\s+", text.strip())
    total = _product(terms[0], case, known)
    for sign, term in zip(terms[1::2], terms[2::2], strict=True):
        total += (1 if sign == "+" else -1) * _product(term, case, known)
    return total


def _product(text: str, case: str, known: Mapping[str, Mapping[str, float]]) -> float:
    value = 1.0
    for word in text.split(" * "):
        value *= _value(word.strip(), case, known)
    return value


def _value(word: str, case: str, known: Mapping[str, Mapping[str, float]]) -> float:
    if re.fullmatch(r"-?[0-9.]+(e-?[0-9]+)?", word):
        return float(word)
    minus, word = word.startswith("-"), word.removeprefix("-")
    of, name = word.split(".", 1) if "." in word else (case, word)
    if of not in known or name not in known[of]:
        near = did_you_mean(name, known.get(of, known))
        raise UsageError(f"case {case}: nothing measured is called {word!r}: {near}")
    return -known[of][name] if minus else known[of][name]
