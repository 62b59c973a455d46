"""strategy.yaml: what is written is what is read, whatever a model wrote into it; what cannot be meant is refused."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llmzero.domain.config import RunConfig
from llmzero.domain.errors import UsageError
from llmzero.domain.events import PhaseFinished, PhaseProposed, RunStarted, Tree, fold
from llmzero.domain.strategy import strategy_of
from llmzero.domain.types import (
    Change,
    Checkpoint,
    FailureKind,
    HyperParams,
    Phase,
    PhaseResult,
    Proposal,
    Scalar,
    Selection,
    Status,
)
from llmzero.exports.schedule import StrategyExporter, load_strategy, schedule_doc, strategy_yaml
from llmzero.exports.schema import HYPER_DOCS, documented
from llmzero.exports.yaml_text import emit
from llmzero.ports import Exporter

DOCS = Path(__file__).parents[2] / "docs" / "export.md"
HOSTILE = (
    'the reward\n"""\nimport os; os.system("touch /tmp/owned")\n"""',
    "!!python/object/apply:os.system ['touch owned']",
    "key: value # comment",
    "'single' \"double\" \\back\\slash\\n {{jinja}} ${shell} $(shell) `shell`",
    "- a\n- b\n...\n---\nschema: other",
    "tab\there, nul \x00, bell \x07, nel \x85, separators \u2028\u2029, bom \ufeff, emoji 😀, 化学, lone \ud800",
    "&anchor *alias | > % @",
    "trailing space \n\n",
    "x" * 5000,
)


def tree_of(*stages: tuple[HyperParams, Proposal], steps: int = 6, run: str = "r") -> Tree:
    """A chain n1, n2, ... of finished phases, each kept at step 4."""
    root = Phase(id="n0", parent=None, hyper=HyperParams(), steps=0, eval_every=2, seed=1)
    selection = Selection(parent="n0", kind="base", reason="")
    told = Proposal(proposer="p", pathology="base", diagnosis="")
    events = [RunStarted(run=run, config=RunConfig()), PhaseProposed(phase=root, selection=selection, proposal=told)]
    for number, (hyper, proposal) in enumerate(stages, start=1):
        node = f"n{number}"
        phase = replace(root, id=node, parent=f"n{number - 1}", hyper=hyper, steps=steps, seed=number)
        result = PhaseResult(
            status=Status.FINISHED,
            steps_done=steps,
            score=0.5,
            score_se=0.01,
            checkpoint=Checkpoint(path=node, digest="", step=4),
        )
        events += [
            PhaseProposed(phase=phase, selection=selection, proposal=proposal),
            PhaseFinished(node=node, result=result),
        ]
    return fold(events)


def said(text: str) -> Proposal:
    change = Change(field="learning_rate", value=1e-5, reason=text)
    return Proposal(proposer=text, pathology=text, diagnosis=text, changes=(change,), rationale=text)


def exported(tree: Tree) -> str:
    return StrategyExporter().files(tree, strategy_of(tree, list(tree.nodes)[-1]))["strategy.yaml"]


def small_text() -> str:
    return exported(tree_of((HyperParams(learning_rate=1e-5), said("fine"))))


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_a_model_stays_text(text: str) -> None:
    tree = tree_of((HyperParams(learning_rate=1e-5), said(text)), run=text)
    written = exported(tree)
    stage = load_strategy(written).stages[0]
    assert (stage.proposer, stage.pathology, stage.diagnosis, stage.rationale) == (text,) * 4
    assert stage.changes[0].reason == text
    assert load_strategy(written).provenance.run == text
    assert written.encode("utf-8")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(value=SCALARS)
def test_every_scalar_keeps_its_value_and_type(value: Scalar) -> None:
    read = yaml.safe_load(emit({"x": value, "y": [value], "z": {str(value): value}}))
    assert read == {"x": value, "y": [value], "z": {str(value): value}}
    assert type(read["x"]) is type(value)


@pytest.mark.parametrize(
    "text", ["1e-05", "1e5", "12", "0x1f", "1_000", "yes", "No", "null", "~", "", "2026-11-30", ".5"]
)
def test_text_that_looks_like_another_type_is_quoted(text: str) -> None:
    assert emit({"x": text}) == f'x: "{text}"\n'


@pytest.mark.parametrize("number", [1e-05, 3e-7, 1e22, 5e-324, 0.1, 1.0, -2.5e-10])
def test_a_number_is_a_number_in_yaml_1_1_and_1_2(number: float) -> None:
    text = emit({"x": number}).removeprefix("x: ").strip()
    assert re.fullmatch(r"-?\d+\.\d+(e[-+]\d+)?", text)
    assert float(text) == number


HYPER = st.builds(
    HyperParams,
    learning_rate=st.floats(1e-9, 1e-1),
    kl_coef=st.floats(0, 1),
    clip_high=st.floats(0.05, 0.6),
    group_size=st.integers(2, 64),
    prompts_per_step=st.integers(1, 64).map(lambda n: 4 * n),
    updates_per_batch=st.sampled_from((1, 2, 4)),
    loss_type=st.sampled_from(("grpo", "dapo", "dr_grpo", "bnpo")),
    mask_truncated=st.booleans(),
    extra=st.dictionaries(st.text(min_size=1).map(lambda t: f"x{t}"), SCALARS, max_size=3),
)


@given(hypers=st.lists(HYPER, min_size=1, max_size=4), text=st.text())
def test_what_is_written_is_what_is_read(hypers: list[HyperParams], text: str) -> None:
    tree = tree_of(*[(hyper, said(text)) for hyper in hypers])
    doc = schedule_doc(tree, strategy_of(tree, f"n{len(hypers)}"))
    assert load_strategy(strategy_yaml(doc)) == doc


def test_a_number_written_by_hand_is_read_as_one() -> None:
    text = small_text().replace("learning_rate: 1.0e-05", "learning_rate: 3e-6")
    assert load_strategy(text).stages[0].hyper.learning_rate == 3e-6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "handover_step: 4",
            "handover_stop: 4",
            r"stages\[0\]: unknown key 'handover_stop': did you mean handover_step",
        ),
        ("kl_coef:", "kl_coeff:", r"stages\[0\].hyper: unknown key 'kl_coeff': did you mean kl_coef"),
        ("schema: llmzero.strategy/1", "schema: llmzero.strategy/2", "newer than llmzero.strategy/1; upgrade"),
        ("schema: llmzero.strategy/1", "format: x", "not a strategy.yaml"),
        ("handover_step: 4", "handover_step: 7", "handover_step 7 not in 1..6"),
        ("handover_step: 4", "handover_step: four", "expected int, got 'four'"),
        ("starts_from: base", 'starts_from: "stage 3"', "starts_from must be 'base'"),
        ("optimizer_steps: 6", "optimizer_steps: 12", "optimizer_steps must be steps"),
        ("kl_anchor: base", "kl_anchor: child", "kl_anchor: expected one of"),
        ("  run: r", "  run: [r", "not YAML"),
        ("  run: r", "  run: !!python/object/apply:os.getcwd []", "not YAML"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(old: str, new: str, message: str) -> None:
    text = small_text()
    assert old in text
    with pytest.raises(UsageError, match=message) as caught:
        load_strategy(text.replace(old, new, 1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "- 1\n", "42\n", "schema: llmzero.strategy/x\n", "schema: llmzero.strategy/1\n"])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="strategy"):
        load_strategy(text)


def test_a_document_without_stages_is_refused() -> None:
    text = small_text()
    with pytest.raises(UsageError, match="no stages"):
        load_strategy(text[: text.index("stages:")] + "stages: []\n")


def test_the_base_alone_is_no_strategy() -> None:
    tree = tree_of()
    with pytest.raises(UsageError, match="base model alone"):
        schedule_doc(tree, strategy_of(tree, "n0"))


def test_a_failed_stage_is_not_exported() -> None:
    tree = tree_of((HyperParams(), said("")))
    failed = PhaseResult(status=Status.FAILED, steps_done=3, failure=FailureKind.NAN)
    broken = replace(tree, nodes={**tree.nodes, "n1": replace(tree.nodes["n1"], result=failed)})
    with pytest.raises(UsageError, match="node n1 failed without weights"):
        schedule_doc(broken, strategy_of(broken, "n1"))


def test_a_stopped_stage_hands_over_its_last_step_and_a_running_one_its_plan() -> None:
    tree = tree_of((HyperParams(), said("")))
    stopped = PhaseResult(status=Status.STOPPED, steps_done=3)
    for result, handover in ((stopped, 3), (None, 6)):
        changed = replace(tree, nodes={**tree.nodes, "n1": replace(tree.nodes["n1"], result=result)})
        assert schedule_doc(changed, strategy_of(changed, "n1")).stages[0].handover_step == handover


def test_versions_and_base_digest_come_from_the_run() -> None:
    tree = tree_of((HyperParams(), said("")))
    config = replace(tree.config, versions={"llmzero": "9.9", "trl": "1.16.0", "base_sha256": "abc"})
    told = schedule_doc(replace(tree, config=config), strategy_of(tree, "n1")).provenance
    assert (told.llmzero, told.base_digest, dict(told.versions)) == ("9.9", "abc", {"llmzero": "9.9", "trl": "1.16.0"})


def test_every_field_is_documented() -> None:
    assert [path for path, doc in documented() if not doc.strip()] == []
    assert set(HYPER_DOCS) == {each.name for each in fields(HyperParams)}
    assert not [doc for _, doc in documented() if "\n" in doc or "|" in doc]


def test_the_page_lists_every_field_as_the_file_does() -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE))
    schema = dict(documented())
    assert {name: rows.get(name) for name in schema} == schema
    assert {name for name in rows if re.match(r"(provenance|units|evaluation|outcome|stages)\b", name)} <= set(schema)


def test_the_exporter_fits_its_port() -> None:
    exporter: Exporter = StrategyExporter()
    tree = tree_of((HyperParams(), said("")))
    assert exporter.name == "strategy"
    assert list(exporter.files(tree, strategy_of(tree, "n1"))) == ["strategy.yaml"]
