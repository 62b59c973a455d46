"""LLMZero: search GRPO training strategies, not single hyperparameters.

The names are the types that the ports speak of (`llmzero.ports`), for people who write plug-ins; see docs/plugins.md.
They are pure data, and imported when first asked for: `llmzero --help` needs none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmzero.domain.codec import from_json, to_json
    from llmzero.domain.config import EvalConfig, RunConfig, SearchConfig, StopConfig
    from llmzero.domain.errors import LLMZeroError, PhaseError, StateError, UsageError
    from llmzero.domain.events import Event, Tree
    from llmzero.domain.examples import SPLITS, Example, Message, Observation, Reward, Split, Transcript
    from llmzero.domain.jobs import Job, JobPaths, JobState, Weights
    from llmzero.domain.series import METRICS, MetricRow
    from llmzero.domain.space import Parameter, SearchSpace
    from llmzero.domain.types import (
        ROOT,
        Change,
        Checkpoint,
        Cost,
        EvalPoint,
        FailureKind,
        HyperParams,
        Node,
        NodeId,
        Phase,
        PhaseResult,
        Proposal,
        Selection,
        Status,
        Strategy,
        Verdict,
    )

__version__ = "0.1.0"

__all__ = [
    "METRICS",
    "ROOT",
    "SPLITS",
    "Change",
    "Checkpoint",
    "Cost",
    "EvalConfig",
    "EvalPoint",
    "Event",
    "Example",
    "FailureKind",
    "HyperParams",
    "Job",
    "JobPaths",
    "JobState",
    "LLMZeroError",
    "Message",
    "MetricRow",
    "Node",
    "NodeId",
    "Observation",
    "Parameter",
    "Phase",
    "PhaseError",
    "PhaseResult",
    "Proposal",
    "Reward",
    "RunConfig",
    "SearchConfig",
    "SearchSpace",
    "Selection",
    "Split",
    "StateError",
    "Status",
    "StopConfig",
    "Strategy",
    "Transcript",
    "Tree",
    "UsageError",
    "Verdict",
    "Weights",
    "__version__",
    "from_json",
    "to_json",
]

if not TYPE_CHECKING:  # a type checker would take it to mean that every name exists

    def __getattr__(name: str) -> object:
        import importlib

        homes = ("types", "config", "errors", "events", "examples", "jobs", "series", "space", "codec")
        for home in homes if name in __all__ else ():
            module = vars(importlib.import_module(f"llmzero.domain.{home}"))
            if name in module:
                return module[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
