"""The main job, small and real: search with TRL on the embedded base, report, export, run the export, read it all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmzero.exports.schedule import load_strategy

WORDS = [sys.executable, "-m", "llmzero.cli"]

SETTINGS = """
nodes = 3
steps = 12
seed = 3
[eval]
every = 6
curve_items = 48
curve_samples = 1
items = 96
samples = 2
[stop]
grace_steps = 12
"""


@dataclass(frozen=True)
class Run:
    out: Path
    summary: dict[str, Any]
    progress: str

    @property
    def name(self) -> str:
        return str(self.summary["run"])


def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WORDS, *map(str, words)], capture_output=True, text=True, timeout=400, check=False)


def json_of(*words: str | Path) -> dict[str, Any]:
    done = call(*words, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs")
    settings = out / "settings.toml"
    settings.write_text(SETTINGS)
    done = call("search", "--config", settings, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    return Run(out, json.loads(done.stdout), done.stderr)


def test_the_search_ends_with_one_object(run: Run) -> None:
    s = run.summary
    assert {"run", "task", "model", "base", "best", "nodes", "cost"} <= set(s)
    assert (s["task"], s["model"]) == ("chemcot", "nano")
    assert {"score", "se", "test_score"} <= set(s["base"])
    assert {"node", "score", "se", "test_score", "stages"} <= set(s["best"])
    for node in s["nodes"]:
        assert {"id", "parent", "status", "score", "changes", "steps", "cost"} <= set(node)
    assert [n["id"] for n in s["nodes"]] == ["n0", "n1", "n2", "n3"]
    assert all(n["status"] in ("finished", "stopped") for n in s["nodes"])
    assert 0.2 <= s["base"]["score"] <= 0.45
    assert s["best"]["test_score"] is not None


def test_training_was_real(run: Run) -> None:
    """Weights moved, every trained node has its own, and the metrics are those of GRPO."""
    digests = {}
    for node in run.summary["nodes"][1:]:
        folder = run.out / run.name / "phases" / node["id"]
        result = json.loads((folder / "result.json").read_text())
        if result["status"] == "finished":
            digests[node["id"]] = result["checkpoint"]["digest"]
        assert result["cost"]["generated_tokens"] > 1000
        assert {"reward", "entropy", "grad_norm", "truncated_share", "zero_std_share"} <= set(result["summaries"])
    assert len(set(digests.values())) == len(digests) >= 1


def test_progress_goes_to_stderr_and_names_every_node(run: Run) -> None:
    for part in ("n0 finished", "n3", "held-out test", "search ended: all 3 nodes used"):
        assert part in run.progress


def test_reading_commands(run: Run) -> None:
    assert json_of("ls", "--out", run.out)["runs"][0]["run"] == run.name
    assert json_of("show", run.name, "--out", run.out)["best"] == run.summary["best"]
    node = json_of("show", "latest", "n1", "--out", run.out)
    assert node["id"] == "n1"
    text = call("show", "latest", "n1", "--out", run.out)
    assert "opening" in text.stdout
    page = Path(json_of("report", run.name[:-2], "--out", run.out)["report"])
    assert run.name in page.read_text()


def test_resume_of_an_ended_run_changes_nothing(run: Run) -> None:
    journal = run.out / run.name / "journal.jsonl"
    before = journal.read_bytes()
    again = json_of("resume", run.name, "--out", run.out)
    assert again["best"] == run.summary["best"]
    assert journal.read_bytes() == before


def test_the_exported_script_reproduces_the_stages(run: Run, tmp_path: Path) -> None:
    # The longest path, whatever its score: the more stages, the more there is to reproduce.
    parents = {n["id"]: n["parent"] for n in run.summary["nodes"] if n["status"] == "finished"}
    node = max(parents, key=lambda n: sum(1 for _ in _up(parents, n)))
    done = json_of("export", run.name, "--node", node, "--output", tmp_path / "export", "--out", run.out)
    assert {"train.py", "strategy.yaml", "stages/stage1.yaml"} <= set(done["files"])
    strategy = load_strategy((tmp_path / "export" / "strategy.yaml").read_text())
    words = [sys.executable, "train.py", "--output", "trained", "--evaluate"]
    ran = subprocess.run(
        words,
        cwd=tmp_path / "export",
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads((tmp_path / "export" / "trained" / "scores.json").read_text())
    assert len(strategy.stages) >= 2
    for stage in strategy.stages:
        mine = found[f"stage{stage.stage}"]
        assert stage.score is not None and stage.score_se is not None
        # Same seeds, versions and threads: the same weights, and so the same samples and the same score.
        assert mine["score"] == pytest.approx(stage.score, abs=1e-9)
        weights = tmp_path / "export" / "trained" / f"stage{stage.stage}" / "model.safetensors"
        node_weights = run.out / run.name / "phases" / stage.node / "checkpoint" / "model.safetensors"
        assert weights.read_bytes() == node_weights.read_bytes()


def _up(parents: dict[str, str | None], node: str) -> list[str]:
    path = [node]
    while (parent := parents.get(path[-1])) is not None:
        path.append(parent)
    return path


def test_a_damaged_checkpoint_is_never_trained_from(run: Run, tmp_path: Path) -> None:
    """Cut the run back to its first two nodes, damage n1's weights, resume: the search goes on elsewhere."""

    copy = tmp_path / run.name
    shutil.copytree(run.out / run.name, copy)
    lines = (copy / "journal.jsonl").read_text().splitlines(keepends=True)
    ends = [i for i, line in enumerate(lines) if '"PhaseFinished"' in line and '"n1"' in line]
    proposed = [i for i, line in enumerate(lines) if '"PhaseProposed"' in line and '"id": "n3"' in line]
    assert ends[0] < proposed[0]  # the decision on n3 knows how n1 ended
    (copy / "journal.jsonl").write_text("".join(lines[: proposed[0]]))
    shutil.rmtree(copy / "phases" / "n3")
    shutil.rmtree(copy / "jobs")
    weights = copy / "phases" / "n1" / "checkpoint" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 0xFF
    weights.write_bytes(bytes(data))
    summary = json_of("resume", run.name, "--out", tmp_path)
    assert '"CheckpointLost"' in (copy / "journal.jsonl").read_text()
    assert all(n["parent"] != "n1" for n in summary["nodes"])
