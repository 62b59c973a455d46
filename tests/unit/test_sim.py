"""The simulator: reacts in the reported directions, fails on demand."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from trainer_kit import job_of, play

from llmzero.domain.errors import PhaseError
from llmzero.domain.jobs import Job
from llmzero.trainers.sim import FILE, SimTrainer, load_state

GOOD: dict[str, Any] = {"learning_rate": 1e-4, "kl_coef": 0.02, "group_size": 8, "prompts_per_step": 8}


def end_of(folder: Path, seed: int = 1, start: str = "base", steps: int = 60, **hyper: Any) -> float:
    """The true success rate a phase of the simulator ends with."""
    phase = {"steps": steps, "eval_every": 10, "seed": seed, "keep": "last"}
    job = job_of(Path(start), phase=phase, **{**GOOD, "max_completion_tokens": 32, **hyper})
    return load_state(str(play(SimTrainer(), job, folder / str(seed)).checkpoint)).success


def mean_end(folder: Path, **hyper: Any) -> float:
    return fmean(end_of(folder, seed=seed, **hyper) for seed in range(12))


def test_learning_rates_are_timid_good_or_ruinous(tmp_path: Path) -> None:
    timid, good, ruinous = (mean_end(tmp_path, learning_rate=rate) for rate in (1e-5, 1e-4, 1e-3))
    assert load_state("base").success < timid < good - 0.2
    assert ruinous < 0.1


@pytest.mark.parametrize(
    "worse",
    [{"kl_coef": 0.5}, {"group_size": 4, "prompts_per_step": 4}, {"temperature": 1.5}, {"max_completion_tokens": 12}],
)
def test_what_hurts_hurts(worse: dict[str, Any], tmp_path: Path) -> None:
    assert mean_end(tmp_path, **worse) < mean_end(tmp_path) - 0.02


def test_lowering_the_rate_in_a_later_phase_beats_staying(tmp_path: Path) -> None:
    """The reason to search schedules: no single rate does as well in the same number of steps."""

    def two(folder: Path, first: float, second: float, seed: int) -> float:
        end_of(folder / "1", seed=seed, learning_rate=first)
        start = str(folder / "1" / str(seed) / "checkpoint")
        return end_of(folder / "2", seed=seed, start=start, learning_rate=second)

    falling = fmean(two(tmp_path / "f", 2e-4, 3e-5, seed) for seed in range(20))
    for rate in (3e-5, 2e-4):
        assert falling > fmean(two(tmp_path / f"{rate}", rate, rate, seed) for seed in range(20))


def test_a_low_cap_truncates(tmp_path: Path) -> None:
    played = play(SimTrainer(), job_of(tmp_path, max_completion_tokens=8), tmp_path / "w")
    assert played.train_rows()[0].values["truncated_share"] > 0.9


def test_the_checkpoint_is_one_small_json_file(tmp_path: Path) -> None:
    played = play(SimTrainer(), job_of(tmp_path), tmp_path / "w")
    assert [file.name for file in played.checkpoint.iterdir()] == [FILE]
    assert set(json.loads((played.checkpoint / FILE).read_text())) == {"skill", "entropy", "length"}


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"skill": ')
    with pytest.raises(PhaseError, match=FILE) as caught:
        load_state(str(tmp_path))
    assert caught.value.kind == "bad_checkpoint"


def faulty(tmp_path: Path, **options: str) -> Job:
    return replace(job_of(tmp_path), options=options)


@pytest.mark.parametrize(("fault", "kind"), [("nan", "nan"), ("oom", "out_of_memory"), ("typo", "bad_config")])
def test_faults_strike_at_their_step(fault: str, kind: str, tmp_path: Path) -> None:
    rows: list[int] = []
    job = faulty(tmp_path, sim_fault=fault, sim_fault_step="3")
    with pytest.raises(PhaseError) as caught:
        SimTrainer().train(
            job, None, report=lambda row: rows.append(row.step), should_stop=lambda: False, workdir=tmp_path / "w"
        )  # type: ignore[arg-type]
    assert caught.value.kind == kind
    assert rows[-1] == 2


def test_a_fault_may_be_for_one_phase_or_the_first_attempts(tmp_path: Path) -> None:
    elsewhere = faulty(tmp_path, sim_fault="nan", sim_fault_phase="n9")
    retried = replace(faulty(tmp_path, sim_fault="nan", sim_fault_attempts="1"), attempt=2)
    assert play(SimTrainer(), elsewhere, tmp_path / "a").result.steps_done == 4
    assert play(SimTrainer(), retried, tmp_path / "b").result.steps_done == 4


def test_an_unexpected_error_and_a_bad_number_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="simulated"):
        play(SimTrainer(), faulty(tmp_path, sim_fault="error"), tmp_path / "a")
    with pytest.raises(PhaseError, match="sim_step_s='soon'"):
        play(SimTrainer(), faulty(tmp_path, sim_step_s="soon"), tmp_path / "b")


def test_steps_can_be_slowed_down(tmp_path: Path) -> None:
    played = play(SimTrainer(), faulty(tmp_path, sim_step_s="0.02"), tmp_path / "w")
    assert played.result.cost.wall_s >= 0.08


DIE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from dataclasses import replace
from trainer_kit import job_of, play
from llmzero.trainers.sim import SimTrainer
assert not {"torch", "transformers", "trl"} & set(sys.modules)
play(SimTrainer(), replace(job_of(Path(sys.argv[2])), options={"sim_fault": "die"}), Path(sys.argv[2]) / "w")
"""


def test_it_can_die_and_never_loads_torch(tmp_path: Path) -> None:
    kit = Path(__file__).resolve().parent.parent
    ended = subprocess.run([sys.executable, "-c", DIE, str(kit), str(tmp_path)], check=False, capture_output=True)
    assert (ended.returncode, ended.stderr) == (-9, b"")
