"""Run folders, atomic files, metric rows and checkpoints."""

import errno
import os
from datetime import date
from pathlib import Path

import pytest

from llmzero.domain.config import RunConfig
from llmzero.domain.errors import StateError, UsageError
from llmzero.domain.events import PhaseFinished, PhaseProposed, RunStarted, Tree, fold
from llmzero.domain.series import MetricRow
from llmzero.domain.types import EvalPoint, HyperParams, Phase, PhaseResult, Proposal, Selection, Status
from llmzero.store import atomic, checkpoints
from llmzero.store.layout import JobPaths, RunPaths, find_run, new_run_dir
from llmzero.store.metrics import MetricsReader, append_row, read_rows

TODAY = date(2026, 12, 1)


def make_run(out: Path, name: str, *, age_s: float = 0.0) -> Path:
    run = RunPaths(out / name)
    run.root.mkdir(parents=True)
    run.journal.write_text("{}\n")
    written = run.journal.stat().st_mtime - age_s
    os.utime(run.journal, (written, written))
    return run.root


def test_each_run_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    made = {new_run_dir(tmp_path / "runs", "chemcot", TODAY) for _ in range(20)}
    assert len(made) == 20
    assert all(folder.is_dir() and folder.name.startswith("2026-12-01-chemcot-") for folder in made)


def test_a_task_folder_gives_a_usable_name(tmp_path: Path) -> None:
    assert new_run_dir(tmp_path, "/some/where/My Task!", TODAY).name.startswith("2026-12-01-my-task-")


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    new_run_dir(tmp_path, "chemcot", TODAY, name="mine")
    with pytest.raises(UsageError, match=r"mine is already there.*resume mine"):
        new_run_dir(tmp_path, "chemcot", TODAY, name="mine")


def test_an_unwritable_out_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot make a run folder in .*--out DIR") as caught:
        new_run_dir(tmp_path / "file", "chemcot", TODAY)
    assert "\n" not in str(caught.value)


def test_a_run_is_found_by_path_name_prefix_and_latest(tmp_path: Path) -> None:
    old = make_run(tmp_path, "2026-11-30-chemcot-aaaa", age_s=60)
    new = make_run(tmp_path, "2026-11-29-chemcot-bbbb")
    (tmp_path / "not-a-run").mkdir()
    assert find_run(tmp_path, str(old)) == old
    assert find_run(tmp_path, old.name) == old
    assert find_run(tmp_path, "2026-11-29") == new
    assert find_run(tmp_path, "latest") == new


def test_a_name_that_is_a_prefix_of_another_means_itself(tmp_path: Path) -> None:
    exact = make_run(tmp_path, "a")
    make_run(tmp_path, "ab")
    assert find_run(tmp_path, "a") == exact


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2026-11-30-chemcot-aaab", "did you mean 2026-11-30-chemcot-aaaa"),
        ("2026", "fits 2 runs"),
        ("", "RUN is empty"),
    ],
)
def test_a_run_that_is_not_clear_is_refused(tmp_path: Path, name: str, message: str) -> None:
    make_run(tmp_path, "2026-11-30-chemcot-aaaa")
    make_run(tmp_path, "2026-11-29-chemcot-bbbb")
    with pytest.raises(UsageError, match=message):
        find_run(tmp_path, name)


def test_no_runs_at_all_says_how_to_start(tmp_path: Path) -> None:
    for name in ("latest", "x"):
        with pytest.raises(UsageError, match=r"holds no runs.*llmzero search"):
            find_run(tmp_path / "nothing", name)


def test_a_file_is_replaced_whole_and_leaves_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "value.json"
    atomic.write_json(path, EvalPoint(1, 0.5, 0.1))
    atomic.write_json(path, EvalPoint(2, 0.5, 0.1))
    assert atomic.read_json(EvalPoint, path) == EvalPoint(2, 0.5, 0.1)
    assert [file.name for file in path.parent.iterdir()] == ["value.json"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.ENOSPC, r"disk full while writing .*value\.json: free space"),
        (errno.EROFS, r"no permission for writing .*value\.json"),
        (errno.EIO, r"disk error while writing .*value\.json"),
    ],
)
def test_a_refused_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, message: str
) -> None:
    path = tmp_path / "value.json"
    atomic.write_text(path, "old")

    def refuse(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StateError, match=message):
        atomic.write_text(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["value.json"]


@pytest.mark.parametrize("text", ["", "{", '{"step": 1}', '{"step": 1, "score": 0.5, "se": 0.1, "more": 1}', "[]"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "value.json"
    path.write_text(text)
    with pytest.raises(StateError, match=r"value\.json is damaged"):
        atomic.read_json(EvalPoint, path)
    with pytest.raises(StateError, match=r"no such file or folder while reading .*other\.json"):
        atomic.read_json(EvalPoint, tmp_path / "other.json")


def row(step: int) -> MetricRow:
    return MetricRow(kind="train", step=step, values={"reward": step / 10}, at_s=float(step))


def test_rows_are_read_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reader = MetricsReader(path)
    assert reader.read_new() == ()
    append_row(path, row(1))
    append_row(path, row(2))
    assert reader.read_new() == (row(1), row(2))
    assert reader.read_new() == ()
    append_row(path, row(3))
    assert reader.read_new() == (row(3),)
    assert reader.rows == read_rows(path) == (row(1), row(2), row(3))


def test_a_partial_last_row_waits_for_its_end(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    append_row(whole, row(1))
    append_row(whole, row(2))
    data = whole.read_bytes()
    path = tmp_path / "metrics.jsonl"
    reader = MetricsReader(path)
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        assert reader.read() == (row(1), row(2))[: data[:size].count(b"\n")]


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_file_begun_anew_starts_over(tmp_path: Path, steps: int) -> None:
    """By a second attempt of the phase: shorter than before, as long, and longer."""
    path = tmp_path / "metrics.jsonl"
    reader = MetricsReader(path)
    append_row(path, row(1))
    append_row(path, row(2))
    reader.read()
    path.unlink()
    again = [MetricRow(kind="train", step=step, values={"reward": 0.3}, at_s=step + 0.5) for step in range(steps)]
    for item in again:
        append_row(path, item)
    assert reader.read() == tuple(again)
    path.unlink()
    assert reader.read() == ()


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_row(path, row(1))
    with path.open("a") as file:
        file.write("nonsense\n")
    with pytest.raises(StateError, match=r"metrics\.jsonl:2: "):
        read_rows(path)


def weights(folder: Path, **files: bytes) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    return folder


def test_the_digest_is_of_what_a_model_is_loaded_from(tmp_path: Path) -> None:
    one = weights(tmp_path / "one", a_safetensors=b"12", b_safetensors=b"3", config_json=b"{}")
    two = weights(tmp_path / "two", a_safetensors=b"12", b_safetensors=b"3", config_json=b"{}", README_md=b"more")
    other = weights(tmp_path / "other", a_safetensors=b"12", b_safetensors=b"3", config_json=b"{ }")
    moved = weights(tmp_path / "moved", a_safetensors=b"1", b_safetensors=b"23")
    assert checkpoints.weights_digest(one) == checkpoints.weights_digest(two)
    assert len({checkpoints.weights_digest(folder) for folder in (one, other, moved)}) == 3


def test_without_safetensors_every_file_counts(tmp_path: Path) -> None:
    one = weights(tmp_path / "one", state_json=b"1")
    two = weights(tmp_path / "two", state_json=b"2")
    assert checkpoints.weights_digest(one) != checkpoints.weights_digest(two)


def test_damage_is_found_and_named(tmp_path: Path) -> None:
    folder = weights(tmp_path / "checkpoint", a_safetensors=b"x" * 100)
    digest = checkpoints.weights_digest(folder)
    assert checkpoints.verify(folder, digest) == ""
    (folder / "a.safetensors").write_bytes(b"x" * 99 + b"y")
    assert "changed since it was written" in checkpoints.verify(folder, digest)
    (folder / "a.safetensors").write_bytes(b"x" * 50)
    assert "changed since it was written" in checkpoints.verify(folder, digest)
    (folder / "a.safetensors").unlink()
    assert "holds no weights" in checkpoints.verify(folder, digest)
    folder.rmdir()
    assert "is missing" in checkpoints.verify(folder, digest)


def test_unchanged_weights_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = weights(tmp_path / "checkpoint", a_safetensors=b"x")
    digest = checkpoints.weights_digest(folder)

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(Path, "open", refuse)
    assert checkpoints.weights_digest(folder) == digest


def test_a_synced_tree_leaves_no_file_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = weights(tmp_path / "checkpoint", a_safetensors=b"x")
    weights(folder / "deep", b_json=b"y")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    checkpoints.sync_tree(folder)
    assert sorted(synced) == sorted(str(path) for path in (folder, *folder.rglob("*")))


def tree_of(**statuses: Status | None) -> Tree:
    events: list[RunStarted | PhaseProposed | PhaseFinished] = [RunStarted(run="r", config=RunConfig())]
    for node, status in statuses.items():
        phase = Phase(id=node, parent=None, hyper=HyperParams(), steps=1, eval_every=1, seed=0)
        selection = Selection(parent="n0", kind="base", reason="")
        proposal = Proposal(proposer="p", pathology="", diagnosis="")
        events.append(PhaseProposed(phase=phase, selection=selection, proposal=proposal))
        if status is not None:
            events.append(PhaseFinished(node=node, result=PhaseResult(status=status)))
    return fold(events)


def test_garbage_is_what_is_never_resumed_from(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    tree = tree_of(fine=Status.FINISHED, ended=Status.STOPPED, broken=Status.FAILED, busy=None, empty=Status.FAILED)
    for node in ("fine", "ended", "broken", "busy"):
        weights(JobPaths(run.phase_dir(node)).checkpoint, a_safetensors=b"12345")
        (run.phase_dir(node) / ".result.json.7.tmp").write_bytes(b"12")
        JobPaths(run.phase_dir(node)).metrics.write_text("")
    assert checkpoints.collect_garbage(run, tree) == 2 * 5 + 3 * 2
    kept = {str(path.relative_to(run.phases)) for path in run.phases.rglob("*") if path.is_file()}
    assert {path for path in kept if "metrics" not in path} == {
        "fine/checkpoint/a.safetensors",
        "busy/checkpoint/a.safetensors",
        "busy/.result.json.7.tmp",
    }
    assert sum("metrics" in path for path in kept) == 4
    assert checkpoints.collect_garbage(run, tree) == 0
