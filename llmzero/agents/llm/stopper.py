"""The early stopper that asks a language model, alone or together with the rule."""

from __future__ import annotations

from collections.abc import Sequence

from llmzero.agents.llm.prompt import Briefing, fenced, score_words
from llmzero.agents.llm.proposer import repair_turn
from llmzero.agents.llm.replies import Misfit, parse_verdict, verdict_schema
from llmzero.agents.plots import overlay_png
from llmzero.agents.stopping import RuleStopper, level_at
from llmzero.domain.config import StopConfig
from llmzero.domain.events import Tree
from llmzero.domain.llm import ChatMessage, Image, Request, Text
from llmzero.domain.series import MetricRow
from llmzero.domain.strategy import best_node, total_steps
from llmzero.domain.types import EvalPoint, NodeId, Verdict
from llmzero.ports import LLM

REPAIRS = 1
MAX_POINTS = 12
"""Evaluations of the running phase shown as a table; the picture shows all."""


class AgentStopper:
    """`ports.EarlyStopper` over `ports.LLM`: asked after every evaluation past the grace period."""

    slow = True

    def __init__(self, llm: LLM, briefing: Briefing, config: StopConfig) -> None:
        self._llm = llm
        self._briefing = briefing
        self._config = config

    def judge(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        """The model's word; continue where it gives none that can be used, or there is nothing to compare with."""
        last = curve[-1] if curve else None
        at_step = last.step if last else 0
        steps = tree.nodes[node].phase.steps
        if last is None or at_step < self._config.grace_steps or at_step >= steps or best_node(tree) is None:
            return Verdict(action="continue", reason="nothing to decide yet", at_step=at_step)
        table, pictures = Text(comparison(tree, node, curve)), self._pictures(tree, node, curve)
        messages = (self._briefing.system("stopper"), ChatMessage("user", (table, *pictures)))
        return self._asked(node, messages, at_step)

    def _pictures(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint]) -> tuple[Image, ...]:
        if self._briefing.config.llm.images == "off":
            return ()
        return (Image(overlay_png(tree, node, curve), f"validation of {node} over the best completed strategy"),)

    def _asked(self, node: NodeId, messages: tuple[ChatMessage, ...], at_step: int) -> Verdict:
        calls: list[str] = []
        problem = ""
        for turn in range(1 + REPAIRS):
            purpose = "repair" if turn else "judge"
            request = Request(purpose=purpose, about=node, messages=messages, name="verdict", schema=verdict_schema())
            reply = self._llm.complete(request)
            calls.append(request.digest)
            if reply.error:
                problem = reply.error
                break
            found = parse_verdict(reply.text)
            if not isinstance(found, Misfit):
                action, reason = found
                return Verdict(action=action, reason=f"agent: {reason}", at_step=at_step, calls=tuple(calls))
            problem = found.problem
            messages = (*messages, *repair_turn(reply.text, found))
        return Verdict(
            action="continue", reason=f"agent gave no verdict: {problem}", at_step=at_step, calls=tuple(calls)
        )


class BothStopper:
    """Stops where the rule and the agent agree: the agent is asked only once the rule would stop."""

    slow = True

    def __init__(self, rule: RuleStopper, agent: AgentStopper) -> None:
        self._rule = rule
        self._agent = agent

    def judge(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        rule = self._rule.latest(tree, node, curve, rows)
        if rule.action == "continue":
            return rule
        agent = self._agent.judge(tree, node, curve, rows)
        reason = f"{rule.reason}; {agent.reason}"
        return Verdict(action=agent.action, reason=reason, at_step=rule.at_step, calls=agent.calls)


def comparison(tree: Tree, node: NodeId, curve: Sequence[EvalPoint]) -> str:
    """The running phase against the best strategy at equal total steps, as a table."""
    running, best = tree.nodes[node], best_node(tree)
    offset = total_steps(tree, running.parent) if running.parent else 0
    lines = [
        f"# Running phase {node}, started from {running.parent}",
        f"Its start scored {score_words(tree.nodes[running.parent])}." if running.parent else "",
        f"Best completed strategy: {best.id}, {total_steps(tree, best.id)} steps, score {score_words(best)}."
        if best
        else "",
        f"Planned end: step {running.phase.steps} of the phase, {offset + running.phase.steps} from the base.",
        f"Why it was proposed: <data>{fenced(running.proposal.rationale)}</data>",
        "",
        "| step of the phase | total steps | running | best strategy at these steps |",
        "|---|---|---|---|",
    ]
    for point in curve[-MAX_POINTS:]:
        level = level_at(tree, offset + point.step)
        other = f"{level.score:.3f} ± {level.se:.3f}" if level else "unknown"
        lines.append(f"| {point.step} | {offset + point.step} | {point.score:.3f} ± {point.se:.3f} | {other} |")
    return "\n".join(line for line in lines if line is not None)
