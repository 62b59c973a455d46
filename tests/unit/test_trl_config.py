"""HyperParams -> GRPOConfig: batches, units, refusals."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainer_kit import job_of

from llmzero.domain.errors import PhaseError
from llmzero.domain.types import HyperParams
from llmzero.trainers.trl.config import MICRO_TOKENS, batch_sizes, checked_extra, expected_lr, grpo_config


def config_of(tmp_path: Path, **hyper: Any) -> Any:
    return grpo_config(job_of(tmp_path, **hyper), output_dir=tmp_path, cuda=False, start_bytes=0)


def test_steps_are_rollout_batches(tmp_path: Path) -> None:
    config = config_of(tmp_path, updates_per_batch=2, warmup_steps=3)
    assert (config.max_steps, config.warmup_steps, config.logging_steps) == (8, 6, 2)
    assert (config.per_device_train_batch_size, config.steps_per_generation) == (8, 2)
    assert (config.gradient_accumulation_steps, config.num_iterations) == (1, 1)
    assert config.generation_batch_size == 16


def test_warm_up_under_a_constant_rate_is_not_lost(tmp_path: Path) -> None:
    assert config_of(tmp_path, warmup_steps=3).lr_scheduler_type == "constant_with_warmup"
    assert config_of(tmp_path).lr_scheduler_type == "constant"


def test_a_cpu_phase_computes_in_float32(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    assert (config.use_cpu, config.bf16, config.fp16, config.gradient_checkpointing) == (True, False, False, False)
    assert config.model_init_kwargs["dtype"] == "float32"


def test_large_weights_train_with_gradient_checkpointing(tmp_path: Path) -> None:
    big = grpo_config(job_of(tmp_path), output_dir=tmp_path, cuda=False, start_bytes=4_000_000_000)
    assert big.gradient_checkpointing


@given(
    prompts=st.integers(1, 64),
    group=st.integers(2, 64),
    tokens=st.integers(1, 65_536),
    data=st.data(),
)
def test_batches_divide_and_micro_batches_are_bounded(
    prompts: int, group: int, tokens: int, data: st.DataObject
) -> None:
    updates = data.draw(st.sampled_from([n for n in range(1, prompts + 1) if prompts % n == 0]))
    hyper = HyperParams(
        prompts_per_step=prompts, group_size=group, updates_per_batch=updates, max_completion_tokens=tokens
    )
    whole, mini, micro = batch_sizes(hyper)
    assert whole == prompts * group == mini * updates
    assert mini % micro == 0
    assert micro == 1 or micro * tokens <= MICRO_TOKENS


def test_updates_that_do_not_divide_the_batch_are_refused() -> None:
    with pytest.raises(PhaseError, match="updates_per_batch 3 does not divide the 16 completions"):
        batch_sizes(HyperParams(prompts_per_step=4, group_size=4, updates_per_batch=3))


def test_the_micro_batch_may_be_given(tmp_path: Path) -> None:
    config = config_of(tmp_path, extra={"per_device_train_batch_size": 4})
    assert (config.per_device_train_batch_size, config.gradient_accumulation_steps) == (4, 4)
    with pytest.raises(PhaseError, match="must divide 16"):
        config_of(tmp_path, extra={"per_device_train_batch_size": 5})


@pytest.mark.parametrize("name", ["activation_checkpointing", "gradient_checkpointing"])
def test_checkpointing_may_be_given_under_both_names(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        assert config_of(tmp_path, extra={name: True}).gradient_checkpointing


def test_extra_reaches_the_config(tmp_path: Path) -> None:
    config = config_of(tmp_path, extra={"weight_decay": 0.1, "delta": 4.0, "top_k": 5})
    assert (config.weight_decay, config.delta, config.top_k) == (0.1, 4.0, 5)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("weight_decai", "did you mean weight_decay"),
        ("beta", "use kl_coef instead"),
        ("learning_rate", "use learning_rate instead"),
        ("num_iterations", "use updates_per_batch instead"),
        ("resume_from_checkpoint", "decided by the trl trainer"),
    ],
)
def test_extra_names_are_checked(name: str, says: str) -> None:
    with pytest.raises(PhaseError, match=says) as caught:
        checked_extra(HyperParams(extra={name: 1}))
    assert caught.value.kind == "bad_config"


def test_what_trl_refuses_is_a_bad_config(tmp_path: Path) -> None:
    with pytest.raises(PhaseError, match="at least 2 generations") as caught:
        config_of(tmp_path, group_size=1)
    assert caught.value.kind == "bad_config"


def test_the_learning_rate_warms_up_and_decays() -> None:
    hyper = HyperParams(learning_rate=1.0, warmup_steps=2, updates_per_batch=2, lr_schedule="linear")
    rates = [expected_lr(hyper, update=i, updates=8) for i in range(8)]
    assert rates == [0.0, 0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25]
