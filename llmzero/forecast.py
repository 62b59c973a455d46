"""What the model calls of a search will cost, before one is made: calls, tokens and dollars, expected and at worst.

The words counted are real: the first request of this very run, and one made of a tree as deep and wide as its budget
allows (prompts are bounded, so no later one is much longer). Nothing is sent, and no key is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llmzero.agents.evidence import evidence_of
from llmzero.agents.llm.counting import pixel_tokens, request_tokens
from llmzero.agents.llm.prompt import MAX_BEST, MAX_SIBLINGS, MAX_STAGES, Briefing, proposer_messages
from llmzero.agents.llm.proposer import MAX_REPAIR, MAX_REPLY
from llmzero.agents.llm.proposer import REPAIRS as PROPOSER_REPAIRS
from llmzero.agents.llm.recorder import MARGIN, price_of
from llmzero.agents.llm.replies import MAX_STEPS_FACTOR, proposal_schema, verdict_schema
from llmzero.agents.llm.stopper import REPAIRS as STOPPER_REPAIRS
from llmzero.agents.llm.stopper import comparison
from llmzero.agents.plots import HEIGHT as PATH_HEIGHT
from llmzero.agents.plots_canvas import WIDTH
from llmzero.agents.plots_overlay import HEIGHT as OVERLAY_HEIGHT
from llmzero.domain.config import RunConfig
from llmzero.domain.events import PhaseFinished, PhaseProposed, RunStarted, Tree, apply, fold
from llmzero.domain.llm import ChatMessage, Request, Text, Usage
from llmzero.domain.series import METRICS
from llmzero.domain.types import ROOT, EvalPoint, MetricSummary, NodeId, PhaseResult, Proposal, Selection, Status
from llmzero.search.phases import BASE_PROPOSAL, BASE_SELECTION, base_phase, next_phase

REPLY_TOKENS = {"proposer": 450, "stopper": 60}
"""Assumed of a reply: a proposal of four changes, a verdict of one sentence. A model's thinking comes on top."""
QUESTIONS_A_PHASE = 0.67
"""Of `--stopper both`, which asks where the rule would stop: benchmarks/tokens.md, an agent that never agrees."""
CHANGED = 4
"""Parameters that each phase of the made-up tree changes."""
MODEL_AGENTS = {"llm": "proposer", "agent": "stopper", "both": "stopper", "skill": "skill"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """An agent's calls in a search; `tries` are what a provider may bill, `same` the prompt tokens they begin with."""

    calls: float = 0.0
    tries: float = 0.0
    prompt: float = 0.0
    same: float = 0.0
    completion: float = 0.0

    def __add__(self, other: Bill) -> Bill:
        return Bill(**{name: getattr(self, name) + getattr(other, name) for name in Bill.__slots__})


def forecast(
    config: RunConfig,
    briefing: Briefing,
    *,
    agents: Sequence[str],
    past: tuple[str, int, Mapping[str, Mapping[str, Any]]] | None = None,
) -> dict[str, Any] | None:
    """The model calls of a search as plain JSON; None where no agent asks a model.

    `agents` are the names of its proposer and its stopper. `past` is (run, phases, ledger by agent) of an earlier run
    that asked the same model: expected then is what it took a phase. A skill agent's conversation has no such bound and
    is not forecast; where it is all there is, expected and worst are None.
    """
    asking = [name for name in agents if name in MODEL_AGENTS]
    if not asking:
        return None
    known = [name for name in asking if name != "skill"]
    bills = {MODEL_AGENTS[name]: _bills(config, briefing, name, past) for name in known}
    expected, worst = (sum((pair[i] for pair in bills.values()), Bill()) for i in range(2))
    return {
        "model": config.llm.model,
        "endpoint": config.llm.base_url or "api.openai.com",
        "expected": _told(config, expected) if bills else None,
        "worst": _told(config, worst) if bills else None,
        "by_agent": {a: {"expected": _told(config, e), "worst": _told(config, w)} for a, (e, w) in bills.items()},
        "ceiling_usd": config.llm.usd or None,
        "not_forecast": ["skill"] if "skill" in asking else [],
        "basis": _basis(config, agents, past),
    }


def _basis(config: RunConfig, agents: Sequence[str], past: tuple[str, int, Any] | None) -> str:
    words = f"run {past[0]}, by the phase" if past else "this run's prompts, replies as long as usual, no thinking"
    if "both" in agents and not past:
        words += f", {QUESTIONS_A_PHASE:g} questions a phase to the stopper"
    worst = f"every reply repaired to the end, every call tried {1 + config.llm.retries} times and billed in full"
    return f"expected: {words}; worst: {worst}"


def _told(config: RunConfig, bill: Bill) -> dict[str, Any]:
    price = price_of(config.llm)
    usage = Usage(prompt_tokens=round(bill.prompt), completion_tokens=round(bill.completion))
    cached = replace(usage, cached_tokens=min(round(bill.same), usage.prompt_tokens))
    return {
        "calls": round(bill.calls),
        "tries": round(bill.tries),
        "prompt_tokens": usage.prompt_tokens,
        "same_tokens": cached.cached_tokens,
        "completion_tokens": usage.completion_tokens,
        "usd": price.of(usage) if price else None,
        "usd_cached": price.of(cached) if price and price.cached_usd is not None else None,
    }


def _bills(
    config: RunConfig, briefing: Briefing, name: str, past: tuple[str, int, Mapping[str, Mapping[str, Any]]] | None
) -> tuple[Bill, Bill]:
    """(expected, worst) of one agent."""
    agent = MODEL_AGENTS[name]
    first, late, same = proposer_tokens(config, briefing) if name == "llm" else stopper_tokens(config, briefing)
    worst_calls = config.nodes if name == "llm" else config.nodes * questions(config, MAX_STEPS_FACTOR)
    worst = _worst(config, worst_calls, late, PROPOSER_REPAIRS if name == "llm" else STOPPER_REPAIRS, same)
    seen = past[2].get(agent) if past else None
    if past and seen and seen["prompt_tokens"]:
        return _as_before(config.nodes / max(1, past[1]), seen, same), worst
    calls = {"llm": 1.0, "agent": float(questions(config)), "both": min(QUESTIONS_A_PHASE, questions(config))}[name]
    calls *= config.nodes
    reply = min(REPLY_TOKENS[agent], config.llm.max_completion_tokens)
    prompt = calls * (first + late) / 2
    return Bill(calls=calls, tries=calls, prompt=prompt, same=calls * same, completion=calls * reply), worst


def _as_before(times: float, seen: Mapping[str, Any], same: int) -> Bill:
    calls, tries = times * seen["calls"], times * seen["tries"]
    prompt, completion = times * seen["prompt_tokens"], times * seen["completion_tokens"]
    return Bill(calls=calls, tries=tries, prompt=prompt, same=tries * same, completion=completion)


def _worst(config: RunConfig, decisions: int, prompt: int, repairs: int, same: int) -> Bill:
    """Every decision takes all its repairs, each call all its tries, each try the longest reply."""
    llm = config.llm
    more = min(MAX_REPLY, llm.max_completion_tokens) + MAX_REPAIR  # a token has at least one character
    turns = sum(MARGIN * prompt + turn * more for turn in range(1 + repairs))
    calls, tries = decisions * (1 + repairs), 1 + llm.retries
    return Bill(
        calls=calls,
        tries=calls * tries,
        prompt=decisions * tries * turns,
        same=calls * tries * same,
        completion=calls * tries * llm.max_completion_tokens,
    )


def questions(config: RunConfig, longer: int = 1) -> int:
    """Evaluations of a phase that its stopper may be asked about: past the grace period and before the end."""
    steps = longer * config.steps
    return sum(config.stop.grace_steps <= step < steps for step in range(config.eval.every, steps, config.eval.every))


# --- the requests counted


def proposer_tokens(config: RunConfig, briefing: Briefing) -> tuple[int, int, int]:
    """Prompt tokens of the first proposal, of a late one, and of what both begin with (the schema and the system)."""
    tree, parent = late_tree(config)
    first = _tokens(config, proposer_messages(briefing, evidence_of(_base(config), ROOT, config.space), ()), "proposal")
    late = _tokens(config, proposer_messages(briefing, evidence_of(tree, parent, config.space), ()), "proposal")
    picture = pixel_tokens(WIDTH, PATH_HEIGHT) if config.llm.images == "auto" and parent != ROOT else 0
    return first, late + picture, _tokens(config, (briefing.system("proposer"),), "proposal")


def stopper_tokens(config: RunConfig, briefing: Briefing) -> tuple[int, int, int]:
    """The same of the stopper: its question at a phase's first and at its last evaluation."""
    tree, parent = late_tree(config)
    tree = _proposed(tree, parent, 1)
    node, system = list(tree.nodes)[-1], briefing.system("stopper")
    picture = pixel_tokens(WIDTH, OVERLAY_HEIGHT) if config.llm.images == "auto" else 0
    curve = _curve(config, 0.4)
    first, late = (
        _tokens(config, (system, ChatMessage("user", (Text(comparison(tree, node, points)),))), "verdict") + picture
        for points in (curve[:1], curve)
    )
    return first, late, _tokens(config, (system,), "verdict")


def _tokens(config: RunConfig, messages: tuple[ChatMessage, ...], name: str) -> int:
    schema = proposal_schema() if name == "proposal" else verdict_schema()
    return request_tokens(Request(purpose="forecast", messages=messages, name=name, schema=schema))


def late_tree(config: RunConfig) -> tuple[Tree, NodeId]:
    """A made-up tree that fills a prompt as far as the run's phases go, and the node to expand in it."""
    tree, left = _base(config), max(0, config.nodes - 1)
    parent = ROOT
    for _ in range(min(MAX_STAGES - 1, left)):
        tree, parent, left = *_grown(tree, parent, score=0.5), left - 1
    for _ in range(min(MAX_SIBLINGS, left)):
        tree, left = _grown(tree, parent, score=0.4)[0], left - 1
    best = ROOT
    for _ in range(min(MAX_BEST, left)):
        tree, best = _grown(tree, best, score=0.6)
    return tree, parent


def _base(config: RunConfig) -> Tree:
    tree = fold([RunStarted(run="forecast", config=config)])
    first = PhaseProposed(phase=base_phase(tree), selection=BASE_SELECTION, proposal=BASE_PROPOSAL)
    result = PhaseResult(status=Status.FINISHED, score=0.3, score_se=0.02)
    return apply(apply(tree, first), PhaseFinished(node=ROOT, result=result))


def _grown(tree: Tree, parent: NodeId, *, score: float) -> tuple[Tree, NodeId]:
    tree = _proposed(tree, parent, len(tree.nodes))
    node = list(tree.nodes)[-1]
    level = 0.1234567
    summary = MetricSummary(
        first=level,
        last=level,
        mean=level,
        low=level,
        high=level,
        slope=level / 60,
        window_mean=level,
        spikes=0,
        count=60,
    )
    result = PhaseResult(
        status=Status.FINISHED,
        steps_done=tree.config.steps,
        score=score,
        score_se=0.02,
        curve=_curve(tree.config, score),
        summaries=dict.fromkeys(METRICS, summary),
    )
    return apply(tree, PhaseFinished(node=node, result=result)), node


def _proposed(tree: Tree, parent: NodeId, turn: int) -> Tree:
    """The tree with one more phase proposed, a few of its numbers moved."""
    config, hyper = tree.config, tree.nodes[parent].phase.hyper
    numbers = [p for p in config.space.parameters if p.kind in ("log", "linear")]
    chosen = [numbers[(turn + i) % len(numbers)] for i in range(min(CHANGED, len(numbers)))]
    values = {p.name: math.sqrt(p.low * p.high) if p.kind == "log" else (p.low + p.high) / 3 for p in chosen}
    selection = Selection(parent=parent, kind="uct", reason="forecast")
    words = "the reward rises slowly and the entropy falls " * 4
    proposal = Proposal(proposer="llm", pathology="slow_progress", diagnosis=words, rationale=words)
    phase, proposal = next_phase(tree, selection, proposal)
    phase = replace(phase, hyper=hyper.with_values({name: value * (1 + turn / 100) for name, value in values.items()}))
    return apply(tree, PhaseProposed(phase=phase, selection=selection, proposal=proposal))


def _curve(config: RunConfig, score: float) -> tuple[EvalPoint, ...]:
    steps = range(config.eval.every, config.steps + 1, config.eval.every)
    return tuple(EvalPoint(step, score, 0.0345) for step in steps) or (EvalPoint(config.steps, score, 0.0345),)
