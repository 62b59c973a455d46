"""What the playbook, or a language model, names on each case of the diagnosis set."""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from diagnosis_cases import Case, Stored
from llmzero import wiring
from llmzero.agents.evidence import evidence_of
from llmzero.agents.llm.client import OpenAIClient
from llmzero.agents.llm.prompt import Show
from llmzero.agents.llm.proposer import LLMProposer
from llmzero.agents.llm.recorder import RecordedLLM, read_calls
from llmzero.agents.rules import RULES, diagnose
from llmzero.domain.config import LLMConfig
from llmzero.domain.llm import Reply, Request, Usage
from llmzero.domain.types import HyperParams, Proposal
from llmzero.ports import LLM

SHOWS: tuple[Show, ...] = ("plots", "text", "both")
KINDS = ("named", "other name", "reply unusable", "call failed")
NAMES = tuple(rule.name for rule in RULES)
Z = 1.96
"""Normal quantile of a 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was named on a case. `name` is one of RULES, or "" where there is none; `words` is what to show of it.

    `blind` where the endpoint refused the picture, so that the model never saw it.
    """

    case: Case
    name: str
    words: str
    evidence: str = ""
    others: tuple[str, ...] = ()
    kind: Literal["named", "other name", "reply unusable", "call failed"] = "named"
    blind: bool = False

    @property
    def right(self) -> bool:
        return self.name in self.case.accepted


def playbook_answers(stored: Sequence[Stored]) -> list[Answer]:
    """The first of the playbook's diagnoses on each case, its first line of evidence and the names behind it."""
    return [_by_playbook(each) for each in stored]


def _by_playbook(each: Stored) -> Answer:
    (rule, lines), *others = diagnose(evidence_of(each.tree, each.node.id, each.tree.config.space))
    behind = tuple(other.name for other, _ in others)
    return Answer(case=each.case, name=rule.name, words=rule.name, evidence=lines[0], others=behind)


def llm_answers(stored: Sequence[Stored], config: LLMConfig, show: Show, work: Path) -> list[Answer]:
    """What the model names, asked as the proposer asks it; every call is kept under `work` and never made again."""
    client = OpenAIClient(config)
    try:
        llm = RecordedLLM(client, calls_folder(config, work), config)
        return [_by_llm(each, llm, config, show) for each in stored]
    finally:
        client.close()


def calls_folder(config: LLMConfig, work: Path) -> Path:
    """Where the calls of one model at one endpoint are kept."""
    where = hashlib.sha256(f"{config.model}\n{config.base_url}".encode()).hexdigest()[:8]
    return work / "calls" / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', config.model)[:60]}-{where}"


def spent(config: LLMConfig, work: Path) -> str:
    """What all recorded calls of the model used, in one line."""
    calls = read_calls(calls_folder(config, work))
    usage = sum((call.reply.usage for call in calls), Usage())
    usd = sum(call.usd or 0.0 for call in calls)
    dollars = f", ${usd:.2f}" if usd else ""
    return f"{len(calls)} calls, {usage.prompt_tokens} prompt and {usage.completion_tokens} completion tokens{dollars}."


class _Heard:
    """Remembers the last reply: a failed call and an unusable reply both end in the playbook's proposal."""

    def __init__(self, inner: LLM) -> None:
        self._inner = inner
        self.last = Reply()

    def complete(self, request: Request) -> Reply:
        self.last = self._inner.complete(request)
        return self.last


def _by_llm(each: Stored, llm: LLM, config: LLMConfig, show: Show) -> Answer:
    settings = replace(each.tree.config, llm=config)
    heard = _Heard(llm)
    proposer = LLMProposer(
        heard,
        wiring.make_briefing(settings),
        lambda node: each.rows[node],
        check_extra=_any_field,
        seed=settings.seed,
        show=show,
    )
    answer = answer_of(each.case, proposer.propose(each.tree, each.node.id, settings.space), heard.last)
    print(f"{show}, {each.case.name}: {answer.words}", file=sys.stderr)
    return replace(answer, blind=any("pictures" in note for note in heard.last.notes))


def _any_field(hyper: HyperParams) -> None:
    """The diagnosis is scored, not the changes: a field the trainer lacks does not cost the model its reply."""


def answer_of(case: Case, proposal: Proposal, last: Reply) -> Answer:
    """A proposal as an answer: the playbook's own word never counts for the model."""
    if proposal.proposer != "llm":
        kind: Literal["call failed", "reply unusable"] = "call failed" if last.error else "reply unusable"
        return Answer(case=case, name="", words=kind, evidence=proposal.notes[-1], kind=kind)
    name = rule_named(proposal.pathology)
    line = proposal.evidence[0] if proposal.evidence else proposal.diagnosis
    if not name:
        said = re.sub(r"[^\w .,:;()-]", "?", proposal.pathology)
        return Answer(case=case, name="", words=f"other: {said}", evidence=line, kind="other name")
    return Answer(case=case, name=name, words=name, evidence=line)


def rule_named(said: str) -> str:
    """The one name of RULES in what a model calls the pathology ("KL spike", "entropy_collapse, late"); "" if not one.

    A name inside a longer one (collapse in entropy_collapse) is not meant.
    """
    plain = "_" + re.sub(r"[^a-z0-9]+", "_", said.lower()).strip("_") + "_"
    found = set()
    for name in sorted(NAMES, key=len, reverse=True):
        if f"_{name}_" in plain:
            found.add(name)
            plain = plain.replace(f"_{name}_", "__")
    return found.pop() if len(found) == 1 else ""


def share(answers: Sequence[Answer]) -> str:
    """`12 of 16 (0.75, 0.51 to 0.90)`: how many are right, and the Wilson interval of the share."""
    right, count = sum(a.right for a in answers), len(answers)
    low, high = wilson(right, count)
    return f"{right} of {count} ({right / count:.2f}, {low:.2f} to {high:.2f})"


def wilson(right: int, count: int) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson 1927)."""
    center = (right + Z * Z / 2) / (count + Z * Z)
    half = Z * math.sqrt(right * (count - right) / count + Z * Z / 4) / (count + Z * Z)
    return max(0.0, center - half), min(1.0, center + half)
