"""The worker in real processes: whatever happens, its folder says what happened, and the phase can be run again."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import worker_jobs

from llmzero import wiring
from llmzero.domain.config import SCHEMA_VERSION, EvalConfig
from llmzero.domain.examples import Transcript
from llmzero.domain.jobs import Job, JobPaths, Weights
from llmzero.domain.types import FailureKind, HyperParams, Phase, PhaseResult, Status
from llmzero.executors.local import LocalExecutor
from llmzero.store.atomic import read_json, write_json
from llmzero.store.checkpoints import verify, weights_digest
from llmzero.store.locks import release, take
from llmzero.store.metrics import read_rows
from llmzero.trainers import worker

BASE = Weights(path="nano")


def job(*, steps: int = 4, kind: str = "train", options: Mapping[str, str] | None = None) -> Job:
    hyper = HyperParams(learning_rate=1e-4, max_completion_tokens=48)
    return Job(
        kind="evaluate" if kind == "evaluate" else "train",
        phase=Phase(id="n1", parent="n0", hyper=hyper, steps=steps, eval_every=2, seed=7),
        start=BASE,
        anchor=BASE,
        task="chemcot",
        data="mini",
        model="nano",
        trainer="sim",
        eval=EvalConfig(),
        options=options or {},
    )


@pytest.fixture(name="paths")
def _paths(tmp_path: Path) -> JobPaths:
    return JobPaths(tmp_path / "phases" / "n1")


def run(paths: JobPaths, what: Job | None = None) -> int:
    """The exit code of a worker on the folder."""
    if what is not None:
        write_json(paths.spec, what)
    paths.root.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, worker_jobs.__file__, str(paths.root)]
    return subprocess.run(command, check=False, timeout=60).returncode


def result_of(paths: JobPaths, what: Job | None = None) -> PhaseResult:
    assert run(paths, what) == 0
    return read_json(PhaseResult, paths.result)


def test_a_phase_leaves_a_whole_folder(paths: JobPaths, capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    result = result_of(paths, job(options={"sim_step_s": "0.02"}))
    wall_s = time.monotonic() - began
    assert result.status is Status.FINISHED
    assert result.steps_done == 4
    assert result.checkpoint is not None
    assert result.checkpoint.path == "phases/n1/checkpoint"
    assert result.checkpoint.digest == weights_digest(paths.checkpoint)
    assert 0.08 <= result.cost.wall_s <= wall_s
    assert 0 < result.cost.start_s < result.cost.wall_s
    assert [row.step for row in read_rows(paths.metrics) if row.kind == "train"] == [1, 2, 3, 4]
    assert [point.step for point in result.curve] == [0, 2, 4]
    assert paths.heartbeat.exists()
    assert "attempt 1: train n1, 4 steps from nano" in paths.log.read_text()
    assert capfd.readouterr() == ("", ""), "a worker prints into its log, never into the terminal"


def test_an_evaluation_leaves_a_score_and_no_checkpoint(paths: JobPaths) -> None:
    result = result_of(paths, job(kind="evaluate"))
    assert result.status is Status.FINISHED
    assert result.score is not None
    assert result.checkpoint is None
    assert not paths.checkpoint.exists()


def test_a_stop_ends_early_with_a_score(paths: JobPaths) -> None:
    write_json(paths.spec, job(steps=500))
    paths.stop.touch()
    result = result_of(paths)
    assert result.status is Status.STOPPED
    assert result.steps_done == 1
    assert result.score is not None


def test_what_the_trainer_left_out_is_filled_in(paths: JobPaths) -> None:
    result = result_of(paths, job(options={"odd": "bare"}))
    assert [(point.step, point.score) for point in result.curve] == [(0, 0.25)]
    assert result.summaries["reward"].last == 0.2
    assert result.checkpoint is not None
    assert (result.checkpoint.step, verify(paths.checkpoint, result.checkpoint.digest)) == (2, "")
    assert "from the trainer" in paths.log.read_text()


@pytest.mark.parametrize(
    ("odd", "kind", "message"),
    [
        ("memory", FailureKind.OUT_OF_MEMORY, "out of memory: no more"),
        ("native memory", FailureKind.OUT_OF_MEMORY, "CUDA out of memory. Tried to allocate 2.00 GiB"),
        ("disk", FailureKind.DISK_FULL, "disk full: "),
        ("native disk", FailureKind.DISK_FULL, "disk full: Error while serializing"),
        ("metrics disk", FailureKind.DISK_FULL, "metrics.jsonl"),
        ("bug", FailureKind.ERROR, "KeyError: 'oops'"),
        ("phase", FailureKind.MISMATCH, "trainer and sampler differ by 0.3 nats: check the dtype"),
        ("usage", FailureKind.BAD_CONFIG, "unknown field 'lr'"),
        ("nan", FailureKind.NAN, "the score is nan"),
        ("unknown kind", FailureKind.ERROR, "the plug-in is tired"),
        ("no score", FailureKind.ERROR, "the trainer 'sim' gave no score"),
        ("no checkpoint", FailureKind.ERROR, "the trainer 'sim' left no checkpoint in "),
    ],
)
def test_a_failure_says_its_kind_and_keeps_what_was_learned(
    paths: JobPaths, odd: str, kind: FailureKind, message: str
) -> None:
    result = result_of(paths, job(options={"odd": odd}))
    assert (result.status, result.failure) == (Status.FAILED, kind)
    assert message in result.message
    assert "\n" not in result.message
    assert "phases/n1/log.txt" in result.message
    assert (result.steps_done, result.checkpoint, result.score) == (2, None, None)
    assert result.summaries["reward"].count == 2
    assert "Traceback" in paths.log.read_text()
    assert not paths.checkpoint.exists(), "a failed phase leaves no weights behind"


@pytest.mark.parametrize("spec", ["", "{", "[]", '{"kind": "train"}', '{"nonsense": 1}'])
def test_a_bad_job_is_a_bad_config(paths: JobPaths, spec: str) -> None:
    paths.root.mkdir(parents=True)
    paths.spec.write_text(spec)
    result = result_of(paths)
    assert result.failure is FailureKind.BAD_CONFIG
    assert "phase.json" in result.message


def test_a_newer_job_asks_for_an_upgrade(paths: JobPaths) -> None:
    result = result_of(paths, replace(job(), schema=SCHEMA_VERSION + 1))
    assert result.failure is FailureKind.BAD_CONFIG
    assert "upgrade" in result.message


@pytest.mark.parametrize("damage", ["changed", "missing"])
@pytest.mark.parametrize("role", ["start", "anchor"])
def test_damaged_weights_are_never_trained_from(paths: JobPaths, tmp_path: Path, damage: str, role: str) -> None:
    folder = tmp_path / "weights"
    if damage == "changed":
        folder.mkdir()
        (folder / "sim.json").write_text("{}")
    weights = Weights(path=str(folder), digest="0" * 64)
    what = replace(job(), start=weights) if role == "start" else replace(job(), anchor=weights)
    result = result_of(paths, what)
    assert result.failure is FailureKind.BAD_CHECKPOINT
    assert f"{folder} " in result.message
    assert "start from another node" in result.message
    assert not paths.metrics.exists()


def test_whole_weights_are_trained_from(paths: JobPaths, tmp_path: Path) -> None:
    first = result_of(paths, job())
    assert first.checkpoint is not None
    child = JobPaths(tmp_path / "phases" / "n2")
    start = Weights(path=str(paths.checkpoint), digest=first.checkpoint.digest)
    assert result_of(child, replace(job(), start=start)).status is Status.FINISHED


def test_a_finished_job_is_left_alone(paths: JobPaths) -> None:
    first = result_of(paths, job())
    before = {path: path.stat().st_mtime_ns for path in paths.root.rglob("*") if path != paths.lock}
    assert run(paths) == 0
    assert {path: path.stat().st_mtime_ns for path in paths.root.rglob("*") if path != paths.lock} == before
    assert read_json(PhaseResult, paths.result) == first


def test_a_second_worker_leaves_quietly(paths: JobPaths) -> None:
    write_json(paths.spec, job())
    lock = take(paths.lock)
    assert lock is not None
    assert run(paths) == 0
    assert {path.name for path in paths.root.iterdir()} == {"phase.json", "lock"}
    release(lock)
    assert result_of(paths).status is Status.FINISHED


def test_a_second_attempt_starts_clean(paths: JobPaths) -> None:
    assert run(paths, job(options={"sim_fault": "die", "sim_fault_step": "3"})) == -signal.SIGKILL
    assert not paths.result.exists()
    paths.checkpoint.mkdir()
    (paths.checkpoint / "torn.safetensors").write_bytes(b"half")
    (paths.root / ".result.json.7.tmp").write_bytes(b"half")
    result = result_of(paths, replace(job(), attempt=2))
    assert result.status is Status.FINISHED
    assert [row.step for row in read_rows(paths.metrics) if row.kind == "train"] == [1, 2, 3, 4]
    assert [file.name for file in paths.checkpoint.iterdir()] == ["sim.json"]
    assert not list(paths.root.glob(".*"))
    assert [line for line in paths.log.read_text().splitlines() if line.startswith("attempt")] == [
        "attempt 1: train n1, 4 steps from nano",
        "attempt 2: train n1, 4 steps from nano",
    ]


def test_a_full_disk_gives_up_the_checkpoint_to_say_so(paths: JobPaths) -> None:
    result = result_of(paths, job(options={"refused": "1"}))
    assert (result.status, result.failure, result.checkpoint) == (Status.FAILED, FailureKind.DISK_FULL, None)
    assert result.steps_done == 4
    assert not paths.checkpoint.exists()


def test_a_disk_that_takes_nothing_is_an_exit_code(paths: JobPaths) -> None:
    assert run(paths, job(options={"refused": "2"})) == 74
    assert not paths.result.exists()
    assert "cannot write the result: disk full" in paths.log.read_text()


def test_a_library_that_exits_leaves_no_result(paths: JobPaths) -> None:
    assert run(paths, job(options={"odd": "exit"})) == 5
    assert not paths.result.exists()


@pytest.fixture(name="executor")
def _executor() -> Iterator[LocalExecutor]:
    executor = LocalExecutor(entry=worker_jobs.ENTRY)
    yield executor
    executor.close()


def test_a_hung_worker_leaves_where_it_stood(paths: JobPaths) -> None:
    executor = LocalExecutor(entry=worker_jobs.ENTRY, hang_after_s=0.5)
    write_json(paths.spec, job(options={"sim_fault": "hang"}))
    executor.submit(paths.root)
    deadline = time.monotonic() + 30
    while (state := executor.poll(1.0)[paths.root]).state == "running":
        assert time.monotonic() < deadline
    assert state.failure is FailureKind.HANG
    assert "sim.py" in paths.log.read_text(), "the stack at the time of death"


MOMENTS: dict[str, Callable[[JobPaths], bool]] = {
    "at once": lambda paths: True,
    "locked": lambda paths: paths.lock.exists(),
    "alive": lambda paths: paths.heartbeat.exists(),
    "training": lambda paths: paths.metrics.exists() and paths.metrics.stat().st_size > 500,
    "saving": lambda paths: paths.checkpoint.exists(),
    "saved": lambda paths: any(paths.checkpoint.glob("*")),
    "finishing": lambda paths: any(paths.root.glob(".result.json.*")),
    "finished": lambda paths: paths.result.exists(),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment_a_phase_is_done_or_undone(
    tmp_path: Path, paths: JobPaths, executor: LocalExecutor, moment: str
) -> None:
    """No result, or a whole one over whole weights; and run again, the phase ends as if it had never been disturbed."""
    what = job(steps=8)
    whole = result_of(JobPaths(tmp_path / "whole" / "n1"), what)
    write_json(paths.spec, what)
    executor.submit(paths.root)
    while not MOMENTS[moment](paths) and not paths.result.exists():
        continue
    executor.kill(paths.root)
    if executor.poll(30.0)[paths.root].state == "dead":
        assert moment != "finished"
        assert not paths.result.exists()
        executor.submit(paths.root)
        assert executor.poll(30.0)[paths.root].state == "done"
    result = read_json(PhaseResult, paths.result)
    assert result.checkpoint is not None
    assert verify(paths.checkpoint, result.checkpoint.digest) == ""
    assert (result.score, result.curve) == (whole.score, whole.curve)
    assert [row.step for row in read_rows(paths.metrics) if row.kind == "train"] == list(range(1, 9))


@pytest.mark.slow
def test_killed_at_random_moments_many_times_a_phase_still_ends(paths: JobPaths, executor: LocalExecutor) -> None:
    """Twenty attempts killed, each later than the one before, then one that is left alone."""
    rng = random.Random(5)
    write_json(paths.spec, job(steps=100, options={"sim_step_s": "0.01"}))
    for attempt in range(20):
        executor.submit(paths.root)
        time.sleep(rng.uniform(0.0, 0.05 * attempt))
        executor.kill(paths.root)
        assert executor.poll(30.0)[paths.root].state == "dead"
    executor.submit(paths.root)
    assert executor.poll(60.0)[paths.root].state == "done"
    assert read_json(PhaseResult, paths.result).steps_done == 100


def test_rewards_are_signs_of_life(paths: JobPaths) -> None:
    """A long evaluation calls nothing else of the worker's; without this it would count as hung."""
    task = wiring.make_task("chemcot")
    example = task.examples("validation")[0]
    paths.root.mkdir(parents=True)
    alive = worker._Alive(task, paths.heartbeat)
    assert alive.name == "chemcot" and alive.prompt(example) == task.prompt(example)
    assert alive.reward(example, Transcript.of("?")) == task.reward(example, Transcript.of("?"))
    assert paths.heartbeat.exists()
