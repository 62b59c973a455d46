"""The TRL folder: the same GRPOConfig as the trl trainer's, accepted by TRL, in files nobody's text can break."""

from __future__ import annotations

import dataclasses
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from llmzero.domain.config import EvalConfig, RunConfig
from llmzero.domain.errors import UsageError
from llmzero.domain.events import PhaseProposed, RunStarted, Tree, fold
from llmzero.domain.jobs import Job, Weights
from llmzero.domain.strategy import strategy_of
from llmzero.domain.types import HyperParams, Phase, Proposal, Selection
from llmzero.exports.trl import TrlExporter, grpo_fields, requirements, run_fields
from llmzero.trainers.trl.config import CHECKPOINTED_BYTES, grpo_config

DOCS = Path(__file__).parents[2] / "docs" / "export.md"
pytestmark = pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")
# transformers' new name for it is not known to every version TRL runs with.

MACHINE = ("output_dir", "logging_dir", "run_name", "disable_tqdm")
"""GRPOConfig fields that say where and how loudly a run works, not what it trains."""

HYPER = st.builds(
    HyperParams,
    learning_rate=st.floats(1e-8, 1e-2),
    kl_coef=st.sampled_from((0.0, 0.001, 0.3)),
    temperature=st.floats(0.4, 1.6),
    top_p=st.floats(0.5, 1.0),
    clip_low=st.floats(0.05, 0.4),
    clip_high=st.floats(0.05, 0.6),
    group_size=st.integers(1, 16).map(lambda n: 2 * n),
    prompts_per_step=st.integers(1, 16).map(lambda n: 4 * n),
    max_completion_tokens=st.sampled_from((8, 48, 512, 4096)),
    updates_per_batch=st.sampled_from((1, 2, 4)),
    loss_type=st.sampled_from(("grpo", "dapo", "dr_grpo", "bnpo")),
    advantage_norm=st.sampled_from(("group", "batch", "none")),
    entropy_coef=st.floats(0, 0.02),
    max_grad_norm=st.floats(0.05, 2.0),
    lr_schedule=st.sampled_from(("constant", "linear", "cosine")),
    warmup_steps=st.integers(0, 20),
    mask_truncated=st.booleans(),
    extra=st.sampled_from(({}, {"delta": 4.0, "weight_decay": 0.1}, {"per_device_train_batch_size": 2, "min_p": 0.05})),
)


def job_of(hyper: HyperParams, *, steps: int, seed: int) -> Job:
    phase = Phase(id="n1", parent="n0", hyper=hyper, steps=steps, eval_every=10, seed=seed)
    base = Weights(path="base")
    names = {"task": "t", "data": "mini", "model": "nano", "trainer": "trl"}
    return Job(kind="train", phase=phase, start=base, anchor=base, eval=EvalConfig(), **names)


def exported_config(hyper: HyperParams, *, steps: int, seed: int, model: str = "nano") -> Any:
    """As train.py builds it on a machine without a GPU, after a trip through the stage's YAML."""
    from trl import GRPOConfig

    tree = tree_of(hyper, steps=steps, seed=seed, model=model)
    text = TrlExporter().files(tree, strategy_of(tree, "n1"))["stages/stage1.yaml"]
    fields = {name: value for name, value in yaml.safe_load(text).items() if name != "llmzero"}
    return GRPOConfig(**fields, output_dir="out", use_cpu=True, bf16=False, dataloader_pin_memory=False)


def tree_of(
    hyper: HyperParams, *, steps: int = 6, seed: int = 1, model: str = "nano", optimizer: Any = "reset"
) -> Tree:
    root = Phase(id="n0", parent=None, hyper=HyperParams(), steps=0, eval_every=2, seed=1)
    phase = replace(root, id="n1", parent="n0", hyper=hyper, steps=steps, seed=seed, optimizer=optimizer)
    selection = Selection(parent="n0", kind="base", reason="")
    told = Proposal(proposer="p", pathology="x", diagnosis="")
    proposed = [PhaseProposed(phase=each, selection=selection, proposal=told) for each in (root, phase)]
    return fold([RunStarted(run="r", config=RunConfig(model=model)), *proposed])


@settings(max_examples=40, deadline=None)
@given(hyper=HYPER, steps=st.integers(1, 500), seed=st.integers(0, 2**31 - 1))
def test_the_exported_config_is_the_trainers_field_by_field(hyper: HyperParams, steps: int, seed: int) -> None:
    job = job_of(hyper, steps=steps, seed=seed)
    trained = vars(grpo_config(job, output_dir=Path("out"), cuda=False, start_bytes=0))
    exported = vars(exported_config(hyper, steps=steps, seed=seed))
    different = {k: (v, exported[k]) for k, v in trained.items() if k not in MACHINE and exported[k] != v}
    assert {k: v for k, v in different.items() if not k.startswith("_") and k != "distributed_state"} == {}


def test_big_models_checkpoint_their_gradients_as_in_the_trainer() -> None:
    job = job_of(HyperParams(), steps=2, seed=1)
    trained = grpo_config(job, output_dir=Path("out"), cuda=False, start_bytes=CHECKPOINTED_BYTES + 1)
    assert trained.gradient_checkpointing
    assert exported_config(HyperParams(), steps=2, seed=1, model="owner/big").gradient_checkpointing


def test_every_exported_name_is_a_field_of_trl() -> None:
    from trl import GRPOConfig

    names = {each.name for each in dataclasses.fields(GRPOConfig)}
    assert {*grpo_fields(HyperParams(), steps=1, seed=0), *run_fields("nano", 1)} <= names


def test_updates_share_a_batch_and_count_as_trl_steps() -> None:
    hyper = HyperParams(prompts_per_step=4, group_size=8, updates_per_batch=2, warmup_steps=3)
    fields = grpo_fields(hyper, steps=10, seed=5)
    assert (fields["max_steps"], fields["warmup_steps"], fields["steps_per_generation"]) == (20, 6, 2)
    assert fields["per_device_train_batch_size"] * fields["gradient_accumulation_steps"] == 16
    assert fields["lr_scheduler_type"] == "constant_with_warmup"


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        (HyperParams(extra={"beta": 0.1}), "extra.beta is already set"),
        (HyperParams(prompts_per_step=1, group_size=8, updates_per_batch=3), "updates_per_batch 3 must divide 8"),
        (HyperParams(extra={"per_device_train_batch_size": 3}), "must divide 64"),
        (HyperParams(extra={"per_device_train_batch_size": "x"}), "must divide 64"),
    ],
)
def test_what_trl_cannot_train_is_refused(hyper: HyperParams, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        grpo_fields(hyper, steps=1, seed=0)


def test_a_kept_optimizer_is_refused() -> None:
    tree = tree_of(HyperParams(), optimizer="keep")
    with pytest.raises(UsageError, match="fresh optimizer"):
        TrlExporter().files(tree, strategy_of(tree, "n1"))


def test_requirements_pin_what_was_recorded_and_nothing_odd() -> None:
    lines = requirements(
        {"torch": "2.13.0+cpu", "trl": "1.16.0", "datasets": "1; rm -rf /", "llmzero": "\n--index-url x"}
    )
    assert lines.splitlines()[:4] == ["torch==2.13.0", "transformers>=5.20,<6", "trl==1.16.0", "datasets>=5"]
    assert "rm -rf" not in lines
    assert "index-url" not in lines


def test_names_of_a_run_cannot_break_the_readme() -> None:
    tree = tree_of(HyperParams(), model="a`b|c\n# Title")
    text = TrlExporter().files(tree, strategy_of(tree, "n1"))["README.md"]
    assert "`a'b/c # Title`" in text
    assert "\n# Title" not in text


def test_the_script_is_short_compiles_and_holds_no_text_of_the_run() -> None:
    files = [
        TrlExporter().files(t, strategy_of(t, "n1"))["train.py"]
        for t in (tree_of(HyperParams()), tree_of(HyperParams(), model='"""'))
    ]
    assert files[0] == files[1]
    assert len(files[0].splitlines()) < 200
    compile(files[0], "train.py", "exec")


def written(folder: Path) -> Path:
    """The exported train.py and one stage, on disk."""
    tree = tree_of(HyperParams(learning_rate=1e-6))
    for name, text in TrlExporter().files(tree, strategy_of(tree, "n1")).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_the_pages_name_every_option_of_the_script(tmp_path: Path) -> None:
    folder = written(tmp_path)
    command = [sys.executable, str(folder / "train.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    options = set(re.findall(r"--[a-z]+", done.stdout)) - {"--help"}
    assert options == {"--model", "--output", "--stages", "--evaluate"}
    for page in (folder / "README.md", DOCS):
        assert options <= set(re.findall(r"--[a-z]+", page.read_text(encoding="utf-8")))


def test_the_script_reads_a_number_written_by_hand_as_one(tmp_path: Path) -> None:
    folder = written(tmp_path)
    stage = folder / "stages" / "stage1.yaml"
    script = runpy.run_path(str(folder / "train.py"))
    fields, block = script["read_stage"](stage)
    assert fields["learning_rate"] == 1e-6
    assert block["handover_step"] == 6
    stage.write_text(stage.read_text(encoding="utf-8").replace("1.0e-06", "3e-6"), encoding="utf-8")
    assert script["read_stage"](stage)[0]["learning_rate"] == 3e-6


@pytest.mark.parametrize("text", ["1e-05", "a\n---\nb: c", "!!python/object:x", '"""\nimport os'])
def test_text_in_extra_stays_text(text: str) -> None:
    tree = tree_of(HyperParams(extra={"run_name": text}))
    stage = yaml.safe_load(TrlExporter().files(tree, strategy_of(tree, "n1"))["stages/stage1.yaml"])
    assert stage["run_name"] == text
