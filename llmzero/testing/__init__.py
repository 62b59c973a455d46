"""For people who write plug-ins: fakes of the ports, and one conformance suite a port.

A suite is a class of tests. Name your factory (what the entry point names) in a subclass and run pytest:

    from llmzero.testing import ProposerContract

    class TestMine(ProposerContract):
        factory = MyProposer

Every suite calls the factory as `llmzero.wiring` does. Where yours needs more (a client, a fake server), override
`make` instead. Further class attributes are documented in each suite; docs/plugins.md has an example of each port.
"""

from llmzero.testing.executors import ExecutorContract
from llmzero.testing.exporters import ExporterContract
from llmzero.testing.fakes import (
    FixedProposer,
    InlineExecutor,
    MemoryStore,
    Play,
    SilentObserver,
    base_result,
    eval_rows,
    finished_phase,
    tree_events,
)
from llmzero.testing.proposers import ProposerContract
from llmzero.testing.stoppers import StopperContract
from llmzero.testing.stores import RunStoreContract
from llmzero.testing.tasks import TaskContract
from llmzero.testing.trainers import TrainerContract

__all__ = [
    "ExecutorContract",
    "ExporterContract",
    "FixedProposer",
    "InlineExecutor",
    "MemoryStore",
    "Play",
    "ProposerContract",
    "RunStoreContract",
    "SilentObserver",
    "StopperContract",
    "TaskContract",
    "TrainerContract",
    "base_result",
    "eval_rows",
    "finished_phase",
    "tree_events",
]
