"""Phases of the TRL trainer on a tiny model: anchors, the launch check, failures, keeping, undisturbed randomness."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from trainer_kit import LETTERS, Letters, job_of, play, tiny_model, weight_bytes

from llmzero.domain.errors import PhaseError
from llmzero.domain.examples import Example, Reward, Transcript
from llmzero.domain.series import metric
from llmzero.trainers.trl import TrlTrainer
from llmzero.trainers.trl import trainer as module
from llmzero.trainers.trl.weights import copy_of_tensors, differing, folder_of, load_model


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("other") / "model", seed=1)


def test_a_phase_learns(base: Path, tmp_path: Path) -> None:
    job = job_of(base, phase={"steps": 30, "eval_every": 30}, kl_coef=0.0, learning_rate=5e-2)
    rewards = [value for _, value in metric(play(TrlTrainer(), job, tmp_path).rows, "reward")]
    assert fmean(rewards[-8:]) > fmean(rewards[:8]) + 0.1


def test_the_reference_is_the_anchor_not_the_start(base: Path, other: Path, tmp_path: Path) -> None:
    """On-policy, the KL of the first step is between the start weights and the anchor: 0 only where they are equal."""
    near = play(TrlTrainer(), job_of(base, phase={"steps": 1}), tmp_path / "a")
    far = play(TrlTrainer(), job_of(base, anchor=other, phase={"steps": 1}), tmp_path / "b")
    assert metric(near.rows, "kl") == [(1, pytest.approx(0.0, abs=1e-6))]
    assert metric(far.rows, "kl")[0][1] > 1e-4


def _nudge(model: Any) -> None:
    next(iter(model.parameters())).data[0, 0] += 1e-3


def _use_optimizer(trainer: Any) -> None:
    optimizer = trainer.create_optimizer()
    parameter = optimizer.param_groups[0]["params"][0]
    optimizer.state[parameter] = {"step": 1}


SABOTAGE: dict[str, Callable[[Any], None]] = {
    "kl_coef": lambda t: setattr(t, "beta", 0.5),
    "temperature": lambda t: setattr(t, "temperature", 0.7),
    "top_p": lambda t: setattr(t, "top_p", 0.7),
    "sampling": lambda t: setattr(t.generation_config, "temperature", 0.7),
    "clip_low": lambda t: setattr(t, "epsilon_low", 0.1),
    "clip_high": lambda t: setattr(t, "epsilon_high", 0.9),
    "group_size": lambda t: setattr(t, "num_generations", 2),
    "max_completion_tokens": lambda t: setattr(t, "max_completion_length", 99),
    "updates_per_batch": lambda t: setattr(t, "num_iterations", 2),
    "loss_type": lambda t: setattr(t, "loss_type", "bnpo"),
    "advantage_norm": lambda t: setattr(t, "scale_rewards", "none"),
    "entropy_coef": lambda t: setattr(t, "entropy_coef", 0.1),
    "mask_truncated": lambda t: setattr(t, "mask_truncated_completions", True),
    "learning_rate": lambda t: setattr(t.args, "learning_rate", 1e-9),
    "extra.weight_decay": lambda t: setattr(t.args, "weight_decay", 0.3),
    "start weights": lambda t: _nudge(t.model),
    "kl anchor": lambda t: _nudge(t.ref_model),
    "optimizer state": _use_optimizer,
}


@pytest.mark.parametrize("name", sorted(SABOTAGE))
def test_a_trainer_that_departs_from_its_phase_is_caught(
    name: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = module._start

    def sabotaged(*args: Any, **named: Any) -> Any:
        run = genuine(*args, **named)
        SABOTAGE[name](run.trainer)
        return run

    monkeypatch.setattr(module, "_start", sabotaged)
    with pytest.raises(PhaseError, match=f"^{name}.*: asked .*, trainer has") as caught:
        play(TrlTrainer(), job_of(base, extra={"weight_decay": 0.0}), tmp_path)
    assert caught.value.kind == "mismatch"


def test_a_wrong_anchor_is_caught(base: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_set_anchor", lambda trainer, anchor: None)
    with pytest.raises(PhaseError, match="kl anchor"):
        play(TrlTrainer(), job_of(base, anchor=other), tmp_path)


@pytest.mark.parametrize(
    "hyper",
    [
        {"lr_schedule": "cosine", "warmup_steps": 1, "updates_per_batch": 2},
        {"lr_schedule": "linear", "loss_type": "dr_grpo", "advantage_norm": "batch"},
        {"loss_type": "bnpo", "advantage_norm": "none", "entropy_coef": 0.01, "mask_truncated": True},
        {"loss_type": "grpo", "top_p": 0.9, "temperature": 1.3, "extra": {"per_device_train_batch_size": 4}},
    ],
)
def test_the_whole_space_launches(hyper: dict[str, Any], base: Path, tmp_path: Path) -> None:
    played = play(TrlTrainer(), job_of(base, phase={"steps": 3}, **hyper), tmp_path)
    assert played.result.cost.optimizer_steps == 3 * hyper.get("updates_per_batch", 1)


def test_dr_grpo_says_what_its_loss_is_divided_by(base: Path, tmp_path: Path) -> None:
    played = play(TrlTrainer(), job_of(base, phase={"steps": 1}, loss_type="dr_grpo"), tmp_path)
    assert "max_completion_tokens (6)" in played.result.message


class AlwaysOne(Letters):
    def reward(self, example: Example, transcript: Transcript) -> Reward:
        return Reward(1.0, "always")


@pytest.mark.parametrize("norm", ["group", "batch", "none"])
def test_dead_groups_are_counted_whatever_the_normalisation(norm: Any, base: Path, tmp_path: Path) -> None:
    played = play(TrlTrainer(), job_of(base, phase={"steps": 1}, advantage_norm=norm), tmp_path, task=AlwaysOne())
    assert metric(played.rows, "zero_std_share") == [(1, 1.0)]


class Broken(Letters):
    """Raises on answers that begin with the first letter and gives 7 to those with the second: neither is a reward."""

    def reward(self, example: Example, transcript: Transcript) -> Reward:
        if transcript.answer.startswith(LETTERS[0]):
            raise KeyError("no such letter")
        return Reward(7.0 if transcript.answer.startswith(LETTERS[1]) else 1.0, "")


def test_a_failing_reward_counts_zero_and_is_reported(base: Path, tmp_path: Path) -> None:
    played = play(TrlTrainer(), job_of(base, phase={"steps": 2}), tmp_path, task=Broken())
    for row in played.train_rows():
        assert row.values["reward_errors"] > 0
        assert row.values["reward"] == pytest.approx(1 - row.values["reward_errors"] / 16)


def test_weights_that_became_nan_end_the_phase(base: Path, tmp_path: Path) -> None:
    with pytest.raises(PhaseError, match="learning_rate") as caught:
        play(TrlTrainer(), job_of(base, learning_rate=1e38, kl_coef=0.0), tmp_path)
    assert caught.value.kind == "nan"


class Hungry(Letters):
    def reward(self, example: Example, transcript: Transcript) -> Reward:
        raise MemoryError


def test_running_out_of_memory_is_named(base: Path, tmp_path: Path) -> None:
    with pytest.raises(PhaseError, match="lower max_completion_tokens") as caught:
        play(TrlTrainer(), job_of(base), tmp_path, task=Hungry())
    assert caught.value.kind == "out_of_memory"


def test_evaluations_never_change_the_training(base: Path, tmp_path: Path) -> None:
    often = play(TrlTrainer(), job_of(base, phase={"keep": "last", "eval_every": 1}), tmp_path / "often")
    once = play(TrlTrainer(), job_of(base, phase={"keep": "last", "eval_every": 4}), tmp_path / "once")
    assert weight_bytes(often.checkpoint) == weight_bytes(once.checkpoint)
    assert metric(often.rows, "loss") == metric(once.rows, "loss")


def test_the_best_weights_are_those_of_the_kept_step(base: Path, tmp_path: Path) -> None:
    """A phase cut at the kept step and keeping its last weights ends in the same weights."""
    job = job_of(base, phase={"steps": 6, "eval_every": 1}, learning_rate=5e-2)
    best = play(TrlTrainer(), job, tmp_path / "best")
    assert best.result.checkpoint is not None
    kept = best.result.checkpoint.step
    cut = replace(job, phase=replace(job.phase, steps=kept, keep="last"))
    last = play(TrlTrainer(), cut, tmp_path / "last")
    assert kept < 6
    assert weight_bytes(best.checkpoint) == weight_bytes(last.checkpoint)


def test_a_checkpoint_is_safetensors_only(base: Path, tmp_path: Path) -> None:
    played = play(TrlTrainer(), job_of(base, phase={"steps": 1}), tmp_path)
    names = {file.name for file in played.checkpoint.iterdir()}
    assert {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json"} <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pth", ".pkl"))]


def test_a_folder_without_safetensors_is_refused(base: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(PhaseError, match="safetensors") as caught:
        folder_of(str(copy))
    assert caught.value.kind == "bad_checkpoint"


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PhaseError, match="no such folder") as caught:
        play(TrlTrainer(), job_of(tmp_path / "nowhere"), tmp_path)
    assert caught.value.kind == "bad_checkpoint"


def test_a_truncated_weights_file_is_refused(base: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(PhaseError) as caught:
        play(TrlTrainer(), job_of(copy, phase={"steps": 0}), tmp_path / "w")
    assert caught.value.kind == "bad_checkpoint"


def test_one_changed_number_is_seen(base: Path) -> None:
    model = load_model(base)
    assert differing(model, base) == []
    state = copy_of_tensors(model)
    state["model.norm.weight"][3] += 1e-6
    model.load_state_dict(state)
    assert differing(model, base) == ["model.norm.weight"]


def test_a_truncated_start_is_refused_before_training(base: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    (copy / "model.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}")
    with pytest.raises(PhaseError) as caught:
        play(TrlTrainer(), job_of(copy), tmp_path / "w")
    assert caught.value.kind == "bad_checkpoint"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        Path("/dev/full").write_bytes(b"weights")

    monkeypatch.setattr(module, "save_policy", full)
    with pytest.raises(PhaseError, match="disk full") as caught:
        play(TrlTrainer(), job_of(base, phase={"steps": 1}), tmp_path)
    assert caught.value.kind == "disk_full"


@pytest.mark.parametrize(("asked", "used"), [(0, 1), (2, 2)])
def test_small_weights_get_one_thread_unless_asked(asked: int, used: int, base: Path, tmp_path: Path) -> None:
    import torch

    before = torch.get_num_threads()
    try:
        play(TrlTrainer(), replace(job_of(base, phase={"steps": 0}), threads=asked), tmp_path)
        assert torch.get_num_threads() == used
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_vllm_where_it_is_not_installed_is_a_bad_config(base: Path, tmp_path: Path) -> None:
    with pytest.raises(PhaseError, match="vLLM") as caught:
        play(TrlTrainer(), job_of(base, extra={"use_vllm": True}), tmp_path)
    assert caught.value.kind == "bad_config"


def test_a_folder_without_some_tensors_is_refused(base: Path, tmp_path: Path) -> None:
    """transformers would fill them with random numbers and only warn."""
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(base, tmp_path / "model"))
    tensors = load_file(folder / "model.safetensors")
    gone = sorted(tensors)[-1]
    save_file({k: v for k, v in tensors.items() if k != gone}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(PhaseError, match="1 tensors are missing, first ") as caught:
        TrlTrainer().evaluate(job_of(folder), Letters(), workdir=tmp_path)
    assert caught.value.kind == "bad_checkpoint"
