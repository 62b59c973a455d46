"""Bad input: one line that says what, where and what to do, exit code 2, and nothing left behind."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmzero.cli import main
from llmzero.domain.config import RunConfig
from llmzero.domain.events import RunFinished, RunStarted
from llmzero.store.run import RunFolder


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line a refused command prints."""
    code = main(list(words))
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert code in (1, 2), captured
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("llmzero: ")
    assert captured.out == ""
    return lines[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["search", "--task", "chemcott"], ["unknown task 'chemcott'", "did you mean chemcot?"]),
        (["search", "--agent", "playbok"], ["unknown proposer 'playbok'", "did you mean playbook?"]),
        (["search", "--trainer", "tlr"], ["unknown trainer 'tlr'", "trl"]),
        (["search", "--stopper", "rules"], ["unknown stopper 'rules'", "did you mean rule?"]),
        (["search", "--kl-anchor", "bas"], ["--kl-anchor 'bas'", "base"]),
        (["search", "--keep", "first"], ["valid: best, last"]),
        (["search", "--data", "hbu"], ["did you mean hub?"]),
        (["search", "--nodes", "eight"], ["--nodes", "invalid int value: 'eight'"]),
        (["search", "--nodes", "0"], ["nodes = 0: must be above 0"]),
        (["search", "--steps", "-5"], ["steps = -5: must be above 0"]),
        (["search", "--hours", "-1"], ["hours = -1: must be a finite number, 0 or above"]),
        (["search", "--hours", "nan"], ["hours = nan: must be a finite number"]),
        (["search", "--nodez", "3"], ["unknown argument '--nodez'", "did you mean --nodes"]),
        (["search", "--model", "nanoo"], ["model 'nanoo'", "Hugging Face id"]),
        (["search", "--model", "no/such/folder"], ["model 'no/such/folder'"]),
        (["serch"], ["'serch'", "did you mean search?"]),
        (["task", "check"], ["needs a task name", "chemcot"]),
        (["task", "check", "chemcto"], ["did you mean chemcot?"]),
        (["show", "nothing"], ["no run called 'nothing'"]),
        (["resume", "nothing"], ["no run called 'nothing'"]),
    ],
)
def test_bad_flags_are_refused_in_one_line(
    words: list[str], said: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = [] if words[0] in ("serch",) else ["--out", str(tmp_path / "runs")]
    line = refused(capsys, *words, *out)
    for part in said:
        assert part in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("node = 3", ["unknown key 'node'", "did you mean nodes"]),
        ("nodes = 'x'", ["nodes", "expected int"]),
        ("[search]\nexplore = 1.0", ["[search]", "unknown key 'explore'", "exploration"]),
        ("[hyper]\nlearningrate = 1.0", ["[hyper]", "learning_rate"]),
        ("[hyper]\nlearning_rate = 1.0", ["hyper.learning_rate = 1.0", "outside the search space"]),
        ("[space.lerning_rate]\nlow = 1e-5", ["[space]", "did you mean learning_rate"]),
        ("[space.learning_rate]\nlo = 1e-5", ["[space.learning_rate]", "unknown key 'lo'", "low"]),
        ("[space.learning_rate]\nlow = 1.0\nhigh = 0.5", ["are no range"]),
        ("search = 3", ["search must be a table"]),
        ("[search]\nfresh_every = -1", ["search.fresh_every = -1", "0 or above"]),
        ("[eval]\nitems = -5", ["eval.items = -5"]),
        ("[eval]\ntemperature = -1.0", ["eval.temperature = -1", "above 0"]),
        ("[space]\nfrozen = ['learning_rate']\n[hyper]\nlearning_rate = -1.0", ["hyper.learning_rate = -1.0"]),
        ("nodes = ", ["not valid TOML"]),
        ("[options]\nspeed = '9'", ["options.speed", "the trl trainer has no options"]),
        ("trainer = 'sim'\n[options]\nsim_fualt = 'nan'", ["'sim_fualt'", "did you mean sim_fault"]),
        ("[hyper.extra]\nbetaa = 1.0", ["GRPOConfig has no field 'betaa'", "beta"]),
        ("[hyper.extra]\nbeta = 0.5", ["extra.beta is set by the phase", "kl_coef"]),
        ("[hyper]\nupdates_per_batch = 3\ngroup_size = 8\nprompts_per_step = 4", ["does not divide the 32"]),
        ("optimizer = 'keep'", ["fresh optimizer"]),
        ("kl_anchor = 'bas'", ["kl_anchor", "base"]),
        ("schema = 99", ["unknown key 'schema'"]),
    ],
)
def test_bad_settings_files_are_refused_in_one_line(
    toml: str, said: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(toml)
    line = refused(capsys, "search", "--config", str(file), "--out", str(tmp_path / "runs"))
    assert any(
        part in line for part in ("settings.toml", "hyper.", "optimizer", "search.", "eval.", "options", "hyper:")
    )
    for part in said:
        assert part in line
    assert not (tmp_path / "runs").exists()


def test_missing_settings_file_and_a_model_folder_without_weights(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "cannot be read" in refused(capsys, "search", "--config", str(tmp_path / "none.toml"))
    assert "needs a config.json" in refused(capsys, "search", "--model", str(tmp_path))


def test_out_that_is_a_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = refused(capsys, "search", "--trainer", "sim", "--out", str(tmp_path / "file" / "runs"))
    assert "--out DIR" in line


def test_help_of_every_command_and_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "search" in capsys.readouterr().out
    for command in ("search", "resume", "report", "export", "show", "ls", "task"):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from llmzero.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'trl', 'rdkit', 'rich', 'pydantic', 'yaml', 'pandas', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_dry_run_trains_nothing_and_leaves_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["search", "--dry-run", "--nodes", "3", "--out", str(tmp_path / "runs")]) == 0
    text = capsys.readouterr().out
    for part in ("3 nodes x 60 steps", "learning_rate", "train", "validation", "test", "expected", "MB"):
        assert part in text
    assert not (tmp_path / "runs").exists()


def test_an_interrupted_search_says_how_to_go_on_and_leaves_no_worker(tmp_path: Path) -> None:
    settings = tmp_path / "slow.toml"
    settings.write_text('[options]\nsim_step_s = "0.2"\n')
    words = ["search", "--trainer", "sim", "--config", str(settings), "--out", str(tmp_path / "runs")]
    process = subprocess.Popen([sys.executable, "-m", "llmzero.cli", *words], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("runs/*/phases/n1/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "llmzero resume" in said
    lock = next(tmp_path.glob("runs/*/phases/n1/lock"))
    pid = int(lock.read_text().split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "needs a config.json and *.safetensors"),
        ({"config.json": "{}", "pytorch_model.bin": "x"}, "needs a config.json and *.safetensors"),
        ({"config.json": "not json", "model.safetensors": ""}, "cannot be read"),
        ({"config.json": "{}", "model.safetensors": "garbage, not a tensor file"}, "cannot be read"),
    ],
)
def test_a_broken_model_folder_is_refused_before_a_run_begins(
    files: dict[str, str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name, text in files.items():
        (model / name).write_text(text)
    for extra in ([], ["--dry-run"]):
        line = refused(capsys, "search", "--model", str(model), "--out", str(tmp_path / "runs"), *extra)
        assert said in line and str(model) in line
    assert not (tmp_path / "runs").exists()


def test_python_m_is_the_same_program() -> None:
    command = [sys.executable, "-m", "llmzero", "serch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean search?" in done.stderr


def test_ls_tells_a_running_search_from_an_interrupted_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def state() -> str:
        assert main(["ls", "--out", str(tmp_path), "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)["runs"][0]["state"])

    root = tmp_path / "2026-12-01-chemcot-aaaa"
    root.mkdir()
    with RunFolder.create(root) as store:
        store.append(RunStarted(run=root.name, config=RunConfig(), at="2026-12-01T00:00:00+00:00"))
        assert state() == "running"
    assert state() == "open"
    with RunFolder.open(root) as store:
        store.append(RunFinished(reason="test"))
    assert state() == "ended"
