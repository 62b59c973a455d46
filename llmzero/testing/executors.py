"""The conformance suite of `ports.Executor`: real workers that run, stop, die and hang."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from llmzero.domain.codec import from_json
from llmzero.domain.config import EvalConfig
from llmzero.domain.errors import StateError
from llmzero.domain.jobs import Job, JobPaths, JobState, Weights
from llmzero.domain.types import FailureKind, HyperParams, Phase, PhaseResult, Status
from llmzero.ports import Executor
from llmzero.testing.checks import is_one_line, refuses

ENTRY = "llmzero.trainers.worker:main"
FOREVER = 1_000_000


class ExecutorContract:
    """What every executor promises. The jobs are phases of the sim trainer in LLMZero's own worker.

    `patience_s` is how long a worker may take to start or end; `hang_after_s` how long a silent one may live in the
    test of hangs. Job folders are below pytest's tmp_path: give --basetemp where workers run on other machines.
    """

    factory: ClassVar[Callable[..., Executor]]
    patience_s: ClassVar[float] = 60.0
    hang_after_s: ClassVar[float] = 3.0

    def make(self, hang_after_s: float = 900.0) -> Executor:
        return type(self).factory(entry=ENTRY, preload=(), environment={}, hang_after_s=hang_after_s)

    def test_a_job_runs_to_its_result(self, tmp_path: Path) -> None:
        job_dir = write_job(tmp_path)
        with self._open() as executor:
            assert executor.attach(job_dir).state == "absent", "before its submission a job is absent"
            executor.submit(job_dir)
            state = self._end(executor, job_dir)
            assert state.state == "done", f"the job is {state}"
            assert _result(job_dir).status is Status.FINISHED, f"its result is {_result(job_dir)}"
            assert executor.attach(job_dir).state == "done", "later it is done no more"

    def test_a_poll_returns_when_a_job_ends_and_tells_of_every_job(self, tmp_path: Path) -> None:
        with self._open() as executor, _stopping(tmp_path):
            slow, quick = write_job(tmp_path, "n1", steps=FOREVER), write_job(tmp_path, "n2")
            self._start(executor, slow)
            executor.submit(quick)
            began, states = time.monotonic(), executor.poll(self.patience_s)
            waited = time.monotonic() - began
            assert waited < 0.9 * self.patience_s, f"a job ended, but poll waited {waited:.1f} s"
            assert states[quick].state == "done", f"the quick job is {states[quick]}"
            assert states[slow].state == "running", f"the slow job is {states[slow]}"

    def test_a_poll_without_an_end_keeps_to_its_timeout(self, tmp_path: Path) -> None:
        with self._open() as executor, _stopping(tmp_path):
            job_dir = write_job(tmp_path, steps=FOREVER)
            self._start(executor, job_dir)
            began, states = time.monotonic(), executor.poll(0.5)
            assert states[job_dir].state == "running", f"the job is {states[job_dir]}"
            assert 0.3 < time.monotonic() - began < 0.5 * self.patience_s, "poll(0.5) did not take half a second"

    def test_stop_ends_a_job_early_with_its_score(self, tmp_path: Path) -> None:
        with self._open() as executor, _stopping(tmp_path):
            job_dir = write_job(tmp_path, steps=FOREVER)
            self._start(executor, job_dir)
            executor.stop(job_dir)
            executor.stop(job_dir)
            state = self._end(executor, job_dir)
            assert state.state == "done", f"the stopped job is {state}"
            result = _result(job_dir)
            assert result.status is Status.STOPPED and result.score is not None, f"its result is {result}"

    def test_a_dead_worker_is_dead_and_its_job_can_run_again(self, tmp_path: Path) -> None:
        job_dir = write_job(tmp_path, sim_fault="die")
        with self._open() as executor:
            executor.submit(job_dir)
            state = self._end(executor, job_dir)
            assert state.state == "dead", f"a killed worker is {state}"
            assert state.failure is not None, "a dead job says which FailureKind it is"
            assert is_one_line(state.message), f"a dead job says how it ended, in one line: {state.message!r}"
            assert executor.attach(job_dir).state == "dead", "later it is dead no more"
            write_job(tmp_path)
            executor.submit(job_dir)
            assert self._end(executor, job_dir).state == "done", "a dead job does not run again"

    def test_a_silent_worker_is_hung(self, tmp_path: Path) -> None:
        job_dir = write_job(tmp_path, sim_fault="hang")
        with self._open(self.hang_after_s) as executor:
            executor.submit(job_dir)
            state = self._end(executor, job_dir)
            assert (state.state, state.failure) == ("dead", FailureKind.HANG), f"a hung job is {state}"
            with self._open() as other:
                assert other.attach(job_dir).state == "dead", "its worker still lives"

    def test_kill_ends_a_worker_at_once(self, tmp_path: Path) -> None:
        with self._open() as executor, _stopping(tmp_path):
            job_dir = write_job(tmp_path, steps=FOREVER)
            self._start(executor, job_dir)
            executor.kill(job_dir)
            state = self._end(executor, job_dir)
            assert state.state == "dead", f"the killed job is {state}"
            executor.kill(job_dir)
            assert not JobPaths(job_dir).result.exists(), "killed, it still left a result"

    def test_two_workers_never_share_a_folder(self, tmp_path: Path) -> None:
        with self._open() as executor, self._open() as other, _stopping(tmp_path):
            job_dir = write_job(tmp_path, steps=FOREVER)
            self._start(executor, job_dir)
            assert refuses(StateError, lambda: executor.submit(job_dir)), "submitted twice: no StateError"
            assert refuses(StateError, lambda: other.submit(job_dir)), "submitted by two controllers: no StateError"

    def test_a_folder_without_a_job_is_refused(self, tmp_path: Path) -> None:
        with self._open() as executor:
            assert executor.attach(tmp_path).state == "absent", "a folder without phase.json is absent"
            assert refuses(StateError, lambda: executor.submit(tmp_path)), "submitted all the same: no StateError"

    def test_a_new_controller_finds_a_living_worker(self, tmp_path: Path) -> None:
        with self._open() as first, self._open() as second, _stopping(tmp_path):
            job_dir = write_job(tmp_path, steps=FOREVER)
            self._start(first, job_dir)
            state = second.attach(job_dir)
            assert state.state == "running", f"to another controller the job is {state}"
            second.stop(job_dir)
            state = self._end(second, job_dir)
            assert state.state == "done", f"the attached job ended as {state}"

    def test_close_ends_every_worker(self, tmp_path: Path) -> None:
        with _stopping(tmp_path):
            job_dir = write_job(tmp_path, steps=FOREVER)
            with self._open() as executor:
                self._start(executor, job_dir)
                executor.close()
            with self._open() as other:
                state = other.attach(job_dir)
                assert state.state == "dead", f"after close, which may be called twice, the job is {state}"

    @contextlib.contextmanager
    def _open(self, hang_after_s: float = 900.0) -> Iterator[Executor]:
        executor = self.make(hang_after_s)
        try:
            yield executor
        finally:
            executor.close()

    def _start(self, executor: Executor, job_dir: Path) -> None:
        """Submit, and wait until the worker trains."""
        executor.submit(job_dir)
        deadline = time.monotonic() + self.patience_s
        while not JobPaths(job_dir).metrics.exists():
            assert time.monotonic() < deadline, f"no worker began within {self.patience_s:g} s"
            time.sleep(0.02)

    def _end(self, executor: Executor, job_dir: Path) -> JobState:
        """The first state of a job that is not `running`."""
        deadline = time.monotonic() + self.patience_s
        while time.monotonic() < deadline:
            state = executor.poll(1.0).get(job_dir) or executor.attach(job_dir)
            if state.state != "running":
                return state
        raise AssertionError(f"the job did not end within {self.patience_s:g} s")


def write_job(folder: Path, name: str = "n1", *, steps: int = 3, **options: str) -> Path:
    """A job folder with a phase of the sim trainer, one step each 20 ms."""
    from llmzero.store.atomic import write_json

    weights = Weights(path="contract/base")
    phase = Phase(id=name, parent="n0", hyper=HyperParams(), steps=steps, eval_every=50, seed=0)
    job = Job(
        kind="train",
        phase=phase,
        start=weights,
        anchor=weights,
        task="chemcot",
        data="mini",
        model="nano",
        trainer="sim",
        eval=EvalConfig(),
        options={"sim_step_s": "0.02", **options},
    )
    job_dir = folder / name
    job_dir.mkdir(exist_ok=True)
    write_json(JobPaths(job_dir).spec, job)
    return job_dir


@contextlib.contextmanager
def _stopping(folder: Path) -> Iterator[None]:
    """No worker outlives its test, whatever the executor does."""
    try:
        yield
    finally:
        for job_dir in folder.iterdir():
            JobPaths(job_dir).stop.touch()


def _result(job_dir: Path) -> PhaseResult:
    return from_json(PhaseResult, json.loads(JobPaths(job_dir).result.read_text(encoding="utf-8")))
