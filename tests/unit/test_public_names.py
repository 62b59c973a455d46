"""What other people's code may import from the top: pinned, so that nobody takes a name away by accident."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import llmzero
import llmzero.testing
from llmzero import ports

LLMZERO = """
METRICS ROOT SPLITS
Change Checkpoint Cost EvalConfig EvalPoint Event Example FailureKind HyperParams Job JobPaths JobState LLMZeroError
Message MetricRow Node NodeId Observation Parameter Phase PhaseError PhaseResult Proposal Reward RunConfig SearchConfig
SearchSpace
Selection Split StateError Status StopConfig Strategy Transcript Tree UsageError Verdict Weights
__version__ from_json to_json
"""
TESTING = """
ExecutorContract ExporterContract FixedProposer InlineExecutor MemoryStore Play ProposerContract RunStoreContract
SilentObserver StopperContract TaskContract TrainerContract
base_result eval_rows finished_phase tree_events
"""
SOURCE = ast.parse(Path(ports.__file__).read_text(encoding="utf-8"))
INNER = ("Observer", "LLM", "Environment")
"""Ports that are no door for plug-ins; an environment comes with its task."""
PORTS = {node.name: node for node in SOURCE.body if isinstance(node, ast.ClassDef) and node.name not in INNER}
DOMAIN = {
    alias.name
    for node in SOURCE.body
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("llmzero.domain")
    for alias in node.names
}
HEAVY = ("torch", "transformers", "trl", "datasets", "rdkit", "yaml", "rich", "pytest", "pydantic", "ray", "openai")


def test_the_public_names_of_llmzero() -> None:
    assert llmzero.__all__ == LLMZERO.split()
    assert all(hasattr(llmzero, name) for name in llmzero.__all__)


def test_type_checkers_see_the_same_names() -> None:
    """They read the imports; Python finds the names when they are asked for."""
    source = ast.parse(Path(llmzero.__file__).read_text(encoding="utf-8"))
    imports = [n for n in ast.walk(source) if isinstance(n, ast.ImportFrom) and n.module.startswith("llmzero.domain")]
    for node in imports:
        module = importlib.import_module(node.module)
        assert all(getattr(llmzero, alias.name) is getattr(module, alias.name) for alias in node.names)
    assert {alias.name for node in imports for alias in node.names} == set(llmzero.__all__) - {"__version__"}
    with pytest.raises(AttributeError, match="no attribute 'replace'"):
        _ = llmzero.replace


def test_the_public_names_of_llmzero_testing() -> None:
    assert llmzero.testing.__all__ == TESTING.split()
    assert all(hasattr(llmzero.testing, name) for name in llmzero.testing.__all__)


def test_every_port_of_a_plug_in_has_a_suite() -> None:
    suites = {name for name in llmzero.testing.__all__ if name.endswith("Contract")}
    refinements = {name for name, node in PORTS.items() if any(ast.unparse(base) in PORTS for base in node.bases)}
    assert refinements == {"SelfDirected", "MultiTurnTask"}  # each is tested by the suite of what it refines
    assert suites == {f"{name.removeprefix('Early')}Contract" for name in PORTS.keys() - refinements}


@pytest.mark.parametrize("port", PORTS)
def test_every_type_a_plug_in_needs_is_public(port: str) -> None:
    """Whatever the port's signatures take from the domain."""
    words = {node.id for node in ast.walk(PORTS[port]) if isinstance(node, ast.Name)}
    assert words & DOMAIN <= set(llmzero.__all__)


@pytest.mark.parametrize("module", ["llmzero", "llmzero.ports", "llmzero.testing"])
def test_importing_them_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(sorted(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
