"""Agents that ask a language model. The only room that talks to an endpoint.

The factories are what the entry points name; each takes of the run's context what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmzero.domain.errors import UsageError

if TYPE_CHECKING:
    from llmzero.agents.llm.prompt import Briefing
    from llmzero.agents.llm.proposer import RowsOf
    from llmzero.agents.llm.replies import ExtraCheck
    from llmzero.domain.config import StopConfig
    from llmzero.ports import LLM, EarlyStopper, Proposer


def llm_proposer(*, llm: LLM, briefing: Briefing, rows_of: RowsOf, check_extra: ExtraCheck, seed: int) -> Proposer:
    """`--agent llm`."""
    from llmzero.agents.llm.proposer import LLMProposer

    return LLMProposer(llm, briefing, rows_of, check_extra=check_extra, seed=seed)


def skill_agent(*, llm: LLM, briefing: Briefing, rows_of: RowsOf, check_extra: ExtraCheck, seed: int) -> Proposer:
    """`--agent skill`; it judges running phases too where the run's stopper is its own."""
    from llmzero.agents.llm.skill import SkillAgent

    own = briefing.config.stopper in ("auto", "skill")
    return SkillAgent(llm, briefing, rows_of, check_extra=check_extra, seed=seed, check_ins=own)


def skill_stopper(*, proposer: Proposer) -> EarlyStopper:
    """`--stopper skill`: the judgement of the skill agent, in its own conversation."""
    from llmzero.agents.llm.skill import SkillAgent, SkillStopper

    if not isinstance(proposer, SkillAgent):
        raise UsageError("--stopper skill is the skill agent's own judgement: it needs --agent skill")
    return SkillStopper(proposer)


def agent_stopper(*, llm: LLM, briefing: Briefing, config: StopConfig) -> EarlyStopper:
    """`--stopper agent`."""
    from llmzero.agents.llm.stopper import AgentStopper

    return AgentStopper(llm, briefing, config)


def both_stopper(*, llm: LLM, briefing: Briefing, config: StopConfig) -> EarlyStopper:
    """`--stopper both`."""
    from llmzero.agents.llm.stopper import AgentStopper, BothStopper
    from llmzero.agents.stopping import RuleStopper

    return BothStopper(RuleStopper(config), AgentStopper(llm, briefing, config))
