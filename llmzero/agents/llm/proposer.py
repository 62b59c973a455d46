"""The proposer that asks a language model, shows it what is wrong with its reply, and falls back to the playbook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from llmzero.agents.evidence import Evidence, evidence_of
from llmzero.agents.llm.prompt import Briefing, Show, fenced, proposer_messages
from llmzero.agents.llm.replies import ExtraCheck, Misfit, parse_proposal, proposal_schema
from llmzero.agents.playbook import PlaybookProposer
from llmzero.agents.plots import path_png
from llmzero.domain.events import Tree
from llmzero.domain.llm import ChatMessage, Image, Request, Text
from llmzero.domain.series import MetricRow
from llmzero.domain.space import SearchSpace
from llmzero.domain.types import ROOT, NodeId, Proposal
from llmzero.ports import LLM

REPAIRS = 2
"""Turns a model gets to mend a reply that cannot be used."""

MAX_REPLY, MAX_REPAIR = 4000, 600
"""Characters of a reply that is shown again, and at most of what is said about it."""

RowsOf = Callable[[NodeId], Sequence[MetricRow]]


class LLMProposer:
    """`ports.Proposer` over `ports.LLM`: a pure function of the tree, given the model's replies (they are recorded)."""

    name = "llm"

    def __init__(
        self,
        llm: LLM,
        briefing: Briefing,
        rows_of: RowsOf,
        *,
        check_extra: ExtraCheck,
        seed: int,
        show: Show = "both",
    ) -> None:
        self._llm = llm
        self._briefing = briefing
        self._rows_of = rows_of
        self._check_extra = check_extra
        self._show: Show = show
        self._fallback = PlaybookProposer(seed)

    def propose(self, tree: Tree, parent: NodeId, space: SearchSpace) -> Proposal:
        """The model's proposal; the playbook's, with a note that says why, when no reply can be used."""
        ev = evidence_of(tree, parent, space)
        messages = proposer_messages(self._briefing, ev, self._pictures(ev), show=self._show)
        calls: list[str] = []
        notes: list[str] = []
        problem = ""
        for turn in range(1 + REPAIRS):
            purpose = "repair" if turn else "propose"
            request = Request(
                purpose=purpose, about=parent, messages=messages, name="proposal", schema=proposal_schema()
            )
            reply = self._llm.complete(request)
            calls.append(request.digest)
            notes += [note for note in reply.notes if note not in notes]
            if reply.error:
                problem = reply.error
                break
            found = parse_proposal(reply.text, ev, self._check_extra)
            if isinstance(found, Proposal):
                repaired = (f"repaired in {turn} {'turn' if turn == 1 else 'turns'}",) if turn else ()
                return replace(found, notes=(*found.notes, *notes, *repaired), calls=tuple(calls))
            problem = found.problem
            messages = (*messages, *repair_turn(reply.text, found))
        told = self._fallback.propose(tree, parent, space)
        return replace(told, notes=(*told.notes, *notes, f"fallback: {problem}"), calls=tuple(calls))

    def _pictures(self, ev: Evidence) -> tuple[Image, ...]:
        untrained = ev.node.id == ROOT and not ev.node.children
        if untrained or self._briefing.config.llm.images == "off":
            return ()
        return (Image(path_png(ev.tree, ev.node.id, self._rows_of), f"training of the path to {ev.node.id}"),)


def repair_turn(text: str, misfit: Misfit) -> tuple[ChatMessage, ChatMessage]:
    """What follows a reply that cannot be used: the reply, and what is wrong with it."""
    asked = f"That reply cannot be used: {fenced(misfit.problem)}. Answer again, the whole JSON object."
    return ChatMessage("assistant", (Text(text[:MAX_REPLY]),)), ChatMessage("user", (Text(asked),))
