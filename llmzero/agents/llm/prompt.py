"""What the agents are told. The system message is the same for a whole run, so that prompt caches work; what changes
with the tree comes after it and is bounded: paths, siblings and notes are shown up to fixed numbers.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from llmzero.agents.cards import Card, cards_text
from llmzero.agents.evidence import Evidence, gain, noise, why_not
from llmzero.agents.rules import RULES
from llmzero.domain.config import RunConfig
from llmzero.domain.errors import UsageError
from llmzero.domain.events import Tree
from llmzero.domain.llm import ChatMessage, Image, Text
from llmzero.domain.series import METRICS
from llmzero.domain.space import Parameter
from llmzero.domain.strategy import best_node, path_to, phase_diff, running, total_steps
from llmzero.domain.types import ROOT, Node, PhaseResult, Scalar

MAX_STAGES = 8
"""Stages shown of a path; the middle of a longer one is left out and counted."""
MAX_BEST = 4
"""Stages shown of the best strategy, those of the parent's own path not counted."""
MAX_SIBLINGS = 6
MAX_CHANGES = 5
"""Changes shown of a stage; more are counted."""
MAX_LINE = 400
MAX_VALUES = 40
"""Present values shown: every hyperparameter of ours, and the latest of the trainer's own fields that were set."""
COLUMNS = {
    "first": "first",
    "last": "last",
    "mean": "mean",
    "low": "lowest",
    "high": "highest",
    "slope": "slope per step",
    "window_mean": "last quarter",
}
MAX_TASK = 2000
"""Characters of the task's own description."""

Show = Literal["both", "plots", "text"]
"""What a proposer sees of the parent's training; one of the two alone only where they are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Briefing:
    """What does not change during a run: templates, cards, the task in words."""

    config: RunConfig
    cards: tuple[Card, ...]
    task: str
    prompts: Path | None = None
    rendered: dict[str, str] = field(default_factory=dict)
    """Rendered system messages: a memo."""

    def system(self, name: str) -> ChatMessage:
        """The system message of an agent (`proposer`, `stopper`)."""
        if name not in self.rendered:
            self.rendered[name] = _fill(template(name, self.prompts), _values(self))
        return ChatMessage("system", (Text(self.rendered[name]),))


def template(name: str, folder: Path | None = None) -> str:
    """A template of the package, or a user's own in `folder`."""
    own = folder / f"{name}.md" if folder else None
    if own is not None and own.is_file():
        return own.read_text(encoding="utf-8")
    return importlib.resources.files("llmzero.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8")


def _fill(text: str, values: Mapping[str, str]) -> str:
    unknown = sorted(set(re.findall(r"\{\{(\w+)\}\}", text)) - set(values))
    if unknown:
        raise UsageError(f"prompt template: no value for {{{{{unknown[0]}}}}}; valid: {', '.join(sorted(values))}")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text)


def _values(briefing: Briefing) -> dict[str, str]:
    config = briefing.config
    parameters = [*config.space.names, "steps", "kl_anchor"]
    return {
        "task": fenced(briefing.task, MAX_TASK),
        "steps": str(config.steps),
        "kl_anchor": config.kl_anchor,
        "space": "\n".join(_space_line(p) for p in config.space.parameters),
        "pathologies": ", ".join(rule.name for rule in RULES),
        "metric_cards": cards_text(briefing.cards, list(METRICS)),
        "parameter_cards": cards_text(briefing.cards, parameters),
    }


def _space_line(parameter: Parameter) -> str:
    if parameter.kind == "choice":
        return f"- {parameter.name}: one of {', '.join(str(c) for c in parameter.choices)}"
    whole = f", multiple of {parameter.multiple_of}" if parameter.multiple_of > 1 else ""
    kind = {"log": "log scale", "linear": "linear", "int": "whole number"}[parameter.kind]
    return f"- {parameter.name}: {kind}, {parameter.low:g} to {parameter.high:g}{whole}"


def fenced(text: str, limit: int = MAX_LINE) -> str:
    """Foreign text for the inside of a data fence: it cannot close the fence, and it is cut to `limit` characters."""
    harmless = re.sub(r"<(\s*/?\s*data)", r"<\\\1", text, flags=re.IGNORECASE)
    printable = "".join(c if c.isprintable() or c == "\n" else " " for c in harmless)
    return printable if len(printable) <= limit else printable[: limit - 1] + "…"


# --- the proposer's question


def proposer_messages(
    briefing: Briefing, ev: Evidence, pictures: Sequence[Image], *, show: Show = "both"
) -> tuple[ChatMessage, ...]:
    """The whole conversation of a first try."""
    shown = () if show == "text" else tuple(pictures)
    return (briefing.system("proposer"), ChatMessage("user", (Text(situation(ev, tables=show != "plots")), *shown)))


def situation(ev: Evidence, *, tables: bool = True) -> str:
    """The tree as far as it matters for the node's next child; the parent's metrics in numbers only with `tables`."""
    tree = ev.tree
    blocks = [
        f"# The parent: {ev.node.id}",
        f"Budget: {_left(tree)} of {tree.config.nodes} phases left, {tree.config.steps} steps each.",
        _path_block(tree, ev.node),
        _parameters_block(ev),
        metrics_block(ev.result, ev) if tables else "",
        _siblings_block(ev),
        _best_block(tree, ev.node, best_node(tree)),
        f"Propose the phase that starts from {'the base model' if ev.node.id == ROOT else ev.node.id}.",
    ]
    return "\n\n".join(block for block in blocks if block)


def _left(tree: Tree) -> int:
    return max(0, tree.config.nodes - sum(n != ROOT for n in tree.nodes))


def _path_block(tree: Tree, node: Node) -> str:
    lines = [_stage_line(tree, each) for each in path_to(tree, node.id)]
    return f"## Path from the base to the parent ({total_steps(tree, node.id)} steps)\n" + _cut(lines, MAX_STAGES)


def _best_block(tree: Tree, node: Node, best: Node | None) -> str:
    """The best strategy from where it leaves the parent's path on; "" where the path ends in it."""
    if best is None or best.id == node.id:
        return ""
    own = {each.id for each in path_to(tree, node.id)}
    path = path_to(tree, best.id)
    shared = [each for each in path if each.id in own]
    lines = [_stage_line(tree, each) for each in path[len(shared) :]]
    head = f"## Best strategy so far: {best.id}, score {score_words(best)} ({total_steps(tree, best.id)} steps)\n"
    return head + "\n".join(filter(None, [f"- the path above up to {shared[-1].id}", _cut(lines, MAX_BEST)]))


def _cut(lines: Sequence[str], limit: int) -> str:
    """The lines; the middle of more than `limit` is left out and counted."""
    if len(lines) <= limit:
        return "\n".join(lines)
    left_out = f"- ... {len(lines) - limit} stages left out ..."
    return "\n".join([*lines[:2], left_out, *lines[-(limit - 2) :]])


def _stage_line(tree: Tree, node: Node) -> str:
    if node.parent is None:
        return f"- {node.id}: base model, score {score_words(node)}"
    changes = change_words(phase_diff(tree.nodes[node.parent], node))
    why = f"; seen: {fenced(node.proposal.pathology, 60)}" if node.proposal.pathology else ""
    return f"- {node.id} ({node.status}, score {score_words(node)}{_effect(tree, node)}): {changes}{why}"


def score_words(node: Node) -> str:
    if node.score is None:
        return "unknown"
    se = node.result.score_se if node.result else None
    return f"{node.score:.3f}" + (f" ± {se:.3f}" if se is not None else "")


def _effect(tree: Tree, node: Node) -> str:
    before = tree.nodes[node.parent].score if node.parent else None
    return f", {node.score - before:+.3f} against its parent" if node.score is not None and before is not None else ""


def change_words(changes: Sequence[tuple[str, Scalar, Scalar]], limit: int = MAX_CHANGES) -> str:
    shown = ", ".join(
        f"{fenced(name, 60)} {value_words(old)} -> {value_words(new)}" for name, old, new in changes[:limit]
    )
    more = f" and {len(changes) - limit} more" if len(changes) > limit else ""
    return (shown or "nothing changed") + more


def value_words(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else fenced(str(value), 40)


def _parameters_block(ev: Evidence) -> str:
    lines = [f"- {fenced(name, 60)}: {value_words(value)}" for name, value in ev.hyper.flat().items()]
    if len(lines) > MAX_VALUES:
        own = len(lines) - len(ev.hyper.extra)
        left_out = len(lines) - MAX_VALUES
        lines = [*lines[:own], f"- ... {left_out} further fields left out ...", *lines[own + left_out :]]
    other = [] if ev.node.id == ROOT else [f"- steps: {ev.node.phase.steps}", f"- kl_anchor: {ev.node.phase.kl_anchor}"]
    return "## Present values\n" + "\n".join([*lines, *other])


def metrics_block(result: PhaseResult, ev: Evidence) -> str:
    """Every metric's summary, the absent ones with the reason, and the validation curve."""
    if not result.summaries and not result.curve:
        return ""
    head = "## Metrics of the phase\n| metric | " + " | ".join([*COLUMNS.values(), "spikes"]) + " |"
    rows = []
    for name in METRICS:
        summary = result.summaries.get(name)
        if summary is None:
            rows.append(f"| {name} | absent: {fenced(why_not(ev, name) or 'not reported', 120)} |")
            continue
        cells = " | ".join(f"{getattr(summary, column):.3g}" for column in COLUMNS)
        rows.append(f"| {name} | {cells} | {summary.spikes} |")
    curve = ", ".join(f"step {p.step}: {p.score:.3f} ± {p.se:.3f}" for p in result.curve[-12:])
    tail = [f"Validation within the phase (fewer samples than the score): {curve}"] if curve else []
    change = gain(ev)
    if change is not None:
        tail.append(f"Score against the phase's own start: {change:+.3f} (standard error {noise(ev):.3f})")
    weak = [f"{fenced(k, 40)} {v:.2f}" for k, v in sorted(result.by_subtask.items())[:12]]
    tail += [f"Validation by subtask: {', '.join(weak)}"] if weak else []
    tail += [f"The phase failed: {fenced(result.message)}"] if result.failure else []
    return "\n".join([head, "|---|" + "---|" * 8, *rows, "", *tail])


def _siblings_block(ev: Evidence) -> str:
    """Children of the parent so far: what must not be proposed again, and what it did."""
    shown = ev.children[-MAX_SIBLINGS:]
    if not shown:
        return ""
    older = f" (the latest {len(shown)} of {len(ev.children)})" if len(shown) < len(ev.children) else ""
    lines = [_stage_line(ev.tree, each) for each in shown]
    still = sum(each.result is None for each in running(ev.tree))
    note = f"\n{still} phases are still running." if still else ""
    return f"## Already tried from here{older}\n" + "\n".join(lines) + note
