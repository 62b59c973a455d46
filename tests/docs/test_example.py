"""The run that comes with the project: real, readable by every command, free of anybody's machine."""

import json
import re
from pathlib import Path

import pytest

from llmzero.cli import main
from llmzero.domain.events import fold
from llmzero.domain.strategy import best_node, path_to
from llmzero.store.journal import read_journal

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "runs"
EXAMPLE = RUNS / "example"


def test_it_holds_no_path_of_a_machine_and_no_checkpoint() -> None:
    for path in EXAMPLE.rglob("*"):
        if path.is_file() and path.name != "lock":
            assert not re.search(r"/(home|tmp|root|Users|mnt|work)/", path.read_text(encoding="utf-8")), path
            assert path.suffix in (".jsonl", ".json", ".html", ".yaml", ".py", ".md"), path


def test_every_reading_command_reads_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = ["--out", str(RUNS)]
    for words in (["show", "example"], ["show", "example", "n8"], ["ls"]):
        assert main([*words, *out]) == 0
        assert "n8" in capsys.readouterr().out or words == ["ls"]
    assert main(["report", "example", *out, "--output", str(tmp_path / "page.html")]) == 0
    assert main(["export", "example", *out, "--output", str(tmp_path / "trl")]) == 0
    assert (tmp_path / "trl" / "strategy.yaml").is_file()


def test_its_decisions_are_those_of_the_present_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """When rules change on purpose: run the example's search again (runs/README.md) and keep the new run."""
    assert main(["replay", "example", "--out", str(RUNS), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["identical"] == report["decisions"] > 20


def test_the_readme_shows_this_tree() -> None:
    tree = fold(read_journal(EXAMPLE / "journal.jsonl"))
    best = best_node(tree)
    assert best is not None and len(path_to(tree, best.id)) == 4
    assert tree.config.seed == 4 and '--seed 4"`' in (ROOT / "README.md").read_text(encoding="utf-8")
