"""What nobody types on purpose: odd paths, damaged runs, closed streams. One clear line, and nothing lost."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmzero.cli import MAX_LINE, main
from llmzero.domain.codec import from_json
from llmzero.domain.errors import StateError
from llmzero.domain.events import event_from_json
from llmzero.domain.series import MetricRow
from llmzero.exports.readme import code
from llmzero.report.words import duration, printable, sparkline
from llmzero.store.atomic import write_text
from llmzero.store.layout import RunPaths
from llmzero.store.run import RunFolder
from llmzero.trainers import worker


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small simulated run, with a space and a quote in its path."""
    out = tmp_path_factory.mktemp("it's a folder")
    assert main(["search", "--trainer", "sim", "--nodes", "3", "--steps", "10", "--out", str(out)]) == 0
    return next(out.iterdir())


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(finished, tmp_path / finished.name))


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    code = main(list(words))
    said = capsys.readouterr()
    assert code in (1, 2), said
    assert said.out == ""
    assert len(said.err.splitlines()) == 1 and len(said.err) <= MAX_LINE + 20, said.err
    assert "unexpected" not in said.err
    return said.err


def journal_lines(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in RunPaths(run).journal.read_text().splitlines()]


def rewrite(run: Path, lines: list[dict[str, object]]) -> None:
    RunPaths(run).journal.write_text("".join(json.dumps(line) + "\n" for line in lines))


def digest(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# --- where output may go


@pytest.mark.parametrize("inside", ["journal.jsonl", "lock", "phases/n1/metrics.jsonl", "phases/n1/result.json"])
def test_a_report_never_replaces_a_file_of_the_run(run: Path, inside: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = digest(run)
    assert "inside the run" in refused(capsys, "report", str(run), "--output", str(run / inside))
    link = run.parent / "link.html"
    link.symlink_to(run / inside)
    assert "inside the run" in refused(capsys, "report", str(run), "--output", str(link))
    assert digest(run) == before


@pytest.mark.parametrize("device", ["/dev/null", "/dev/full", "/tmp"])
def test_a_report_replaces_neither_a_device_nor_a_folder(
    run: Path, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "name another" in refused(capsys, "report", str(run), "--output", device)
    assert Path(device).exists() and not Path(device).is_file()


def test_output_through_a_link_leaves_the_link(run: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "page.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    assert main(["report", str(run), "--output", str(link)]) == 0
    assert link.is_symlink() and "<html" in target.read_text()
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(StateError, match="points to itself"):
        write_text(tmp_path / "a", "x")


def test_an_export_leaves_what_a_user_changed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine"
    words = ["export", str(run), "--node", "n1", "--output", str(folder)]
    assert main(words) == 0
    assert main(words) == 0, "writing the same once more is harmless"
    stage = next(p for p in sorted(folder.rglob("*stage*")) if p.is_file())
    stage.write_text(stage.read_text() + "\n# mine\n")
    assert "holds another" in refused(capsys, *words)
    assert stage.read_text().endswith("# mine\n")
    (tmp_path / "file").write_text("x")
    assert "is no folder" in refused(capsys, *words[:-1], str(tmp_path / "file"))
    assert "inside the run" in refused(capsys, *words[:-1], str(run / "phases"))
    assert main([*words, "--force"]) == 0
    assert "# mine" not in stage.read_text()


@pytest.mark.parametrize("flag", ["--out", "--config"])
def test_an_empty_path_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "an empty path" in refused(capsys, "search", "--trainer", "sim", flag, "")
    assert "RUN is empty" in refused(capsys, "resume", "")


def test_a_settings_file_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    deep = tmp_path / "deep.toml"
    deep.write_text("x = " + "[" * 5000 + "]" * 5000)
    marked = tmp_path / "marked.toml"
    marked.write_bytes(b"\xef\xbb\xbfnodes = 0")
    for file, said in (
        (tmp_path, "a folder"),
        (tmp_path / "pipe", "a device or pipe"),
        (deep, "not valid TOML"),
        (marked, "nodes = 0"),
    ):
        assert said in refused(capsys, "search", "--config", str(file), "--out", str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("nodes = 99999999999999999999999999", "nodes = a very large number: must be at most 1e+06"),
        ("seed = 1" + "0" * 400, "seed"),
        ("hours = 1e300", "hours = 1e+300: must be at most"),
        ("[search]\nwidening_exponent = 50.0", "must be at most 1"),
        ("[space]\nfrozen = 3", "frozen must be a list"),
        ("[space.group_size]\nlow = 1\nhigh = 2", "must lie in [2, 4096]"),
        ("[space.learning_rate]\nlow = 1e-6\nhigh = 50.0", "must lie in"),
        ("[space.group_size]\nlow = 4.5\nhigh = 8.5", "must be whole numbers"),
        ("[space.loss_type]\nchoices = ['grpo', 'ppoo']", "'ppoo' is no choice"),
        ("[space.loss_type]\nchoices = []", "choices is empty"),
        ("hang_after_s = 0.001", "must be at least 1"),
        ("trainer = 'sim'\n[options]\nsim_step_s = '-1'", "must be a number from 0"),
        ("trainer = 'sim'\n[options]\nsim_step_s = 'inf'", "must be a number from 0"),
        ("trainer = 'sim'\n[options]\nsim_fault = 'nano'", "did you mean nan"),
        ("llm = { base_url = 'ftp://x' }", "http:// or https://"),
        ("k" * 5000 + " = 1", "unknown key"),
        ("nodes = '" + "x" * 5000 + "'", "expected int"),
        ("model = '" + "x" * 5000 + "'", "model"),
        ('model = "a\\u001b[31mb"', "model"),
    ],
)
def test_settings_beyond_all_measure(toml: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(toml)
    line = refused(capsys, "search", "--config", str(file), "--out", str(tmp_path / "runs"))
    assert said in line and "\x1b" not in line
    assert not (tmp_path / "runs").exists()


# --- damaged runs


@pytest.mark.parametrize("node", ["../../evil", "n1/../../x", "/etc", "", "n", "n1\n", "N1", "n" * 500])
def test_a_node_is_never_a_path(node: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = journal_lines(run)
    number, line = next((i, x) for i, x in enumerate(lines, 1) if x["event"] == "PhaseProposed")
    phase = line["phase"]
    assert isinstance(phase, dict)
    phase["id"] = node
    with pytest.raises(ValueError, match="is no node id"):
        event_from_json(line)
    rewrite(run, lines)
    for command in ("show", "report", "export", "resume"):
        assert f"journal.jsonl:{number}:" in refused(capsys, command, str(run))


def test_a_number_too_large_names_its_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = journal_lines(run)
    text = RunPaths(run).journal.read_text().splitlines()
    number = next(i for i, x in enumerate(lines) if x["event"] == "PhaseFinished")
    text[number] = text[number].replace('"steps": ', '"steps": ' + "9" * 400, 1)
    RunPaths(run).journal.write_text("\n".join(text) + "\n")
    assert f"journal.jsonl:{number + 1}:" in refused(capsys, "show", str(run))
    with pytest.raises(ValueError, match=r"steps|number"):
        from_json(MetricRow, {"step": 10**400, "values": {}})


def test_ls_and_show_bear_values_that_are_no_numbers(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = journal_lines(run)
    for line in lines:
        if line["event"] == "PhaseFinished":
            line["result"]["cost"]["wall_s"] = float("nan")  # type: ignore[index]
    rewrite(run, lines)
    for words in (["ls", "--out", str(run.parent)], ["show", str(run)], ["show", str(run), "n1"], ["report", str(run)]):
        assert main(words) == 0, capsys.readouterr().err


def test_damaged_metrics_leave_the_rest_readable(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = RunPaths(run).phase_dir("n1") / "metrics.jsonl"
    whole = metrics.read_text().splitlines()
    metrics.write_text("\n".join(["garbage", "[" * 100_000, *whole[:2], '{"step": 1e400}']) + "\n")
    capsys.readouterr()
    assert main(["show", str(run), "n1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "n1"
    assert main(["report", str(run)]) == 0


def test_half_a_character_in_a_reason_reaches_every_output(run: Path) -> None:
    lines = journal_lines(run)
    for line in lines:
        if line["event"] == "PhaseProposed":
            line["proposal"]["diagnosis"] = "half \ud800 <script>alert(1)</script> \u202e"  # type: ignore[index]
    rewrite(run, lines)
    assert main(["report", str(run)]) == 0
    assert main(["export", str(run), "--node", "n1"]) == 0
    assert main(["show", str(run), "n1"]) == 0
    assert "<script>alert(1)</script>" not in (RunPaths(run).report / "index.html").read_text()


def test_a_damaged_result_is_set_aside_and_its_phase_trained_again(run: Path) -> None:
    lines = journal_lines(run)
    cut = next(i for i, x in enumerate(lines) if x["event"] == "PhaseFinished" and x.get("node") not in ("n0", None))
    node = str(lines[cut]["node"])
    rewrite(run, lines[:cut])
    result = RunPaths(run).phase_dir(node) / "result.json"
    result.write_text("{" * 10_000)
    assert main(["resume", str(run)]) == 0
    with RunFolder.open(run) as store:
        found = store.result(node)
    assert found is not None and found.score is not None


def test_a_run_that_was_moved_while_it_is_open_is_refused(run: Path, tmp_path: Path) -> None:
    with RunFolder.open(run) as store:
        event = store.events()[0]
        run.rename(tmp_path / "moved")
        with pytest.raises(StateError, match="moved or removed"):
            store.append(event)
    assert RunPaths(tmp_path / "moved").journal.read_text().count("RunStarted") == 1


def test_a_renamed_run_is_listed_by_the_name_it_answers_to(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.rename(run.parent / "renamed")
    capsys.readouterr()
    assert main(["ls", "--out", str(run.parent), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["run"] == "renamed"
    assert main(["show", "renamed", "--out", str(run.parent)]) == 0


# --- streams


def test_next_commands_can_be_pasted(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["resume", str(finished)]) == 0
    said = capsys.readouterr().out
    line = next(x.strip() for x in said.splitlines() if "llmzero show" in x)
    node = line.split()[-1]
    command = f"{sys.executable} -m llmzero {line[line.index('show') :]} --json"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["id"] == node


def test_a_flag_may_stand_between_run_and_node(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["show", finished.name, "--out", str(finished.parent), "n1"]) == 0
    assert "n1" in capsys.readouterr().out


def program(words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["bash", "-c", words], capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("streams", "code"),
    [
        ("| head -c 1 >/dev/null; exit ${PIPESTATUS[0]}", 0),
        (">&-", 0),
        ("2>&-", 0),
        ("<&- >&- 2>&-", 0),
        (">/dev/full", 1),
    ],
)
def test_streams_that_lead_nowhere(streams: str, code: int, finished: Path) -> None:
    quoted = str(finished).replace("'", "'\\''")
    done = program(f"{sys.executable} -m llmzero show '{quoted}' {streams}")
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


def test_a_search_goes_on_without_anyone_listening(tmp_path: Path) -> None:
    words = f"-m llmzero search --trainer sim --nodes 2 --steps 5 --out {tmp_path}"
    done = program(f"{sys.executable} {words} 2>&1 >/dev/null | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 0, done
    run = next(tmp_path.iterdir())
    assert journal_lines(run)[-1]["event"] == "RunFinished"


def test_a_terminal_that_knows_only_ascii(finished: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "llmzero", "show", str(finished)]
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"n1" in done.stdout


def test_an_error_is_one_short_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "search", "--task", "a\x1b[31m\nb" + "x" * 100_000)
    assert "\x1b" not in line


def test_words_for_odd_values() -> None:
    assert duration(None) == duration(float("nan")) == duration(float("inf")) == "–"
    assert sparkline([float("nan"), 1e308, -1e308, 1.0, 2.0]) == "▁█"
    assert printable("a\x1b[31m\u202eb\n") == "a?[31m?b?"
    assert code("a\x1b`|\nb") == "`a '/ b`"


# --- a full disk under a worker


class Full:
    """A stream on a full disk."""

    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")

    flush = write


@pytest.fixture
def full_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "stdout", Full())
    monkeypatch.setattr(sys, "stderr", None)
    yield


@pytest.mark.usefixtures("full_log")
def test_a_worker_without_a_log_still_says_what_went_wrong(run: Path) -> None:
    folder = RunPaths(run).phase_dir("n1")
    (folder / "phase.json").write_text("garbage")
    found = worker._guarded(worker._Run(paths=worker.JobPaths(folder)))
    assert found.failure is not None and "phase.json" in found.message
