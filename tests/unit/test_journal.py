"""The journal: what was appended is read back, whatever happened to the file's end; nothing else is ever read."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmzero.domain.config import SCHEMA_VERSION, RunConfig
from llmzero.domain.errors import StateError
from llmzero.domain.events import Event, PhaseFinished, PhaseProposed, RunFinished, RunStarted, event_to_json
from llmzero.domain.types import HyperParams, Phase, PhaseResult, Proposal, Selection, Status
from llmzero.store.journal import Journal, read_journal

START = RunStarted(run="r", config=RunConfig(), at="2026-12-01")


def proposed(node: str, reason: str = "why \u00e4 \ud800 \n\r\u2028") -> PhaseProposed:
    return PhaseProposed(
        phase=Phase(id=node, parent=None, hyper=HyperParams(), steps=5, eval_every=1, seed=3),
        selection=Selection(parent="n0", kind="base", reason=reason),
        proposal=Proposal(proposer="p", pathology="none", diagnosis=reason),
    )


EVENTS: tuple[Event, ...] = (
    START,
    proposed("n0"),
    PhaseFinished(node="n0", result=PhaseResult(status=Status.FINISHED, score=0.25, score_se=0.01)),
    proposed("n1"),
    RunFinished(reason="nodes"),
)
LINES = [json.dumps(event_to_json(event)).encode() + b"\n" for event in EVENTS]
DATA = b"".join(LINES)


def written(folder: Path, data: bytes = DATA) -> Path:
    path = folder / "journal.jsonl"
    path.write_bytes(data)
    return path


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.create(path) as journal:
        assert journal.events() == ()
        for event in EVENTS:
            journal.append(event)
            assert read_journal(path) == journal.events()
    assert path.read_bytes() == DATA
    with Journal.open(path) as journal:
        assert journal.events() == EVENTS
        assert journal.recovered_bytes == 0


def test_a_run_is_never_begun_twice(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"already holds a run.*llmzero resume"):
        Journal.create(written(tmp_path))


@pytest.mark.parametrize("data", [b"", LINES[0][:-1], LINES[0][:10]])
def test_a_journal_without_an_event_is_refused(tmp_path: Path, data: bytes) -> None:
    path = written(tmp_path, data)
    for read in (Journal.open, read_journal):
        with pytest.raises(StateError, match=r"journal\.jsonl holds no event"):
            read(path)


def test_a_missing_journal_says_how_to_start(tmp_path: Path) -> None:
    for path in (tmp_path / "journal.jsonl", tmp_path / "nowhere" / "journal.jsonl"):
        for read in (Journal.open, read_journal):
            with pytest.raises(StateError, match=r"no (journal at|run at) .*llmzero search"):
                read(path)


def test_every_truncation_gives_a_prefix_of_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every byte: whole lines survive, a torn one is cut and counted, and the run goes on from there."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # thousands of openings, and no power cut
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        for size in range(len(DATA)):
            path = written(Path(folder), DATA[:size])
            whole = DATA[:size].count(b"\n")
            if whole == 0:
                with pytest.raises(StateError, match="holds no event"):
                    Journal.open(path)
                assert path.read_bytes() == DATA[:size]
                continue
            assert read_journal(path) == EVENTS[:whole]
            assert path.stat().st_size == size
            with Journal.open(path) as journal:
                assert journal.events() == EVENTS[:whole]
                assert journal.recovered_bytes == size - len(b"".join(LINES[:whole]))
            assert path.read_bytes() == b"".join(LINES[:whole])


def test_a_run_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    path = written(tmp_path, DATA[:-5])
    with Journal.open(path) as journal:
        journal.append(EVENTS[-1])
    assert path.read_bytes() == DATA


@settings(max_examples=150, deadline=None)
@given(position=st.integers(0, len(DATA) - 1), value=st.integers(0, 255))
def test_a_changed_byte_never_gives_an_event_in_another_place(position: int, value: int) -> None:
    """A journal with one changed byte is refused, naming a line, or still reads as events that fold."""
    data = DATA[:position] + bytes([value]) + DATA[position + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), data)
        try:
            events = read_journal(path)
        except StateError as error:
            assert "journal.jsonl" in str(error)
            assert "\n" not in str(error)
        else:
            assert len(events) in (len(EVENTS), len(EVENTS) - 1)
            assert [type(event) for event in events] == [type(event) for event in EVENTS[: len(events)]]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nonsense", "Expecting value"),
        (b"[]", "not a JSON object"),
        (b'{"event": []}', ""),
        (b'{"event": "Nothing"}', "unknown event 'Nothing'"),
        (b'{"event": "RunFinished", "reason": 3}', "expected str"),
        (b'{"event": "RunFinished", "reason": "", "more": 1}', "unknown key 'more'"),
        (LINES[0][:-1], "RunStarted must be the first"),
        (LINES[1][:-1], "n0 proposed twice"),
        (b'{"event": "CheckpointLost", "node": "n9", "reason": ""}', "n9"),
        (b"{\xff}", ""),
        (b"[" * 100_000, ""),
    ],
)
@pytest.mark.parametrize("last", [True, False])
def test_any_other_bad_line_is_named(tmp_path: Path, line: bytes, reason: str, last: bool) -> None:
    data = b"".join(LINES[:3]) + line + b"\n" + (b"" if last else LINES[3])
    path = written(tmp_path, data)
    for read in (Journal.open, read_journal):
        with pytest.raises(StateError, match=rf"journal\.jsonl:4: .*{reason}"):
            read(path)
    assert path.read_bytes() == data


def test_the_first_event_must_start_the_run(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"journal\.jsonl:1: RunStarted must be the first"):
        read_journal(written(tmp_path, LINES[1]))


def test_a_newer_journal_asks_for_an_upgrade(tmp_path: Path) -> None:
    line = event_to_json(START)
    line["config"] |= {"schema": SCHEMA_VERSION + 1, "a_setting_of_the_future": True}
    with pytest.raises(StateError, match=r"newer version of llmzero .*upgrade"):
        read_journal(written(tmp_path, json.dumps(line).encode() + b"\n"))


def test_a_second_process_is_told_who_holds_the_run(tmp_path: Path) -> None:
    path = written(tmp_path)
    code = (
        "import sys, pathlib; from llmzero.store.journal import Journal; from llmzero.domain.errors import StateError\n"
        "try: Journal.open(pathlib.Path(sys.argv[1]))\nexcept StateError as error: print(error)"
    )
    with Journal.open(path):
        out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
        assert f"in use by process {os.getpid()}" in out
        assert read_journal(path) == EVENTS
    with Journal.open(path) as journal:
        assert journal.events() == EVENTS


def test_a_refused_journal_is_not_left_locked(tmp_path: Path) -> None:
    path = written(tmp_path, DATA + b"nonsense\n")
    with pytest.raises(StateError, match="journal"):
        Journal.open(path)
    path.write_bytes(DATA)
    Journal.open(path).close()


@pytest.mark.parametrize("failing", ["write", "short", "fsync"])
def test_a_full_disk_never_tears_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    path = written(tmp_path, b"".join(LINES[:4]))
    write = os.write

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Journal.open(path) as journal:
        with monkeypatch.context() as patch:
            if failing == "short":
                patch.setattr(os, "write", lambda handle, data: write(handle, data[:20]))
            else:
                patch.setattr(os, failing, refuse)
            with pytest.raises(StateError, match=r"disk full while writing .*journal\.jsonl: free space"):
                journal.append(EVENTS[4])
        assert path.read_bytes() == b"".join(LINES[:4])
        assert journal.events() == EVENTS[:4]
        journal.append(EVENTS[4])
    assert path.read_bytes() == DATA


def test_the_core_stays_light() -> None:
    heavy = "{'torch', 'ray', 'pydantic', 'transformers', 'rdkit', 'matplotlib', 'pandas'}"
    code = f"import sys, llmzero.store.journal; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
