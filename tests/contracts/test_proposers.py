"""What every proposer promises, whatever it reads: inside the space, new, changing, pure, journal-safe."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from llmzero.domain.codec import from_json, to_json
from llmzero.domain.config import RunConfig
from llmzero.domain.events import PhaseFinished, PhaseProposed, RunStarted, Tree, apply, fold
from llmzero.domain.series import MetricRow, summarise
from llmzero.domain.space import llm_space, nano_space, settle
from llmzero.domain.types import ROOT, HyperParams, NodeId, Phase, PhaseResult, Proposal, Selection, Status
from llmzero.ports import Proposer
from llmzero.wiring import make_proposer

BUILT_IN = ("playbook", "random")
NANO = RunConfig(hyper=HyperParams(learning_rate=1e-4, kl_coef=0.02, max_completion_tokens=40), space=nano_space())
LLM = RunConfig(hyper=HyperParams(), space=llm_space())


def phase_of(tree: Tree, parent: NodeId, proposal: Proposal) -> Phase:
    hyper = tree.nodes[parent].phase.hyper.with_values({c.field: c.value for c in proposal.changes})
    return Phase(
        id=f"n{len(tree.nodes)}",
        parent=parent,
        hyper=settle(hyper)[0],
        steps=proposal.steps or tree.config.steps,
        eval_every=10,
        seed=0,
        kl_anchor=proposal.kl_anchor or tree.config.kl_anchor,
    )


def result_of(number: int, steps: int) -> PhaseResult:
    """A finished phase; every fourth fails, and the rest gain, stall and lose in turn."""
    rows = [
        MetricRow(kind="train", step=s, values={"reward": 0.4 + 0.002 * s, "entropy": 0.5, "kl": 0.001 * s})
        for s in range(1, steps + 1)
    ]
    status = Status.FAILED if number % 4 == 3 else Status.FINISHED
    score = None if status is Status.FAILED else 0.4 + 0.1 * (number % 3)
    return PhaseResult(status=status, steps_done=steps, score=score, score_se=0.02, summaries=summarise(rows))


def begun(config: RunConfig) -> Tree:
    base = Phase(id=ROOT, parent=None, hyper=config.hyper, steps=0, eval_every=10, seed=0)
    proposal = Proposal(proposer="llmzero", pathology="base", diagnosis="the base")
    chosen = Selection(parent=ROOT, kind="base", reason="the base")
    started: list[RunStarted | PhaseProposed | PhaseFinished] = [RunStarted(run="contract", config=config)]
    started.append(PhaseProposed(phase=base, selection=chosen, proposal=proposal))
    measured = PhaseResult(status=Status.FINISHED, score=0.4, score_se=0.02)
    return fold([*started, PhaseFinished(node=ROOT, result=measured)])


def grow(tree: Tree, parent: NodeId, proposal: Proposal) -> Tree:
    phase = phase_of(tree, parent, proposal)
    chosen = Selection(parent=parent, kind="uct", reason="contract")
    tree = apply(tree, PhaseProposed(phase=phase, selection=chosen, proposal=proposal))
    return apply(tree, PhaseFinished(node=phase.id, result=result_of(len(tree.nodes), phase.steps)))


def walk(proposer: Proposer, config: RunConfig, parents: Callable[[int], NodeId], count: int = 16) -> Tree:
    """A tree of `count` phases, the k-th under `parents(k)`."""
    tree = begun(config)
    for number in range(count):
        parent = parents(number)
        tree = grow(tree, parent, proposer.propose(tree, parent, config.space))
    return tree


SHAPES: dict[str, Callable[[int], NodeId]] = {
    "openings": lambda number: ROOT,
    "children of one": lambda number: ROOT if number == 0 else "n1",
    "a chain": lambda number: f"n{number}",
}


@pytest.fixture(params=BUILT_IN)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["nano", "llm"])
def config(request: pytest.FixtureRequest, name: str) -> RunConfig:
    return replace(NANO if request.param == "nano" else LLM, agent=name, seed=11)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_proposal_is_inside_the_space_and_changes_something(config: RunConfig, name: str, shape: str) -> None:
    tree = walk(make_proposer(config), config, SHAPES[shape])
    for node in list(tree.nodes.values())[1:]:
        values = {c.field: c.value for c in node.proposal.changes}
        assert node.proposal.proposer == name
        assert len(values) == len(node.proposal.changes)
        assert config.space.clamp(values) == (values, ())
        assert values or node.id == "n1"
        assert node.proposal.pathology and node.proposal.diagnosis and node.proposal.rationale
        assert 0 <= (node.proposal.confidence or 0.0) <= 1


@pytest.mark.parametrize("shape", SHAPES)
def test_no_two_children_of_a_node_are_the_same_phase(config: RunConfig, shape: str) -> None:
    tree = walk(make_proposer(config), config, SHAPES[shape])
    for node in tree.nodes.values():
        phases = [tree.nodes[c].phase for c in node.children]
        keys = [(p.hyper, p.steps, p.kl_anchor) for p in phases]
        assert all(a != b for i, a in enumerate(keys) for b in keys[:i])


def test_the_same_input_gives_the_same_proposal(config: RunConfig) -> None:
    tree = walk(make_proposer(config), config, SHAPES["children of one"], count=5)
    for parent in (ROOT, "n1", "n2"):
        first = make_proposer(config).propose(tree, parent, config.space)
        assert make_proposer(config).propose(tree, parent, config.space) == first


def test_proposals_survive_the_journal(config: RunConfig) -> None:
    tree = walk(make_proposer(config), config, SHAPES["children of one"])
    for node in tree.nodes.values():
        line = json.dumps(to_json(node.proposal), allow_nan=False)
        assert from_json(Proposal, json.loads(line)) == node.proposal


def test_a_running_sibling_counts_as_tried(config: RunConfig) -> None:
    proposer = make_proposer(config)
    tree = walk(proposer, config, SHAPES["a chain"], count=1)
    first = proposer.propose(tree, "n1", config.space)
    phase = phase_of(tree, "n1", first)
    chosen = Selection(parent="n1", kind="uct", reason="contract")
    tree = apply(tree, PhaseProposed(phase=phase, selection=chosen, proposal=first))
    second = phase_of(tree, "n1", proposer.propose(tree, "n1", config.space))
    assert (second.hyper, second.steps, second.kl_anchor) != (phase.hyper, phase.steps, phase.kl_anchor)
