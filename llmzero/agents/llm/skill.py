"""The skill agent: one growing conversation with tools that chooses parents, launches phases and ends them.

It is the autonomous alternative the fixed workflow (`proposer`, `stopper`) is compared with. The conversation is no
state: it is derived from the tree, the metric rows and the model's replies, which are on record; a memo keeps what was
derived as long as its inputs are the same. See docs/design/skill_agent.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from llmzero.agents.llm.prompt import Briefing
from llmzero.agents.llm.proposer import RowsOf
from llmzero.agents.llm.replies import ExtraCheck
from llmzero.agents.llm.skill_talk import Talk, answered, begin, news, opened, said, shown
from llmzero.agents.llm.skill_text import CALL_A_TOOL, check_in_text, ended_text, launched_text, opening_text
from llmzero.agents.llm.skill_tools import Act, Desk, carried_out, tool_specs
from llmzero.agents.playbook import PlaybookProposer
from llmzero.domain.errors import did_you_mean
from llmzero.domain.events import Tree
from llmzero.domain.llm import Image, Reply, Request
from llmzero.domain.series import MetricRow, eval_points
from llmzero.domain.space import SearchSpace
from llmzero.domain.types import ROOT, EvalPoint, Node, NodeId, Proposal, Selection, Verdict
from llmzero.ports import LLM

MAX_TURNS = 12
"""Model calls of a decision on the next phase; then the playbook decides."""
MAX_WATCH_TURNS = 4
"""Model calls of a check-in on a running phase; then it goes on."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a few turns came to: the conversation after them and the act, or why there is none."""

    talk: Talk
    act: Act | None = None
    problem: str = ""
    calls: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class SkillAgent:
    """`ports.SelfDirected` over `ports.LLM`; with `check_ins` it is asked about running phases too (SkillStopper)."""

    name = "skill"

    def __init__(
        self, llm: LLM, briefing: Briefing, rows_of: RowsOf, *, check_extra: ExtraCheck, seed: int, check_ins: bool
    ) -> None:
        self._llm = llm
        self._briefing = briefing
        self._rows_of = rows_of
        self._check_extra = check_extra
        self._check_ins = check_ins
        self._fallback = PlaybookProposer(seed)
        self._tools = tool_specs(check_ins=check_ins, pictures=briefing.config.llm.images == "auto")
        self._memo: dict[tuple[str, int, int], tuple[Any, Any]] = {}

    def ended(self, tree: Tree) -> str:
        act = self._decision(tree).act
        return f"the agent ended the search: {act.reason}" if act and act.kind == "finish" else ""

    def select(self, tree: Tree) -> Selection | None:
        """The parent the agent launched from; UCT's where it launched nothing."""
        act = self._decision(tree).act
        launched = act is not None and act.kind == "launch_phase"
        return Selection(parent=act.parent, kind="agent", reason=act.reason) if act and launched else None

    def propose(self, tree: Tree, parent: NodeId, space: SearchSpace) -> Proposal:
        """The phase the agent launched from `parent`; the playbook's, with a note that says why, otherwise."""
        found = self._decision(tree)
        act, problem = found.act, found.problem
        if act and act.proposal and act.parent == parent:
            return replace(act.proposal, notes=(*act.proposal.notes, *found.notes), calls=found.calls)
        if act:
            problem = f"the agent would {act.kind} from {act.parent}" if act.proposal else f"the agent would {act.kind}"
        told = self._fallback.propose(tree, parent, space)
        return replace(told, notes=(*told.notes, *found.notes, f"fallback: {problem}"), calls=found.calls)

    def check_in(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        """The agent's word on a running phase after the last evaluation of `curve`."""
        shown_node = tree.nodes[node]
        talk = self._decided(tree, self._before(tree, shown_node.sequence), shown_node.sequence).talk
        verdict = Verdict(action="continue", reason="nothing to decide yet", at_step=curve[-1].step if curve else 0)
        for found in self._watched(tree, talk, shown_node, curve, rows):
            if found.verdict.at_step == verdict.at_step or found.verdict.action == "stop":
                return found.verdict
        return verdict

    # --- the conversation, derived from its beginning

    def _decision(self, tree: Tree) -> Outcome:
        number = len(tree.nodes)
        return self._decided(tree, self._before(tree, number), number)

    def _before(self, tree: Tree, number: int) -> Talk:
        """The conversation before the decision on phase `number`."""
        base = tree.nodes[ROOT]
        inputs = (replace(base, children=(), lost=""), tree.config)
        talk = self._once(("begin", 0, 0), inputs, lambda: self._begun(at(tree, 1)))
        for node in sorted(tree.nodes.values(), key=lambda n: n.sequence):
            if 0 < node.sequence < number:
                talk = self._lived(tree, talk, node)
        return talk

    def _begun(self, tree: Tree) -> Talk:
        return begin(self._briefing.system("skill"), opening_text(tree))

    def _lived(self, tree: Tree, talk: Talk, node: Node) -> Talk:
        """The conversation after a phase that ended: the decision on it, the check-ins, its outcome."""
        talk, told = self._decided(tree, talk, node.sequence).talk, False
        rows = self._rows_of(node.id) if self._check_ins else ()
        for found in self._watched(tree, talk, node, eval_points(rows), rows):
            talk, told = found.talk, True
        then = at(tree, node.sequence + 1)
        text = ended_text(then, then.nodes[node.id])
        return self._once(
            ("ended", node.sequence, 0),
            (talk, text),
            lambda: news(talk, text if told else f"{launched_text(then, node)}\n{text}"),
        )

    def _decided(self, tree: Tree, talk: Talk, number: int) -> Outcome:
        """The turns that decide on phase `number`."""
        then = at(tree, number)
        made = next((n.proposal.calls for n in tree.nodes.values() if n.sequence == number and _own(n)), ())
        lost = {n.id: n.lost for n in tree.nodes.values() if n.lost and n.sequence < number}
        desk = Desk(
            tree=then,
            rows_of=self._rows_of,
            check_extra=self._check_extra,
            may_start=lambda parent, calls: _why_not_from(then, parent, "" if calls == made else lost.get(parent, "")),
        )
        inputs = (talk, tuple(then.nodes.values()), (lost, made) if lost else ())
        ask = functools.partial(self._turns, talk, desk, purpose="propose", about=f"n{number}", limit=MAX_TURNS)
        return self._once(("decided", number, 0), inputs, ask)

    def _watched(
        self, tree: Tree, talk: Talk, node: Node, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]
    ) -> Iterator[_Watched]:
        """The check-ins on a phase, after each evaluation past the grace period, until one stops it."""
        running = replace(node, result=None, verdict=None, lost="", children=())
        then = at(tree, node.sequence)
        then = replace(then, nodes={**then.nodes, node.id: running})
        last = 0
        for count, point in enumerate(curve, start=1):
            if not self._briefing.config.stop.grace_steps <= point.step < node.phase.steps:
                continue
            text = check_in_text(then, running, curve[last:count])
            talk = news(talk, text if last else f"{launched_text(then, running)}\n{text}")
            so_far = (tuple(row for row in rows if row.step <= point.step), tuple(curve[:count]))
            ask = functools.partial(self._checked, then, talk, node.id, *so_far)
            found = self._once(("watched", node.sequence, count), (talk, so_far), ask)
            yield found
            if found.verdict.action == "stop":
                return
            talk, last = found.talk, count

    def _checked(
        self, tree: Tree, talk: Talk, node: NodeId, rows: tuple[MetricRow, ...], curve: tuple[EvalPoint, ...]
    ) -> _Watched:
        """One check-in, its news told already: the agent's turns, the verdict."""
        desk = Desk(
            tree=tree,
            rows_of=lambda n: rows if n == node else self._rows_of(n),
            check_extra=self._check_extra,
            may_start=lambda parent, calls: "no phase may start now",
            running=node,
            curve=curve,
        )
        found = self._turns(talk, desk, purpose="judge", about=node, limit=MAX_WATCH_TURNS)
        stop = found.act is not None and found.act.kind == "stop_phase"
        reason = f"agent: {found.act.reason}" if found.act else f"agent gave no verdict: {found.problem}"
        verdict = Verdict(
            action="stop" if stop else "continue", reason=reason, at_step=curve[-1].step, calls=found.calls
        )
        return _Watched(found.talk, verdict)

    def _turns(self, talk: Talk, desk: Desk, *, purpose: str, about: str, limit: int) -> Outcome:
        """Asks until the agent acts, the endpoint fails, or the turns are used up."""
        calls: tuple[str, ...] = ()
        notes: tuple[str, ...] = ()
        for _ in range(limit):
            request = Request(purpose=purpose, about=about, messages=talk.messages, name="act", tools=self._tools)
            reply = self._llm.complete(request)
            calls = (*calls, request.digest)
            notes = (*notes, *(note for note in reply.notes if note not in notes))
            if reply.error:
                return Outcome(talk=talk, problem=reply.error, calls=calls, notes=notes)
            talk, act = _turn(talk, reply, desk, calls)
            if act:
                return Outcome(talk=talk, act=act, calls=calls, notes=notes)
        return Outcome(talk=talk, problem=f"no {desk.acts[0]} in {limit} turns", calls=calls, notes=notes)

    def _once(self, name: tuple[str, int, int], inputs: Any, compute: Callable[[], T]) -> T:
        """The kept result where the inputs are what they were, else a new one: a memo, never state."""
        kept = self._memo.get(name)
        if kept is None or kept[0] != inputs:
            kept = self._memo[name] = (inputs, compute())
        result: T = kept[1]
        return result


class SkillStopper:
    """`ports.EarlyStopper`: the skill agent's own judgement of the phases it launched."""

    slow = True

    def __init__(self, agent: SkillAgent) -> None:
        self._agent = agent

    def judge(self, tree: Tree, node: NodeId, curve: Sequence[EvalPoint], rows: Sequence[MetricRow]) -> Verdict:
        return self._agent.check_in(tree, node, curve, rows)


@dataclass(frozen=True, slots=True)
class _Watched:
    """The conversation after a check-in, and the verdict."""

    talk: Talk
    verdict: Verdict


def at(tree: Tree, number: int) -> Tree:
    """The tree as the decision on phase `number` saw it; lost weights come up only where a phase would start there."""
    earlier = {n.id: n for n in tree.nodes.values() if n.sequence < number}
    nodes = {n.id: replace(n, lost="", children=tuple(c for c in n.children if c in earlier)) for n in earlier.values()}
    return replace(tree, nodes=nodes, test_scores={}, ended="")


def _own(node: Node) -> bool:
    return node.proposal.proposer == SkillAgent.name


def _turn(talk: Talk, reply: Reply, desk: Desk, calls: tuple[str, ...]) -> tuple[Talk, Act | None]:
    """The conversation after one reply: with every call's result, or with the one call that acts still open."""
    talk, asked = said(talk, reply)
    images: list[Image] = []
    for each in asked:
        found = carried_out(each, desk, calls, alone=len(asked) == 1)
        if isinstance(found, Act):
            return opened(talk, each), found
        talk = answered(talk, each, found)
        images += found.images
    if not asked:
        talk = news(talk, CALL_A_TOOL.format(names=", ".join(("read_metrics", *desk.acts))))
    return shown(talk, images), None


def _why_not_from(tree: Tree, parent: NodeId, lost: str) -> str:
    """Why no phase can start from a node; "" where one can."""
    if lost:
        return f"the weights of {parent} are lost ({lost}): start from another phase"
    if not tree.nodes[parent].resumable:
        able: Mapping[str, Node] = {n.id: n for n in tree.nodes.values() if n.resumable}
        return f"{parent} is {tree.nodes[parent].status} and left no weights: {did_you_mean(parent, able)}"
    return ""
