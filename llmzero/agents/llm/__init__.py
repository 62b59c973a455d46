"""Agents that ask a language model. The only room that talks to an endpoint.

The factories are what the entry points name; each takes of the run's context what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def agent_stopper(*, llm: LLM, briefing: Briefing, config: StopConfig) -> EarlyStopper:
    """`--stopper agent`."""
    from llmzero.agents.llm.stopper import AgentStopper

    return AgentStopper(llm, briefing, config)


def both_stopper(*, llm: LLM, briefing: Briefing, config: StopConfig) -> EarlyStopper:
    """`--stopper both`."""
    from llmzero.agents.llm.stopper import AgentStopper, BothStopper
    from llmzero.agents.stopping import RuleStopper

    return BothStopper(RuleStopper(config), AgentStopper(llm, briefing, config))
