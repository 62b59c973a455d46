"""What the skill agent is told: how the search stands, a phase's numbers, what a running phase did, how one ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llmzero.agents.evidence import evidence_of
from llmzero.agents.llm.prompt import change_words, fenced, metrics_block, score_words, value_words
from llmzero.agents.stopping import level_at
from llmzero.domain.events import Tree
from llmzero.domain.series import METRICS, MetricRow, summarise
from llmzero.domain.strategy import best_node, phase_diff, total_steps
from llmzero.domain.types import ROOT, EvalPoint, Node, NodeId, PhaseResult, Status

Running = tuple[Sequence[MetricRow], Sequence[EvalPoint]]
"""The metric rows and the validation curve of a running phase so far."""

NEXT = "Decide on the next phase: read and look at what you need, then launch_phase; or finish."
WATCH = "Call keep_training or stop_phase; you may read its metrics or look at its plot first."
CALL_A_TOOL = "That was no tool call. Call one of: {names}."


def opening_text(tree: Tree) -> str:
    """The first message: the budget, the base and its values."""
    base = tree.nodes[ROOT]
    return "\n".join(
        [
            f"The search begins. {budget_text(tree)}",
            f"The base model {ROOT} scores {score_words(base)} on validation.",
            f"Its values: {values_text(base)}.",
            "Decide on the first phase: launch_phase from n0.",
        ]
    )


def budget_text(tree: Tree) -> str:
    config = tree.config
    left = max(0, config.nodes - sum(n != ROOT for n in tree.nodes))
    used = sum(n.result.cost.wall_s for n in tree.nodes.values() if n.result) / 3600
    hours = f", {used:.2f} of {config.hours:g} worker hours used" if config.hours else ""
    return f"Budget: {left} of {config.nodes} phases left, usually {config.steps} steps each{hours}."


def values_text(node: Node) -> str:
    flat = {**node.phase.hyper.flat(), "kl_anchor": node.phase.kl_anchor}
    return ", ".join(f"{fenced(name, 60)} {value_words(value)}" for name, value in flat.items())


def metrics_text(tree: Tree, node: NodeId, names: Sequence[str], running: Running | None) -> str:
    """A phase's values and all its metrics, or the table of the named ones alone.

    Of a running phase nothing that depends on the machine's speed is shown: trained again after a crash, it is asked
    about in the same words.
    """
    shown = _so_far(tree.nodes[node], *running) if running else tree.nodes[node]
    tree = replace(tree, nodes={**tree.nodes, node: shown})
    ev = evidence_of(tree, node, tree.config.space)
    block = metrics_block(ev.result, ev) or f"{node} has no metrics."
    wanted = set(names or METRICS) - ({"step_time_s"} if running else set())
    left_out = tuple(f"| {name} |" for name in METRICS if name not in wanted)
    table = "\n".join(line for line in block.splitlines() if not line.startswith(left_out))
    if names:
        return table
    state = f"running, step {ev.result.steps_done} of {shown.phase.steps}" if running else _status(shown)
    return f"# {node} ({state})\nValues: {values_text(shown)}.\n\n{table}"


def _so_far(node: Node, rows: Sequence[MetricRow], curve: Sequence[EvalPoint]) -> Node:
    """A running phase as if it had ended here, without a score."""
    steps = max((row.step for row in rows), default=0)
    result = PhaseResult(status=Status.FINISHED, steps_done=steps, summaries=summarise(rows), curve=tuple(curve))
    return replace(node, result=result)


def _status(node: Node) -> str:
    return "base model" if node.id == ROOT else f"{node.status}, score {score_words(node)}, from {node.parent}"


def launched_text(tree: Tree, node: Node) -> str:
    """What was launched, as it runs: clamped and settled values included."""
    changes = change_words(phase_diff(tree.nodes[node.parent or ROOT], node), limit=20)
    notes = "".join(f" Note: {fenced(note, 200)}." for note in node.proposal.notes if not note.startswith("fallback"))
    if node.proposal.proposer == "skill":
        return f"{node.id} was started from {node.parent}: {changes}.{notes}"
    why = f"{node.proposal.diagnosis} {node.proposal.rationale}"
    return f"You launched no phase, so the playbook started {node.id} from {node.parent}: {changes}. {why}{notes}"


def check_in_text(tree: Tree, node: Node, points: Sequence[EvalPoint]) -> str:
    """The evaluations of a running phase since the last check-in, against the best strategy at equal total steps."""
    offset = total_steps(tree, node.parent) if node.parent else 0
    lines = [
        f"{node.id} is running, step {points[-1].step} of {node.phase.steps}. Validation:",
        "| step of the phase | total steps | running | best strategy at these steps |",
        "|---|---|---|---|",
    ]
    for point in points:
        level = level_at(tree, offset + point.step)
        other = f"{level.score:.3f} ± {level.se:.3f}" if level else "unknown"
        lines.append(f"| {point.step} | {offset + point.step} | {point.score:.3f} ± {point.se:.3f} | {other} |")
    return "\n".join([*lines, WATCH])


def ended_text(tree: Tree, node: Node) -> str:
    """How a phase ended, the best strategy, the budget left."""
    result = node.result or PhaseResult(status=Status.FAILED)
    parent, best = tree.nodes[node.parent or ROOT], best_node(tree)
    text = f"{node.id} {result.status} at step {result.steps_done} of {node.phase.steps}: score {score_words(node)}"
    if node.score is not None and parent.score is not None:
        text += f", {node.score - parent.score:+.3f} against its start {parent.id} ({score_words(parent)})"
    if result.failure:
        text += f". It failed ({result.failure}): <data>{fenced(result.message)}</data>"
    leader = f"Best so far: {best.id}, {score_words(best)}, {total_steps(tree, best.id)} steps. " if best else ""
    return f"{text}.\n{leader}{budget_text(tree)}\n{NEXT}"
