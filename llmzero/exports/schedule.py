"""Strategy -> ScheduleDoc -> strategy.yaml, and back."""

from __future__ import annotations

import importlib.metadata
import re
import typing
from collections.abc import Mapping
from dataclasses import fields
from itertools import accumulate
from typing import Any

import yaml

from llmzero.domain.codec import from_json, to_json
from llmzero.domain.errors import UsageError, did_you_mean
from llmzero.domain.events import Tree
from llmzero.domain.strategy import phase_diff
from llmzero.domain.types import ROOT, Node, NodeId, Phase, Status, Strategy
from llmzero.exports.schema import (
    SCHEMA,
    VERSION,
    HeldOut,
    Outcome,
    Provenance,
    ScheduleDoc,
    Stage,
    StageChange,
    documented,
    inner_kind,
)
from llmzero.exports.yaml_text import emit

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def schedule_doc(tree: Tree, strategy: Strategy) -> ScheduleDoc:
    """The strategy with everything an exporter needs; UsageError when it has no stage to export."""
    if not strategy.nodes:
        raise UsageError(f"run {tree.run!r}: the base model alone is no strategy; search on, or name another node")
    steps = accumulate(phase.steps for phase in strategy.phases)
    tokens = accumulate(_tokens(phase) for phase in strategy.phases)
    return ScheduleDoc(
        provenance=_provenance(tree),
        evaluation=tree.config.eval,
        outcome=_outcome(tree, strategy),
        stages=tuple(
            _stage(tree, number, node, cumulative_steps=s, cumulative_tokens=t)
            for number, (node, s, t) in enumerate(zip(strategy.nodes, steps, tokens, strict=True), start=1)
        ),
    )


def strategy_yaml(doc: ScheduleDoc) -> str:
    """The document as commented YAML; `load_strategy` reads it back unchanged."""
    return emit(to_json(doc), dict(documented()))


def load_strategy(text: str) -> ScheduleDoc:
    """The document of a strategy.yaml. UsageError on broken YAML, unknown keys, a newer schema, or stages that do not
    follow each other.
    """
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"strategy: not YAML: {' '.join(str(error).split())}") from None
    _check_schema(value)
    try:
        doc = from_json(ScheduleDoc, _checked(ScheduleDoc, value, "strategy"), "strategy")
    except ValueError as error:
        raise UsageError(str(error)) from None
    _check_stages(doc)
    return doc


def _provenance(tree: Tree) -> Provenance:
    config = tree.config
    versions = dict(config.versions)
    digest = versions.pop("base_sha256", "")
    return Provenance(
        run=tree.run,
        llmzero=versions.get("llmzero") or importlib.metadata.version("llmzero"),
        started_at=tree.started_at,
        task=config.task,
        data=config.data,
        model=config.model,
        base_digest=digest,
        trainer=config.trainer,
        seed=config.seed,
        versions=versions,
    )


def _outcome(tree: Tree, strategy: Strategy) -> Outcome:
    root = tree.nodes.get(ROOT)
    return Outcome(
        score=strategy.score,
        score_se=strategy.score_se,
        base_score=root.score if root else None,
        base_score_se=root.result.score_se if root and root.result else None,
        test=_held_out(tree, strategy.nodes[-1]),
        base_test=_held_out(tree, ROOT),
    )


def _held_out(tree: Tree, node: NodeId) -> HeldOut | None:
    found = tree.test_scores.get(node)
    return HeldOut(score=found.score, se=found.se, items=found.items) if found else None


def _stage(tree: Tree, number: int, node_id: NodeId, *, cumulative_steps: int, cumulative_tokens: int) -> Stage:
    node = tree.nodes[node_id]
    phase, proposal, result = node.phase, node.proposal, node.result
    return Stage(
        stage=number,
        node=node_id,
        starts_from=_starts_from(number),
        optimizer=phase.optimizer,
        kl_anchor=phase.kl_anchor,
        steps=phase.steps,
        optimizer_steps=phase.steps * phase.hyper.updates_per_batch,
        steps_done=result.steps_done if result else 0,
        handover_step=_handover(node),
        keep=phase.keep,
        eval_every=phase.eval_every,
        seed=phase.seed,
        hyper=phase.hyper,
        changes=_changes(tree, node),
        proposer=proposal.proposer,
        pathology=proposal.pathology,
        diagnosis=proposal.diagnosis,
        rationale=proposal.rationale,
        score=node.score,
        score_se=result.score_se if result else None,
        cumulative_steps=cumulative_steps,
        tokens_planned=_tokens(phase),
        tokens_generated=result.cost.generated_tokens if result else 0,
        cumulative_tokens=cumulative_tokens,
    )


def _starts_from(number: int) -> str:
    return "base" if number == 1 else f"stage {number - 1}"


def _handover(node: Node) -> int:
    """The kept checkpoint's step; for a stopped phase, which keeps none, the last step; for a running one, the plan."""
    if node.result is None:
        return node.phase.steps
    step = node.result.checkpoint.step if node.result.checkpoint else node.result.steps_done
    if node.result.status is Status.FAILED or step < 1:
        raise UsageError(f"node {node.id} {node.status} without weights to hand over; export one that finished")
    return step


def _tokens(phase: Phase) -> int:
    hyper = phase.hyper
    return phase.steps * hyper.prompts_per_step * hyper.group_size * hyper.max_completion_tokens


def _changes(tree: Tree, node: Node) -> tuple[StageChange, ...]:
    parent = tree.nodes[node.parent] if node.parent is not None else node
    reasons = {change.field: change.reason for change in node.proposal.changes}
    return tuple(
        StageChange(field=name, old=old, new=new, reason=reasons.get(name, ""))
        for name, old, new in phase_diff(parent, node)
    )


def _check_schema(value: Any) -> None:
    name, _, version = str(value.get("schema", "") if isinstance(value, dict) else "").partition("/")
    if name != "llmzero.strategy" or not version.isdecimal():
        raise UsageError(f"strategy: not a strategy.yaml: its first line must be `schema: {SCHEMA}`")
    if int(version) > VERSION:
        raise UsageError(f"strategy: schema {name}/{version} is newer than {SCHEMA}; upgrade llmzero to read it")


def _checked(kind: type, value: Any, where: str) -> Any:
    """`value` with its keys known and its numbers numbers: YAML reads a hand-written 1e-6 as a string."""
    if not isinstance(value, Mapping):
        return value
    hints = typing.get_type_hints(kind)
    known = [each.name for each in fields(kind)]
    for key in value:
        if key not in known:
            raise UsageError(f"{where}: unknown key {key!r}: {did_you_mean(str(key), known)}")
    return {key: _checked_field(hints[key], item, f"{where}.{key}") for key, item in value.items()}


def _checked_field(hint: Any, item: Any, where: str) -> Any:
    inner = inner_kind(hint)
    if inner is not None and inner[1] and isinstance(item, list):
        return [_checked(inner[0], each, f"{where}[{index}]") for index, each in enumerate(item)]
    if inner is not None:
        return _checked(inner[0], item, where)
    wants_float = hint is float or (float in typing.get_args(hint) and str not in typing.get_args(hint))
    if wants_float and isinstance(item, str) and _NUMBER.fullmatch(item):
        return float(item)
    return item


def _check_stages(doc: ScheduleDoc) -> None:
    if not doc.stages:
        raise UsageError("strategy: no stages; a strategy has at least one")
    for number, stage in enumerate(doc.stages, start=1):
        rule = _broken_rule(number, stage)
        if rule:
            raise UsageError(f"strategy.stages[{number - 1}]: {rule}")


def _broken_rule(number: int, stage: Stage) -> str:
    """The first rule a stage breaks, in words; empty when it breaks none."""
    updates = stage.steps * stage.hyper.updates_per_batch
    rules = (
        (stage.stage == number, f"stage must be {number}"),
        (stage.starts_from == _starts_from(number), f"starts_from must be {_starts_from(number)!r}"),
        (stage.steps >= 1, f"steps must be at least 1, not {stage.steps}"),
        (1 <= stage.handover_step <= stage.steps, f"handover_step {stage.handover_step} not in 1..{stage.steps}"),
        (stage.optimizer_steps == updates, f"optimizer_steps must be steps * updates_per_batch = {updates}"),
    )
    return next((text for holds, text in rules if not holds), "")


class StrategyExporter:
    """The neutral document alone: `strategy.yaml`."""

    @property
    def name(self) -> str:
        return "strategy"

    def files(self, tree: Tree, strategy: Strategy) -> dict[str, str]:
        return {"strategy.yaml": strategy_yaml(schedule_doc(tree, strategy))}
