"""The exported folder, run as its user runs it, against the search's own trainer with the same seeds."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from llmzero.domain.config import EvalConfig, RunConfig
from llmzero.domain.events import PhaseFinished, PhaseProposed, RunStarted, Tree, fold
from llmzero.domain.jobs import Job, Weights
from llmzero.domain.strategy import strategy_of
from llmzero.domain.types import HyperParams, Phase, PhaseResult, Proposal, Selection
from llmzero.exports.trl import TrlExporter
from llmzero.ports import Task
from llmzero.wiring import make_trainer

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")

PLUGIN = '''
from llmzero.domain.examples import Example, Reward

class Letters:
    """Reward: the share of the answer's characters that are the asked letter."""
    name = "letters"

    def examples(self, split):
        return [Example(f"{split}{i}", "letter", {"letter": "abcd"[i % 4]}) for i in range(64)]

    def prompt(self, example):
        return ({"role": "user", "content": f"Write {example.fields['letter']}"},)

    def reward(self, example, transcript):
        text = transcript.answer
        return Reward(text.count(example.fields["letter"]) / max(8, len(text)), "share")

def letters(*, data, seed):
    return Letters()
'''
"""A task of somebody else's, found by its entry point as any plug-in is."""

FIRST = HyperParams(
    learning_rate=1e-2, kl_coef=0.0, group_size=4, prompts_per_step=4, max_completion_tokens=24, updates_per_batch=2
)
SECOND = replace(FIRST, kl_coef=0.2, clip_high=0.3, temperature=1.1, lr_schedule="linear", warmup_steps=1)
THIRD = replace(SECOND, kl_coef=0.4, lr_schedule="cosine", warmup_steps=0, entropy_coef=0.01)
STAGES = {"stage1": "n1", "stage2": "n2", "stage3": "n3"}
EVAL = EvalConfig(every=2, curve_items=24, curve_samples=1, items=64, samples=2, max_completion_tokens=24)


@dataclass(frozen=True)
class Searched:
    """A search's tree, where each node's weights are, and the exported folder with what it trained."""

    tree: Tree
    folders: Mapping[str, Path]
    folder: Path
    output: Path


def install_plugin(site: Path) -> Task:
    """The task, importable by any Python that has `site` on its path."""
    info = site / "letters_task-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "letters_task.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: letters-task\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[llmzero.tasks]\nletters = letters_task:letters\n")
    scope: dict[str, Any] = {}
    exec(PLUGIN, scope)
    task: Task = scope["letters"](data="mini", seed=0)
    return task


def tiny_model(folder: Path) -> Path:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from llmzero.trainers.nano.tokenizer import build_tokenizer

    tokenizer = build_tokenizer(["Write ", "aa", "bb", "cc", "dd"])
    torch.manual_seed(0)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen3Config(vocab_size=len(tokenizer), head_dim=16, intermediate_size=64, **ids, **shape)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def phase_of(node: str, hyper: HyperParams, steps: int, **more: Any) -> Phase:
    parent = f"n{int(node[1:]) - 1}" if node != "n0" else None
    return Phase(id=node, parent=parent, hyper=hyper, steps=steps, eval_every=2, seed=100 + steps, **more)


def trained(config: RunConfig, task: Task, phase: Phase, *, start: Path, base: Path, workdir: Path) -> PhaseResult:
    """What the search's worker does with the phase."""
    job = Job(
        kind="train",
        phase=phase,
        start=Weights(path=str(start)),
        anchor=Weights(path=str(base if phase.kl_anchor == "base" else start)),
        task=config.task,
        data=config.data,
        model=config.model,
        trainer=config.trainer,
        eval=config.eval,
        threads=config.threads,
        run_seed=config.seed,
    )
    return make_trainer("trl").train(job, task, report=lambda row: None, should_stop=lambda: False, workdir=workdir)


def run_script(folder: Path, *arguments: str, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    more = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(site or folder.parent / "site")}
    command = [sys.executable, str(folder / "train.py"), "--output", str(folder.parent / "out"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **more})


def search(root: Path) -> tuple[Tree, dict[str, Path]]:
    """Three phases by the search's trainer, and where each node's weights are."""
    task, base = install_plugin(root / "site"), tiny_model(root / "base")
    config = RunConfig(task="letters", model=str(base), trainer="trl", seed=3, eval=EVAL, threads=1)
    events: list[Any] = [RunStarted(run="r", config=config)]
    folders = {"n0": base}
    stages = (phase_of("n1", FIRST, 6), phase_of("n2", SECOND, 5), phase_of("n3", THIRD, 4, kl_anchor="parent"))
    for phase in (phase_of("n0", FIRST, 0), *stages):
        start = folders[phase.parent or "n0"]
        result = trained(config, task, phase, start=start, base=base, workdir=root / phase.id)
        folders.setdefault(phase.id, root / phase.id / "checkpoint")
        selection = Selection(parent=phase.parent or "n0", kind="base", reason="")
        told = Proposal(proposer="p", pathology="x", diagnosis="")
        events.append(PhaseProposed(phase=phase, selection=selection, proposal=told))
        events.append(PhaseFinished(node=phase.id, result=result))
    return fold(events), folders


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    root = tmp_path_factory.mktemp("export")
    tree, folders = search(root)
    for name, text in TrlExporter().files(tree, strategy_of(tree, "n3")).items():
        (root / "exported" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "exported" / name).write_text(text, encoding="utf-8")
    done = run_script(root / "exported", "--evaluate")
    assert done.returncode == 0, done.stderr[-3000:]
    return Searched(tree, folders, root / "exported", root / "out")


def tensors(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "model.safetensors"))


def distance(one: Path, other: Path) -> float:
    """Largest difference between two models' weights."""
    first, second = tensors(one), tensors(other)
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def test_each_stage_scores_what_its_node_scored(searched: Searched) -> None:
    scores = json.loads((searched.output / "scores.json").read_text())
    assert list(scores) == list(STAGES)
    for stage, node in STAGES.items():
        result = searched.tree.nodes[node].result
        assert result is not None
        assert result.score is not None
        assert result.score_se is not None
        noise = math.hypot(scores[stage]["se"], result.score_se)
        assert abs(scores[stage]["score"] - result.score) <= 3 * noise


def test_each_stage_ends_in_the_weights_of_its_node(searched: Searched) -> None:
    """Bit by bit on one machine: same start (the stage before), data, reference, schedule horizon and handover."""
    for stage, node in STAGES.items():
        assert distance(searched.output / stage, searched.folders[node]) == 0.0
        assert distance(searched.output / stage, searched.folders["n0"]) > 1e-4


def test_a_stage_ends_at_its_handover_and_not_at_its_horizon(searched: Searched) -> None:
    kept = {node: searched.tree.nodes[node].result.checkpoint.step for node in STAGES.values()}  # type: ignore[union-attr]
    updates = [json.loads((searched.output / stage / "llmzero_stage.json").read_text())["update"] for stage in STAGES]
    assert updates == [2 * step for step in kept.values()]
    assert any(kept[node] < searched.tree.nodes[node].phase.steps for node in kept)


def test_the_same_command_again_trains_nothing(searched: Searched) -> None:
    before = {path: path.stat().st_mtime_ns for path in searched.output.rglob("*.safetensors")}
    again = run_script(searched.folder)
    assert again.returncode == 0, again.stderr[-3000:]
    assert again.stdout.splitlines() == [f"stage {n}: done already, skipped" for n in (1, 2, 3)]
    assert {path: path.stat().st_mtime_ns for path in searched.output.rglob("*.safetensors")} == before


def test_only_the_unfinished_stages_are_trained(searched: Searched, tmp_path: Path) -> None:
    output = tmp_path / "out"
    shutil.copytree(searched.output, output)
    shutil.rmtree(output / "stage3")
    (output / "stage3.partial").mkdir()
    (output / "stage3.partial" / "junk").touch()
    done = run_script(searched.folder, "--output", str(output), "--stages", "1-3")
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("stage")]
    assert lines == [
        "stage 1: done already, skipped",
        "stage 2: done already, skipped",
        f"stage 3: training from {output / 'stage2'}",
    ]
    assert distance(output / "stage3", searched.folders["n3"]) == 0.0
    assert not (output / "stage3.partial").exists()


def test_a_stage_edited_after_training_is_refused(searched: Searched, tmp_path: Path) -> None:
    folder = tmp_path / "edited"
    shutil.copytree(searched.folder, folder)
    stage = folder / "stages" / "stage2.yaml"
    stage.write_text(stage.read_text().replace("learning_rate: 0.01", "learning_rate: 1e-3"))
    done = run_script(folder, "--output", str(searched.output), site=searched.folder.parent / "site")
    assert done.returncode == 1
    assert "stage2: made with other settings" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stage_whose_start_is_missing_is_refused(searched: Searched, tmp_path: Path) -> None:
    done = run_script(searched.folder, "--output", str(tmp_path), "--stages", "2")
    assert done.returncode == 1
    assert "stage 1 is not trained yet: stage 2 starts from it" in done.stderr


@pytest.mark.parametrize("stages", ["0", "3-1", "x", "1,2"])
def test_a_stage_range_that_means_nothing_is_refused(searched: Searched, stages: str) -> None:
    done = run_script(searched.folder, "--stages", stages)
    assert done.returncode == 2
    assert "give one stage (2) or a range (1-3)" in done.stderr


def test_what_cannot_be_found_is_one_line(searched: Searched) -> None:
    for arguments, words in ((("--model", "no/such/folder"), "train.py: model"), (("--stages", "4"), "no stage 4: ")):
        done = run_script(searched.folder, *arguments)
        assert done.returncode == 1
        assert done.stderr.startswith(words)
        assert done.stderr.count("\n") == 1
