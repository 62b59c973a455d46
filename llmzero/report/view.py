"""Tree -> plain JSON values: what `search --json` ends with, what `show --json` prints, what the page is drawn from.

Pure. Numbers that are not finite become null, so that the result is JSON in the strict sense.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from llmzero.domain.codec import to_json
from llmzero.domain.events import Tree
from llmzero.domain.series import METRICS, MetricRow, eval_points, metric
from llmzero.domain.strategy import best_node, path_to, phase_diff
from llmzero.domain.types import ROOT, Cost, EvalPoint, Node, NodeId
from llmzero.report.ledger import Calls, calls_by_node, ledger, run_ledger
from llmzero.report.outcome import Json, difference, headline
from llmzero.report.words import clean

MAX_POINTS = 120
"""Points kept of one training metric in the page."""

MAX_TEXT = 4000
"""Characters kept of one text in the page."""


def summary(tree: Tree, calls: Calls = ()) -> Json:
    """The whole run in one object. `calls` are its recorded model calls; `cost.llm` is null where there are none."""
    best = best_node(tree)
    return _object(
        {
            "run": tree.run,
            "task": tree.config.task,
            "model": tree.config.model,
            "started_at": tree.started_at,
            "ended": tree.ended,
            "base": _scores(tree, tree.nodes.get(ROOT)),
            "best": {**(_scores(tree, best) or {}), "stages": stages(tree, best.id)} if best else None,
            "nodes": [_brief(tree, node) for node in tree.nodes.values()],
            "cost": {**to_json(total_cost(tree)), "llm": run_ledger(tree, calls) if calls else None},
        }
    )


def total_cost(tree: Tree) -> Cost:
    """The sum over all nodes, failed and stopped ones included; times are worker seconds."""
    costs = [n.result.cost for n in tree.nodes.values() if n.result]
    return Cost(
        wall_s=math.fsum(c.wall_s for c in costs),
        train_s=math.fsum(c.train_s for c in costs),
        eval_s=math.fsum(c.eval_s for c in costs),
        start_s=math.fsum(c.start_s for c in costs),
        steps=sum(c.steps for c in costs),
        optimizer_steps=sum(c.optimizer_steps for c in costs),
        generated_tokens=sum(c.generated_tokens for c in costs),
    )


def stages(tree: Tree, node: NodeId) -> list[Json]:
    """The strategy that ends in `node`, a row a phase; empty for the base. `handover_step` is the kept checkpoint's."""
    path = path_to(tree, node)
    return [_stage(i, path[i - 1], path[i]) for i in range(1, len(path))]


def _stage(number: int, parent: Node, node: Node) -> Json:
    result = node.result
    return {
        "stage": number,
        "node": node.id,
        "steps": _steps(node),
        "handover_step": result.checkpoint.step if result and result.checkpoint else None,
        "kl_anchor": node.phase.kl_anchor,
        "hyper": node.phase.hyper.flat(),
        "changes": _changes(parent, node),
        "score": node.score,
        "se": result.score_se if result else None,
        "diagnosis": node.proposal.diagnosis,
    }


def _steps(node: Node) -> int:
    return node.result.steps_done if node.result else node.phase.steps


def _scores(tree: Tree, node: Node | None) -> Json | None:
    if node is None:
        return None
    test = tree.test_scores.get(node.id)
    return {
        "node": node.id,
        "score": node.score,
        "se": node.result.score_se if node.result else None,
        "test_score": test.score if test else None,
        "test_se": test.se if test else None,
        "test_items": test.items if test else None,
    }


def _changes(parent: Node, node: Node) -> list[Json]:
    reasons = {c.field: c.reason for c in node.proposal.changes}
    return [
        {"field": name, "old": old, "new": new, "reason": reasons.get(name, "")}
        for name, old, new in phase_diff(parent, node)
    ]


def _changes_of(tree: Tree, node: Node) -> list[Json]:
    return _changes(tree.nodes[node.parent], node) if node.parent is not None else []


def _brief(tree: Tree, node: Node) -> Json:
    return {
        "id": node.id,
        "parent": node.parent,
        "status": node.status,
        "score": node.score,
        "changes": [{k: c[k] for k in ("field", "old", "new")} for c in _changes_of(tree, node)],
        "steps": _steps(node),
        "cost": to_json(node.result.cost) if node.result else None,
    }


def node_view(tree: Tree, node: NodeId, rows: Sequence[MetricRow] = (), calls: Calls = ()) -> Json:
    """Everything known of one node. `rows` give a running or failed phase its curve so far, `calls` are its own."""
    each = tree.nodes[node]
    result = each.result
    offset = sum(_steps(n) for n in path_to(tree, node)[:-1])
    return _object(
        {
            "id": each.id,
            "parent": each.parent,
            "children": list(each.children),
            "status": each.status,
            "depth": len(path_to(tree, node)) - 1,
            "selection": to_json(each.selection),
            "proposal": to_json(each.proposal),
            "changes": _changes_of(tree, each),
            "hyper": each.phase.hyper.flat(),
            "phase": {k: v for k, v in to_json(each.phase).items() if k not in ("id", "parent", "hyper")},
            "steps": _steps(each),
            "total_steps": offset + _steps(each),
            **(_scores(tree, each) or {}),
            "score_change": _score_change(tree, each),
            "by_subtask": dict(result.by_subtask) if result else {},
            "curve": [_point(p, offset) for p in _curve(each, rows)],
            "summaries": to_json(result.summaries) if result else {},
            "missing": dict(result.missing) if result else {},
            "verdict": to_json(each.verdict) if each.verdict else None,
            "failure": {"kind": result.failure, "message": result.message} if result and result.failure else None,
            "checkpoint": to_json(result.checkpoint) if result and result.checkpoint else None,
            "lost": each.lost,
            "resumable": each.resumable,
            "cost": to_json(result.cost) if result else None,
            "llm": ledger(calls) if calls else None,
        }
    )


def _curve(node: Node, rows: Sequence[MetricRow]) -> tuple[EvalPoint, ...]:
    return node.result.curve if node.result and node.result.curve else eval_points(rows)


def _point(point: EvalPoint, offset: int) -> Json:
    return {"step": point.step, "total_step": offset + point.step, "score": point.score, "se": point.se}


def _score_change(tree: Tree, node: Node) -> Json | None:
    return None if node.parent is None else difference(tree.nodes[node.parent], node)


def page_data(tree: Tree, rows: Mapping[NodeId, Sequence[MetricRow]], calls: Calls = ()) -> Json:
    """What the HTML page is drawn from; text is cleaned and cut, training curves are downsampled."""
    best, own = best_node(tree), calls_by_node(tree, calls)
    data = {
        **summary(tree, calls),
        "headline": headline(tree),
        "nodes": [_page_node(tree, n, rows.get(n, ()), own.get(n, ())) for n in tree.nodes],
        "best_path": [n.id for n in path_to(tree, best.id)] if best else [],
        "anytime": anytime(tree),
        "metrics": METRICS,
        "config": to_json(tree.config),
    }
    return _object(_clean_all(data))


def _page_node(tree: Tree, node: NodeId, rows: Sequence[MetricRow], calls: Calls) -> Json:
    series = {name: downsample(metric(rows, name)) for name in METRICS}
    return {**node_view(tree, node, rows, calls), "series": {k: v for k, v in series.items() if v}}


def anytime(tree: Tree) -> list[Json]:
    """Best score so far over worker seconds; nodes in the order they were proposed."""
    points: list[Json] = []
    used, best = 0.0, -math.inf
    for node in tree.nodes.values():
        if node.result is None:
            continue
        used += node.result.cost.wall_s
        counts = node.status == "finished" and node.score is not None and node.score > best
        best = node.score if counts and node.score is not None else best
        if math.isfinite(best):
            points.append({"node": node.id, "worker_s": used, "best": best, "improved": counts})
    return points


def downsample(points: Sequence[tuple[int, float]], limit: int = MAX_POINTS) -> list[tuple[int, float]]:
    """At most `limit` points: both ends, and the lowest and highest of each bucket, so that spikes stay visible."""
    if len(points) <= limit:
        return list(points)
    inner, buckets = points[1:-1], (limit - 2) // 2
    kept = [points[0]]
    for i in range(buckets):
        part = inner[i * len(inner) // buckets : (i + 1) * len(inner) // buckets]
        kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return [*kept, points[-1]]


def _object(value: Json) -> Json:
    return {k: _plain(v) for k, v in value.items()}


def _clean_all(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value, MAX_TEXT)
    if isinstance(value, Mapping):
        return {clean(str(k), 200): _clean_all(v) for k, v in value.items()}
    return [_clean_all(v) for v in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value
