"""RunConfig: everything a search depends on, stored whole in the journal's first event.

Each field's `metadata["doc"]` is its documentation: the flag's help text and the reference page are made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from llmzero.domain.llm import Price
from llmzero.domain.space import SearchSpace
from llmzero.domain.types import HyperParams, KeepPolicy, KlAnchor, OptimizerPolicy

SCHEMA_VERSION = 1
"""Version of journal events, job files and results; a run written by a newer one is refused."""


def doc(text: str, default: Any) -> Any:
    """A dataclass field with its documentation."""
    return field(default=default, metadata={"doc": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """The tree policy (see docs/design/uct.md)."""

    exploration: float = doc("UCT exploration constant c", 0.5)
    widening_constant: float = doc("progressive widening: a node of n visits may have C * n**alpha children", 1.0)
    widening_exponent: float = doc("progressive widening exponent alpha", 0.5)
    backup: Literal["mean", "max"] = doc("how a subtree's values become a node's: mean or max", "mean")
    fresh_every: int = doc("force a fresh start from the base after this many expansions without one; 0 = never", 5)
    fresh_patience: int = doc("force a fresh start after this many expansions without a better score; 0 = never", 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """How scores are measured. An item's score is the mean over its samples; the standard error is over items."""

    every: int = doc("validation every this many steps within a phase", 10)
    curve_items: int = doc("validation items per in-phase evaluation", 96)
    curve_samples: int = doc("samples per item in an in-phase evaluation", 2)
    items: int = doc("validation items for a node's score (0 = all)", 0)
    samples: int = doc("samples per item for a node's score and for the test", 4)
    temperature: float = doc("sampling temperature of every evaluation", 1.0)
    max_completion_tokens: int = doc("completion cap of every evaluation, independent of the phase's own", 48)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopConfig:
    """The rule stopper (see docs/design/stopping.md)."""

    grace_steps: int = doc("never stop a phase before this many of its own steps", 20)
    sigmas: float = doc("how many standard errors below counts as clearly below", 3.0)
    margin: float = doc("and at least this much score below", 0.05)
    patience: int = doc("consecutive evaluations that must agree before a stop", 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMConfig:
    """The language model of the agents (see docs/agents.md). The key comes from OPENAI_API_KEY and is never stored."""

    model: str = doc("model name at the endpoint; empty: none configured", "")
    base_url: str = doc("an OpenAI-compatible endpoint, ending in /v1; empty: OpenAI's own", "")
    images: Literal["auto", "off"] = doc("send plots (until the endpoint refuses them), or text only", "auto")
    temperature: float | None = doc("sampling temperature; unset: the endpoint's own default", None)
    max_completion_tokens: int = doc("cap of a reply, reasoning included", 4096)
    timeout_s: float = doc("seconds for one try of a call", 120.0)
    retries: int = doc("further tries after a timeout, a lost connection, 429, 5xx or a broken reply", 3)
    usd: float = doc("hard ceiling in dollars, calls in flight included; 0 = no limit (needs a price)", 0.0)
    prices: Mapping[str, Price] = field(
        default_factory=dict,
        metadata={
            "doc": "tables of dollars per million tokens: [llm.prices.NAME] prompt_usd, completion_usd, cached_usd"
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One search."""

    task: str = doc("task name (`llmzero task list`)", "chemcot")
    model: str = doc("nano (the embedded base), a Hugging Face model id, or a folder", "nano")
    data: Literal["mini", "hub"] = doc("mini: offline generator; hub: the real data set", "mini")
    trainer: str = doc("what trains a phase: trl, or sim (seeded dynamics for tests)", "trl")
    executor: str = doc("where phases run: local", "local")
    agent: str = doc("proposer: auto (llm with a model, else playbook), llm, skill, playbook or random", "auto")
    stopper: str = doc("early stopper: auto (both with a model, else rule), rule, agent, both, skill or none", "auto")
    prompts: str = doc("folder with templates and knowledge cards of one's own that replace ours by name", "")
    nodes: int = doc("phases to train at most", 8)
    hours: float = doc("no phase starts once ended phases used this many worker hours; 0 = no limit", 0.0)
    steps: int = doc("steps per phase", 60)
    workers: int = doc("phases trained at the same time (the embedded bases: 2)", 1)
    seed: int = doc("run seed; every other seed is hashed from it", 0)
    kl_anchor: KlAnchor = doc(
        "KL reference of each phase its proposal does not set: base (the original model) or parent (its start)", "base"
    )
    keep: KeepPolicy = doc("the phase's checkpoint: best (by in-phase validation) or last", "best")
    optimizer: OptimizerPolicy = doc("optimizer at a phase start; reset is the only policy of the trl trainer", "reset")
    hang_after_s: float = doc("a worker silent for this many seconds counts as hung", 900.0)
    threads: int = doc("CPU threads of a worker; 0 = one for tiny models, else all cores shared between the workers", 0)
    search: SearchConfig = field(default_factory=SearchConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    stop: StopConfig = field(default_factory=StopConfig)
    llm: LLMConfig = field(default_factory=LLMConfig)
    hyper: HyperParams = field(default_factory=HyperParams)
    space: SearchSpace = field(default_factory=SearchSpace)
    options: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"doc": "table of plain options for the trainer (sim: sim_step_s, sim_fault, ...; trl has none)"},
    )
    versions: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA_VERSION
