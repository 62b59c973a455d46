"""What the reading commands print: a run's tree, one node, the list of runs. Rich renderables, no I/O."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from llmzero.domain.events import Tree
from llmzero.domain.series import METRICS, MetricRow, eval_points, metric
from llmzero.domain.strategy import best_node, path_to, phase_diff
from llmzero.domain.types import Node, NodeId
from llmzero.report.ledger import Calls, ledger, ledger_text
from llmzero.report.outcome import difference
from llmzero.report.view import node_view
from llmzero.report.words import clean, duration, number, score_text, signed, sparkline, spoken, status_text, why

MARKS = {"finished": ("●", "green"), "stopped": ("■", "yellow"), "failed": ("✕", "red"), "running": ("▶", "cyan")}

Rows = Mapping[NodeId, Sequence[MetricRow]]


def line(text: str, style: str = "") -> Text:
    """One cell of text that came from anywhere: no markup, no control characters, cut rather than wrapped."""
    return Text(clean(text, 400), style=style, no_wrap=True, overflow="ellipsis")


def grid(*headers: str, wide: int = -1) -> Table:
    """A borderless table; the column `wide` takes what is left of the width."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=wide >= 0, header_style="dim")
    for i, header in enumerate(headers):
        table.add_column(header, no_wrap=True, overflow="ellipsis", ratio=1 if i == wide else None)
    return table


def tree_text(tree: Tree, live: Rows | None = None, limit: int | None = None) -> RenderableType:
    """The strategy tree, a line a node. More than `limit` lines keep the best path and the newest nodes."""
    best = best_node(tree)
    path = {n.id for n in path_to(tree, best.id)} if best else set()
    shown = _shown(tree, path, limit)
    table = grid("node", "score", "curve", "why and what changed", wide=3)
    for node, guide in _walk(tree, shown):
        rows = (live or {}).get(node.id, ())
        name = Text(guide, style="dim", no_wrap=True).append_text(_name(node, best, path))
        table.add_row(name, _score(node, rows), Text(_spark(node, rows), style="cyan"), _what(tree, node, rows))
    hidden = len(tree.nodes) - len(shown)
    if not tree.nodes:
        return Text("no node yet: the base model is measured first", style="dim")
    return Group(table, line(f"… and {hidden} more nodes (llmzero show)", "dim")) if hidden else table


def run_text(tree: Tree, calls: Calls = ()) -> RenderableType:
    """`llmzero show RUN`: the tree, and what the run's model calls took where there were any."""
    told = Text.assemble(("\nmodel calls  ", "dim"), ledger_text(ledger(calls)))
    return Group(tree_text(tree), told) if calls else tree_text(tree)


def _shown(tree: Tree, path: set[NodeId], limit: int | None) -> set[NodeId]:
    if limit is None or len(tree.nodes) <= limit:
        return set(tree.nodes)
    shown = set(path)
    newest = sorted(tree.nodes.values(), key=lambda n: (n.result is None, n.sequence), reverse=True)
    for node in newest:
        with_ancestors = shown | {n.id for n in path_to(tree, node.id)}
        if len(with_ancestors) <= limit:
            shown = with_ancestors
    return shown


def _walk(tree: Tree, shown: set[NodeId]) -> Iterable[tuple[Node, str]]:
    """Depth first, each node with the guide characters before it."""
    stack = [(n, "", "") for n in tree.nodes.values() if n.parent is None]
    while stack:
        node, guide, below = stack.pop()
        yield node, guide
        children = [c for c in node.children if c in shown]
        for i, child in reversed(list(enumerate(children))):
            last = i == len(children) - 1
            stack.append((tree.nodes[child], below + ("└ " if last else "├ "), below + ("  " if last else "│ ")))


def _name(node: Node, best: Node | None, path: set[NodeId]) -> Text:
    mark, colour = MARKS[node.status]
    text = Text(f"{mark} ", style=colour, no_wrap=True)
    text.append(clean(node.id, 12), style="bold" if node.id in path else "default")
    return text.append(" ★", style="yellow bold") if best and node.id == best.id else text


def _score(node: Node, rows: Sequence[MetricRow]) -> Text:
    points = eval_points(rows)
    if node.score is None and node.result is None and points:
        return line(score_text(points[-1].score, points[-1].se), "dim")
    return line(score_text(node.score, node.result.score_se if node.result else None))


def _spark(node: Node, rows: Sequence[MetricRow]) -> str:
    curve = node.result.curve if node.result else eval_points(rows)
    return sparkline([p.score for p in curve], 8) if len(curve) > 1 else ""


def _what(tree: Tree, node: Node, rows: Sequence[MetricRow]) -> Text:
    text = line("")
    if node.selection.kind == "fresh":
        text.append("fresh start ", style="magenta")
    if node.status != "finished":
        text.append(_state(node, rows) + " ", style=MARKS[node.status][1])
    if node.lost:
        text.append("weights lost ", style="red")
    if node.parent is None:
        return text.append("base model", style="dim")
    text.append(spoken(node.proposal.pathology), style="italic")
    return text.append(why(node, phase_diff(tree.nodes[node.parent], node))[len(spoken(node.proposal.pathology)) :])


def _state(node: Node, rows: Sequence[MetricRow]) -> str:
    if node.result is None and node.phase.steps:
        return f"step {max((r.step for r in rows), default=0)}/{node.phase.steps}"
    return status_text(node)


def stages_table(tree: Tree, node: NodeId) -> Table:
    """The strategy that ends in `node`: a row a stage, with its score, its gain and what it changed."""
    table = grid("stage", "node", "steps", "score", "gain")
    table.add_column("why and what changed", overflow="fold")
    path = path_to(tree, node)
    for i, (parent, each) in enumerate(itertools.pairwise(path), start=1):
        change = difference(parent, each)
        score = score_text(each.score, each.result.score_se if each.result else None)
        steps = str(each.result.steps_done if each.result else each.phase.steps)
        gain = Text(signed(change["difference"]) if change else "–", style="bold")
        table.add_row(str(i), line(each.id), steps, score, gain, Text(why(each, phase_diff(parent, each))))
    return table


def node_text(tree: Tree, node: NodeId, rows: Sequence[MetricRow] = (), calls: Calls = ()) -> RenderableType:
    """Everything about one node, for people; `calls` are its own model calls."""
    view = node_view(tree, node, rows, calls)
    each = tree.nodes[node]
    parts: list[RenderableType] = [_facts(each, view), Text("")]
    if view["changes"]:
        parts += [_changes_table(view["changes"], view["parent"]), Text("")]
    if view["curve"]:
        curve = sparkline([p["score"] for p in view["curve"]], 40)
        parts.append(Text.assemble(("validation ", "dim"), (curve, "cyan"), f"  {_ends(view['curve'])}"))
    if each.result and each.result.summaries:
        parts.append(_metrics_table(each))
    elif rows:
        parts.append(_live_metrics(rows))
    return Group(*parts)


def _facts(node: Node, view: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    mark, colour = MARKS[node.status]
    table.add_row("node", Text(f"{clean(node.id)}  {mark} {status_text(node)}", style=colour))
    for name, text in _fact_rows(node, view):
        if text:
            table.add_row(name, Text(clean(text, 1200)))
    return table


def _fact_rows(node: Node, view: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    change, proposal, result = view["score_change"], node.proposal, node.result
    yield "score", score_text(node.score, view["se"])
    if change:
        yield "against parent", f"{signed(change['difference'])} ({signed(change['low'])} to {signed(change['high'])})"
    yield "test", score_text(view["test_score"], view["test_se"]) if view["test_score"] is not None else ""
    yield "selected", f"{node.selection.kind}: {node.selection.reason}"
    yield "diagnosis", ": ".join(filter(None, (spoken(proposal.pathology), proposal.diagnosis)))
    yield "evidence", "; ".join(proposal.evidence)
    yield "basis", proposal.basis
    yield "rationale", proposal.rationale
    yield "expected", proposal.expected
    yield "proposer", " · ".join(filter(None, (proposal.proposer, *proposal.notes)))
    yield "stopped", node.verdict.reason if node.verdict else ""
    yield "failure", f"{result.failure}: {result.message}" if result and result.failure else ""
    yield "weights lost", node.lost
    yield "steps", f"{view['steps']} of {node.phase.steps}, {view['total_steps']} from the base"
    yield "time", duration(result.cost.wall_s) if result else ""
    yield "model calls", ledger_text(view["llm"]) if view["llm"] else ""
    checkpoint = result.checkpoint if result else None
    yield "checkpoint", f"{checkpoint.path} (step {checkpoint.step})" if checkpoint else ""


def _changes_table(changes: Sequence[Mapping[str, Any]], parent: str) -> Table:
    table = grid("changed", f"from {clean(parent, 12)}", "to", "reason", wide=3)
    for change in changes:
        new = Text(number(change["new"]), style="bold")
        table.add_row(line(change["field"]), number(change["old"]), new, line(change["reason"]))
    return table


def _metrics_table(node: Node) -> Table:
    table = grid("metric", "first", "last", "lowest", "highest", "slope per step", "spikes")
    for name, s in (node.result.summaries if node.result else {}).items():
        values = (s.first, s.last, s.low, s.high, s.slope)
        table.add_row(line(name), *(number(v) for v in values), str(s.spikes) if s.spikes else "")
    return table


def _live_metrics(rows: Sequence[MetricRow]) -> Table:
    table = grid("metric", "last", "curve")
    for name in METRICS:
        values = [v for _, v in metric(rows, name)]
        if values:
            table.add_row(name, number(values[-1]), Text(sparkline(values, 24), style="cyan"))
    return table


def _ends(curve: Sequence[Mapping[str, Any]]) -> str:
    return f"{number(curve[0]['score'])} → {number(curve[-1]['score'])}"


def runs_table(summaries: Sequence[Mapping[str, Any]]) -> RenderableType:
    """`llmzero ls`: a line for each `view.summary`, with a `state` where it is known. A run's name tells its task."""
    if not summaries:
        return Text("no runs here yet: llmzero search starts one")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for header in ("run", "model", "phases", "base", "best", "test", "time", "state"):
        table.add_column(header, no_wrap=header != "model")
    for each in summaries:
        if "error" in each:
            table.add_row(line(clean(each["run"], 40), "bold"), line(each["error"], "red"))
            continue
        base, best = each["base"] or {}, each["best"] or {}
        scores = (base.get("score"), best.get("score"), best.get("test_score"))
        table.add_row(
            line(clean(each["run"], 40), "bold"),
            line(each["model"]),
            str(max(0, len(each["nodes"]) - 1)),
            *(score_text(s, None) for s in scores),
            duration(each["cost"]["wall_s"]),
            line(each.get("state", "ended" if each["ended"] else "open"), "dim"),
        )
    return table


def check_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The policies of a task check: mean reward against its bound, the benchmark's own score beside it."""
    table = grid("policy", "kind", "split", "items", "reward", "bound", "official", "", wide=0)
    for row in rows:
        sign = "≥" if row["kind"] == "oracle" else "≤"
        held = line("ok", "green") if row["ok"] else line("BROKEN", "red bold")
        official = "" if row["official"] is None else number(row["official"])
        cells = (row["policy"], row["kind"], row["split"], str(row["n"]), number(row["mean_reward"]))
        table.add_row(*map(line, cells), line(f"{sign} {number(row['bound'])}"), line(official), held)
    return table


def facts_table(facts: Mapping[str, Any]) -> RenderableType:
    """Names and values; nested values in one line."""
    table = grid("", "", wide=1)
    for name, value in facts.items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
        table.add_row(line(spoken(name), "dim"), Text(clean(text, 2000)))
    return table
