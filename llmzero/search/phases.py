"""From a decision to a phase and a job. Pure, but for the checkpoints a job's weights are looked up in."""

from __future__ import annotations

from dataclasses import replace

from llmzero.domain.events import Tree
from llmzero.domain.examples import Split
from llmzero.domain.jobs import Job, Weights
from llmzero.domain.seeds import derive_seed
from llmzero.domain.series import MetricRow, summarise
from llmzero.domain.space import settle
from llmzero.domain.types import ROOT, Node, NodeId, Phase, PhaseResult, Proposal, Selection, Status, Verdict


def base_phase(tree: Tree) -> Phase:
    """The root: zero steps from the base model, so that its score is measured like any other."""
    config = tree.config
    return Phase(
        id=ROOT,
        parent=None,
        hyper=config.hyper,
        steps=0,
        eval_every=config.eval.every,
        seed=derive_seed(config.seed, ROOT),
        kl_anchor=config.kl_anchor,
        optimizer=config.optimizer,
        keep=config.keep,
    )


BASE_SELECTION = Selection(parent=ROOT, kind="base", reason="the base model is measured first")
BASE_PROPOSAL = Proposal(proposer="llmzero", pathology="base", diagnosis="the base model, untrained")


def next_phase(tree: Tree, selection: Selection, proposal: Proposal) -> tuple[Phase, Proposal]:
    """The phase a proposal asks for, cross-parameter rules applied; their notes are added to the proposal."""
    config, parent = tree.config, tree.nodes[selection.parent]
    node: NodeId = f"n{len(tree.nodes)}"
    asked = parent.phase.hyper.with_values({c.field: c.value for c in proposal.changes})
    hyper, notes = settle(asked)
    phase = Phase(
        id=node,
        parent=parent.id,
        hyper=hyper,
        steps=proposal.steps or config.steps,
        eval_every=config.eval.every,
        seed=derive_seed(config.seed, node),
        kl_anchor=proposal.kl_anchor or config.kl_anchor,
        optimizer=config.optimizer,
        keep=config.keep,
    )
    return phase, replace(proposal, notes=(*proposal.notes, *notes))


def train_job(tree: Tree, phase: Phase, start: Weights, base: Weights) -> Job:
    """The worker's order for a phase; the KL anchor becomes weights here."""
    config = tree.config
    return Job(
        kind="train",
        phase=phase,
        start=start,
        anchor=base if phase.kl_anchor == "base" else start,
        task=config.task,
        data=config.data,
        model=config.model,
        trainer=config.trainer,
        eval=config.eval,
        threads=config.threads,
        workers=config.workers,
        run_seed=config.seed,
        options=config.options,
    )


def evaluate_job(tree: Tree, node: Node, weights: Weights, split: Split) -> Job:
    """The worker's order to score a node's weights on another split."""
    return replace(train_job(tree, node.phase, weights, weights), kind="evaluate", split=split)


def stopped_result(result: PhaseResult, rows: list[MetricRow], verdict: Verdict) -> PhaseResult:
    """A stopped phase as of the step it was stopped at.

    The worker needs a moment to notice, so what it still did depends on the machine's load; cutting it off makes the
    node, and with it every later decision, the same on every machine. What was spent stays spent.
    """
    curve = tuple(p for p in result.curve if p.step <= verdict.at_step)
    last = curve[-1] if curve else None
    return replace(
        result,
        status=Status.STOPPED,
        steps_done=min(result.steps_done, verdict.at_step),
        score=last.score if last else None,
        score_se=last.se if last else None,
        curve=curve,
        summaries=summarise([r for r in rows if r.step <= verdict.at_step]),
        by_subtask={},
        checkpoint=None,
        failure=None,
        message=verdict.reason,
    )
