"""The search as it happens: a live tree on a terminal, plain lines anywhere else; and the final words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from llmzero.domain.events import Tree
from llmzero.domain.series import eval_points
from llmzero.domain.strategy import best_node, phase_diff
from llmzero.domain.types import ROOT, Node, NodeId
from llmzero.report.ledger import Calls, ledger, ledger_text
from llmzero.report.outcome import difference, headline
from llmzero.report.tables import Rows, line, node_text, runs_table, stages_table, tree_text
from llmzero.report.view import total_cost
from llmzero.report.words import clean, duration, score_text, signed, status_text, why

__all__ = ["TerminalView", "node_text", "print_final", "runs_table", "tree_text"]


REDRAW_S = 0.5
"""The display is drawn anew this often while nothing is decided: drawing takes time from the workers."""


class TerminalView:
    """`ports.Observer`: redraws a live tree where the console is a terminal, prints a line an event elsewhere.

    A context manager; leaving it puts the terminal back. The display starts with the first `changed`.
    """

    def __init__(self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._started_s = clock()
        self._seen = Tree()
        self._steps: dict[NodeId, int] = {}
        self._live: Live | None = None
        self._drawn_s = -math.inf

    def __enter__(self) -> TerminalView:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.close()

    def changed(self, tree: Tree, live: Rows) -> None:
        """Show what is new; a display that went away (a closed pipe, a full disk) never ends a search."""
        with suppress(OSError, ValueError):
            self._show(tree, live)

    def _show(self, tree: Tree, live: Rows) -> None:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            if tree is not self._seen or self._clock() - self._drawn_s >= REDRAW_S:
                self._draw(tree, live)
                self._seen, self._drawn_s = tree, self._clock()
            return
        for text in (*news(self._seen, tree), *self._evaluations(tree, live)):
            print(text, file=self._console.file, flush=True)
        self._seen = tree

    def close(self) -> None:
        """End the live display, leaving its last frame."""
        if self._live:
            with suppress(OSError, ValueError):
                self._live.stop()
            self._live = None

    def _draw(self, tree: Tree, live: Rows) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
            self._live.start()
        frame = screen(tree, live, elapsed_s=self._clock() - self._started_s, height=self._console.height)
        self._live.update(frame, refresh=True)

    def _evaluations(self, tree: Tree, live: Rows) -> Iterator[str]:
        for node, rows in live.items():
            steps = tree.nodes[node].phase.steps if node in tree.nodes else 0
            for point in eval_points(rows) if steps else ():
                if point.step > self._steps.get(node, -1):
                    self._steps[node] = point.step
                    yield f"{clean(node, 12)} step {point.step}/{steps}: {score_text(point.score, point.se)}"


def screen(tree: Tree, live: Rows, *, elapsed_s: float, height: int) -> RenderableType:
    """One frame of the live display, at most `height` lines."""
    title = Text("LLMZero ", style="bold", no_wrap=True, overflow="ellipsis")
    title.append(clean(f"{tree.run}  {clean(tree.config.task, 40)} · {clean(tree.config.model, 40)}", 160))
    lines = tree_text(tree, live, limit=max(4, height - 6))
    return Group(title, Text(""), lines, Text(""), line(progress(tree, live, elapsed_s), "dim"))


def progress(tree: Tree, live: Rows, elapsed_s: float) -> str:
    """Budget used, time elapsed and, once a phase has ended, an estimate of the time left."""
    used_h = total_cost(tree).wall_s / 3600
    trained = sum(1 for n in tree.nodes.values() if n.id != ROOT)
    parts = [f"{trained}/{tree.config.nodes} nodes"]
    if tree.config.hours:
        parts.append(f"{used_h:.2f}/{tree.config.hours:g} worker hours")
    parts.append(f"{duration(elapsed_s)} elapsed")
    left = time_left_s(tree, live)
    if tree.ended:
        parts.append(f"ended: {clean(tree.ended, 80)}")
    elif left is not None:
        parts.append(f"about {duration(left)} left")
    return " · ".join(parts)


def time_left_s(tree: Tree, live: Rows) -> float | None:
    """Mean phase time times the phases to go, over the workers; never beyond the hours left. None before a phase."""
    phases = [n for n in tree.nodes.values() if n.id != ROOT]
    times = [n.result.cost.wall_s for n in phases if n.result]
    if not times:
        return None
    to_go = tree.config.nodes - len(phases) + sum(_share_left(n, live) for n in phases if n.result is None)
    left = math.fsum(times) / len(times) * max(0.0, to_go) / max(1, tree.config.workers)
    hours_s = 3600 * tree.config.hours - total_cost(tree).wall_s
    return min(left, max(0.0, hours_s)) if tree.config.hours else left


def _share_left(node: Node, live: Rows) -> float:
    done = max((r.step for r in live.get(node.id, ())), default=0)
    return 1 - min(1.0, done / node.phase.steps) if node.phase.steps else 0.0


def news(before: Tree, after: Tree) -> Iterator[str]:
    """What happened between two states of the tree, a plain line each, without control codes."""
    if after.run and not before.run:
        yield f"run {clean(after.run, 80)}: {clean(after.config.task, 40)}, {clean(after.config.model, 80)}"
    for node in after.nodes.values():
        old = before.nodes.get(node.id)
        if old is None:
            yield _began(after, node)
        if node.verdict and (old is None or old.verdict is None):
            yield f"{clean(node.id, 12)} stopping at step {node.verdict.at_step}: {clean(node.verdict.reason, 300)}"
        if node.result and (old is None or old.result is None):
            yield _ended(after, node)
        if node.lost and (old is None or not old.lost):
            yield f"{clean(node.id, 12)} weights lost: {clean(node.lost, 300)}"
    for scored, test in after.test_scores.items():
        if scored not in before.test_scores:
            yield f"{clean(scored, 12)} held-out test: {score_text(test.score, test.se)} on {test.items} items"
    if after.ended and not before.ended:
        yield f"search ended: {clean(after.ended, 300)}"


def _began(tree: Tree, node: Node) -> str:
    if node.parent is None:
        return f"{clean(node.id, 12)} measuring the base model"
    fresh = "fresh start " if node.selection.kind == "fresh" else ""
    text = why(node, phase_diff(tree.nodes[node.parent], node))
    return f"{clean(node.id, 12)} {fresh}from {clean(node.parent, 12)}: {text}"


def _ended(tree: Tree, node: Node) -> str:
    result = node.result
    text = f"{clean(node.id, 12)} {status_text(node)}"
    if result and result.failure:
        return f"{text}: {clean(result.message, 300)}"
    text += f": {score_text(node.score, result.score_se if result else None)}"
    change = difference(tree.nodes[node.parent], node) if node.parent else None
    text += f" ({signed(change['difference'])} against {clean(node.parent or '', 12)})" if change else ""
    best = best_node(tree)
    star = ", best so far" if node.parent and best and best.id == node.id else ""
    return f"{text} in {duration(result.cost.wall_s if result else 0)}{star}"


def print_final(
    tree: Tree, console: Console, next_commands: Sequence[str], report_path: Path | str, calls: Calls = ()
) -> None:
    """The result of a search: both scores with intervals, the stages, what the run's model `calls` took, where the
    report is, what to do next."""
    outcome, best = headline(tree), best_node(tree)
    console.print()
    if outcome["validation"] is None:
        console.print(Text(outcome["text"], style="bold"))
    else:
        console.print(_scores_table(outcome))
        if best:
            console.print(Text(f"\nBest strategy, {clean(best.id, 12)}", style="bold"))
            console.print(stages_table(tree, best.id))
    if calls:
        console.print(Text.assemble(("\nModel  ", "bold"), ledger_text(ledger(calls))), soft_wrap=True)
    console.print(Text.assemble(("\nReport ", "bold"), str(report_path)), soft_wrap=True)
    for i, command in enumerate(next_commands):
        console.print(Text.assemble(("Next   " if i == 0 else "       ", "bold"), command), soft_wrap=True)


def _scores_table(outcome: dict[str, dict[str, float] | None]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for header in ("", "base", "best", "difference (95% interval)"):
        table.add_column(header)
    for name, key in (("validation", "validation"), ("held-out test", "test")):
        change = outcome[key]
        if change is None:
            table.add_row(name, "–", "–", Text("not read yet", style="dim"))
            continue
        table.add_row(Text(name, style="bold"), _pm(change, "from"), _pm(change, "to"), _interval(change))
    return table


def _interval(change: dict[str, float]) -> str:
    return f"{signed(change['difference'])} ({signed(change['low'])} to {signed(change['high'])})"


def _pm(change: dict[str, float], end: str) -> str:
    return score_text(change[end], change.get(f"{end}_se"))
