"""docs/plugins.md is true: its files, installed beside LLMZero, pass their suites and run a search together."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import llmzero.testing
from llmzero.trainers.nano import nano_path
from llmzero.wiring import GROUPS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
FILES = {name: text for _, name, text in re.findall(r"```(python|toml) (\S+)\n(.*?)```", PAGE, flags=re.DOTALL)}
PROJECT = tomllib.loads(FILES["pyproject.toml"])["project"]
GIVEN = {group.removeprefix("llmzero."): given for group, given in PROJECT["entry-points"].items()}
SUITES = sorted(name for name in FILES if name.startswith("test_"))


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files as an installed package: importable, with the metadata that pip would write."""
    site = tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        (site / name).write_text(text, encoding="utf-8")
    info = site / "llmzero_acme-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PROJECT['name']}\nVersion: {PROJECT['version']}\n")
    points = [
        f"[llmzero.{group}]\n" + "".join(f"{k} = {v}\n" for k, v in given.items()) for group, given in GIVEN.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points))
    return site


def run(site: Path, *arguments: str) -> str:
    """Standard output of `python ARGUMENTS` with the page's package installed."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=site, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def llmzero_command(site: Path, *arguments: str) -> str:
    return run(site, "-m", "llmzero", *arguments)


def test_every_port_has_an_example_an_entry_point_and_a_suite() -> None:
    assert set(GIVEN) == set(GROUPS)
    for given in GIVEN.values():
        for target in given.values():
            module, _, name = target.partition(":")
            assert f"class {name}" in FILES[f"{module}.py"]
            assert f"factory = {name}" in FILES[f"test_{module}.py"]
    suites = {name for name in llmzero.testing.__all__ if name.endswith("Contract")}
    assert all(f"`{name}`" in PAGE for name in suites)
    used = {name for name in suites if any(f"({name})" in FILES[test] for test in SUITES)}
    assert used == suites - {"RunStoreContract"}


def test_the_examples_pass_their_suites(site: Path) -> None:
    told = run(site, "-m", "pytest", *SUITES, "-q", "-p", "no:cacheprovider", "-W", "error", "-rA")
    for name in SUITES:
        assert f"PASSED {name}" in told
    assert not re.search(r"\b(skipped|failed|xfailed)\b", told.splitlines()[-1])


def test_an_example_made_wrong_does_not_pass(site: Path, tmp_path: Path) -> None:
    """The suites really look at the page's examples."""
    wrong = FILES["acme_exporter.py"].replace("to_json(strategy.phases)", "to_json(strategy.phases[:1])")
    (tmp_path / "acme_exporter.py").write_text(wrong)
    (tmp_path / "test_acme_exporter.py").write_text(FILES["test_acme_exporter.py"])
    with pytest.raises(AssertionError, match="FAILED"):
        run(tmp_path, "-m", "pytest", "test_acme_exporter.py", "-q", "-p", "no:cacheprovider", "-rf")


def test_the_examples_are_known_by_name(site: Path) -> None:
    code = "import json; from llmzero import wiring; print(json.dumps({g: wiring.names(g) for g in wiring.GROUPS}))"
    names = json.loads(run(site, "-c", code))
    for group, given in GIVEN.items():
        assert set(given) < set(names[group])
    assert "reverse" in llmzero_command(site, "task", "list").split()
    checks = json.loads(llmzero_command(site, "task", "check", "reverse", "--json"))["checks"]
    assert {row["policy"] for row in checks} == {"right answer", "says nothing"} and all(row["ok"] for row in checks)


def test_the_examples_run_a_search_together(site: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('executor = "popen"\nsteps = 20\nnodes = 3\n[eval]\nevery = 5\n')
    plug_ins = ("--task", "reverse", "--trainer", "swap", "--agent", "cooldown", "--stopper", "halfway")
    model, out = ("--model", str(nano_path("chemcot"))), ("--out", str(tmp_path / "runs"))
    llmzero_command(site, "search", *plug_ins, *model, *out, "--config", str(tmp_path / "run.toml"))
    (run_folder,) = (tmp_path / "runs").iterdir()
    shown = json.loads(llmzero_command(site, "show", str(run_folder), "--json", *out))
    print(json.dumps(shown)[:2000])
    exported = llmzero_command(site, "export", str(run_folder), "--format", "json", *out)
    plan = json.loads(Path(exported.split()[0]).read_text())
    assert plan["task"] == "reverse" and plan["stages"]
    journal = (run_folder / "journal.jsonl").read_text()
    assert '"proposer": "cooldown"' in journal or '"proposer":"cooldown"' in journal
