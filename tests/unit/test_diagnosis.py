"""The diagnosis set: its labels rest on the stored curves, and both scorers count what they should."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llm_kit import Endpoint
from llm_replies import has_image, http_error, json_reply, no_image_support, text

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import diagnosis  # noqa: E402
from diagnosis_cases import HOME, LABELS, Stored, broken, facts, load_cases, load_stored  # noqa: E402
from diagnosis_make import make_case  # noqa: E402
from diagnosis_score import NAMES, playbook_answers, rule_named, wilson  # noqa: E402
from llmzero.agents.evidence import evidence_of  # noqa: E402
from llmzero.agents.llm import client  # noqa: E402
from llmzero.agents.llm.prompt import situation  # noqa: E402
from llmzero.domain.errors import UsageError  # noqa: E402
from llmzero.domain.series import eval_points, summarise  # noqa: E402
from llmzero.domain.types import ROOT  # noqa: E402

CANARY = "sk-canary-0123456789abcdef"


@pytest.fixture(scope="module")
def stored() -> list[Stored]:
    return [load_stored(case) for case in load_cases().values()]


def test_the_set_is_wide_enough_and_every_label_is_a_name_of_the_playbook(stored: list[Stored]) -> None:
    assert len(stored) >= 12
    assert len({each.case.accepted[0] for each in stored}) >= 10
    assert sum(len(each.case.phases) > 1 for each in stored) >= 3, "paths of several phases"
    for each in stored:
        assert each.case.accepted and set(each.case.accepted) <= set(NAMES), each.case.name
        assert each.case.made and each.case.why and each.case.criterion, each.case.name


def test_every_criterion_holds_on_the_stored_curve(stored: list[Stored]) -> None:
    known = {each.case.name: facts(each) for each in stored}
    assert {each.case.name: wrong for each in stored if (wrong := broken(each.case, known))} == {}


def test_a_criterion_does_not_hold_on_the_curves_of_other_labels(stored: list[Stored]) -> None:
    """Each one tells its curve from at least two thirds of the cases that have another first label."""
    known = {each.case.name: facts(each) for each in stored}
    for each in stored:
        own = each.case.criterion
        others = [o for o in stored if not set(o.case.accepted) & set(each.case.accepted)]
        held = [o.case.name for o in others if not broken(replace(o.case, criterion=own), _with(known, o))]
        assert len(held) <= len(others) / 3, (each.case.name, held)


def _with(known: dict[str, dict[str, float]], other: Stored) -> dict[str, dict[str, float]]:
    """Facts in which what a curve did not measure is no number, so that no clause on it holds."""
    every = {name: float("nan") for found in known.values() for name in found}
    return {**known, other.case.name: {**every, **known[other.case.name]}}


def test_what_is_stored_is_a_run_and_nothing_else(stored: list[Stored]) -> None:
    files = [path for path in HOME.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_000_000
    assert {path.name for path in files} == {"labels.toml", "journal.jsonl", "metrics.jsonl"}
    assert {path.name for path in HOME.iterdir()} == {"labels.toml", *load_cases()}
    for path in files:
        assert not [word for word in ("/tmp", "/work", "/home", "/root") if word in path.read_text("utf-8")], path
    for each in stored:
        config = each.tree.config
        assert (config.trainer, config.model, config.data, config.seed) == ("trl", "nano", "mini", each.case.seed)
        for node in each.tree.nodes.values():
            rows = each.rows[node.id]
            assert node.result is not None
            if node.id != ROOT:
                assert node.result.summaries == summarise(rows) and node.result.curve == eval_points(rows)
                assert sum(r.kind == "train" for r in rows) == node.phase.steps == node.result.steps_done


def test_a_stored_path_is_the_one_its_labels_file_tells(stored: list[Stored]) -> None:
    for each in stored:
        nodes = [node for node in each.tree.nodes.values() if node.id != ROOT]
        assert len(nodes) == len(each.case.phases)
        hyper = each.tree.config.hyper
        for node, changes in zip(nodes, each.case.phases, strict=True):
            values = {k: v for k, v in changes.items() if k not in ("steps", "kl_anchor")}
            hyper = hyper.with_values(values)
            assert node.phase.hyper == hyper, each.case.name
            assert node.phase.steps == changes.get("steps", each.tree.config.steps)
            assert node.phase.keep == each.case.keep


def test_no_label_stands_in_what_an_agent_reads(stored: list[Stored]) -> None:
    for each in stored:
        words = situation(evidence_of(each.tree, each.node.id, each.tree.config.space))
        assert "seen:" not in words and each.case.name not in words
        assert not [name for name in NAMES if name in words], each.case.name


def test_clauses_are_sums_of_products_of_named_facts(stored: list[Stored]) -> None:
    case = replace(stored[0].case, name="a", criterion=("x < b.y - 2 * se", "-x >= -1", "x + 1 > 3 * y"))
    known = {"a": {"x": 1.0, "y": 1.0, "se": 0.5}, "b": {"y": 2.5}}
    assert broken(case, known) == ("x + 1 > 3 * y (2 against 3)",)
    with pytest.raises(UsageError, match=r"nothing measured is called 'gian'.*gain"):
        broken(replace(case, criterion=("gian < 1",)), {"a": {"gain": 0.0}})
    with pytest.raises(UsageError, match="no clause"):
        broken(replace(case, criterion=("x = 1",)), known)


def test_the_page_is_what_the_playbook_says_today(stored: list[Stored]) -> None:
    page = diagnosis.playbook_page(stored, playbook_answers(stored))
    kept = (BENCHMARKS / "diagnosis.md").read_text("utf-8")
    assert kept == page + "\n", "run `python benchmarks/diagnosis.py` again"


def test_names_and_intervals() -> None:
    words = {"KL spike": "kl_spike", "entropy_collapse, late": "entropy_collapse", "Truncation!": "truncation"}
    assert {word: rule_named(word) for word in words} == words
    assert rule_named("collapse / kl_spike") == rule_named("a bad mood") == ""
    low, high = wilson(12, 16)
    assert (round(low, 3), round(high, 3)) == (0.505, 0.898)
    assert wilson(0, 16)[0] == 0.0 and wilson(16, 16)[1] == 1.0


# --- a language model, scripted


def said(pathology: str, **values: Any) -> dict[str, Any]:
    change = {"parameter": "learning_rate", "value": 0.00007, "reason": "calmer"}
    return {
        "pathology": pathology,
        "diagnosis": "seen in the curves",
        "evidence": ["a number"],
        "changes": [change],
        "rationale": "a smaller step",
        "steps": None,
        "kl_anchor": None,
        "expected_effect": "less noise",
        "confidence": 0.5,
        **values,
    }


@pytest.fixture
def few(tmp_path: Path, stored: list[Stored], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Flags for a set of the first three cases, and no waiting between tries."""
    monkeypatch.setattr(client, "BACKOFF_S", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    home = tmp_path / "home"
    home.mkdir()
    lines = []
    for each in stored[:3]:
        (home / each.case.name).symlink_to(HOME / each.case.name)
        lines.append(f"[{each.case.name}]\naccepted = {json.dumps(each.case.accepted)}\nmade = 'm'\nwhy = 'w'\n")
        lines.append("criterion = ['score <= 1']\nphases = []\n")
    (tmp_path / "labels.toml").write_text("".join(lines))
    where = ["--labels", str(tmp_path / "labels.toml"), "--home", str(home), "--work", str(tmp_path / "work")]
    (tmp_path / "settings.toml").write_text("[llm]\nretries = 0\n")
    yield [*where, "--config", str(tmp_path / "settings.toml"), "--llm-model", "fake/model"]


def totals(page: str) -> dict[str, list[str]]:
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


def test_a_model_is_scored_with_plots_text_and_both_and_never_asked_twice(
    few: list[str], stored: list[Stored], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [each.case.accepted[0] for each in stored[:3]]

    def answer(index: int, body: Any) -> Any:
        """Plots: right. Text: the first right, the second no reply, the third another name. Both: unusable."""
        pictured, tables = has_image(body), "## Metrics of the phase" in str(body["messages"])
        if pictured and tables:
            return text("I cannot say.")
        if pictured:
            return json_reply(said(names[index]))
        return [json_reply(said(names[0])), http_error(400, None, "no"), json_reply(said("a bad mood"))][index - 3]

    with Endpoint(answer, strict=True) as endpoint:
        assert diagnosis.main([*few, "--llm-base-url", endpoint.base_url]) == 0
        asked = len(endpoint.chats)
        assert asked == 3 + 3 + 3 * 3, "two repair turns for each unusable reply"
        first = capsys.readouterr().out
        assert diagnosis.main([*few, "--llm-base-url", endpoint.base_url]) == 0
        assert len(endpoint.chats) == asked
    assert capsys.readouterr().out == first
    found = totals(first)
    assert found[""] == ["plots", "text", "both"]
    assert [cell.split(" (")[0] for cell in found["**right**"]] == ["3 of 3", "1 of 3", "0 of 3"]
    assert found["named"] == ["3", "1", "0"]
    assert found["other name"] == ["0", "1", "0"]
    assert found["reply unusable"] == ["0", "0", "3"]
    assert found["call failed"] == ["0", "1", "0"]
    assert found[stored[2].case.name][1:] == [f"{names[2]} (right)", "other: a bad mood", "reply unusable"]
    kept = b"".join(path.read_bytes() for path in (tmp_path / "work").rglob("*") if path.is_file())
    assert CANARY.encode() not in kept and b"bad mood" in kept
    assert f"{asked} calls, " in first


def test_a_model_that_takes_no_pictures_is_told_from_one_that_saw_them(
    few: list[str], stored: list[Stored], capsys: pytest.CaptureFixture[str]
) -> None:
    with Endpoint(no_image_support(json_reply(said(stored[0].case.accepted[0])))) as endpoint:
        assert diagnosis.main([*few, "--llm-base-url", endpoint.base_url, "--show", "plots"]) == 0
    found = totals(capsys.readouterr().out)
    assert found["picture refused by the endpoint"] == ["3"] and found["named"] == ["3"]


# --- making it


def test_a_case_is_made_once_and_a_second_make_writes_the_same(tmp_path: Path) -> None:
    case = replace(load_cases()[next(iter(load_cases()))], phases=({"steps": 20}, {"learning_rate": 3e-4, "steps": 10}))
    home, work = tmp_path / "home", tmp_path / "work"
    make_case(case, home, work=work, trainer="sim")
    made = load_stored(case, home)
    assert [node.phase.steps for node in made.tree.nodes.values()] == [0, 20, 10]
    assert made.node.phase.hyper.learning_rate == 3e-4
    files = {path.relative_to(home): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    results = {path: path.stat().st_mtime_ns for path in work.rglob("result.json")}
    assert len(results) == 3
    make_case(replace(case, phases=case.phases[:1]), tmp_path / "other", work=work, trainer="sim")
    make_case(case, home, work=work, trainer="sim")
    assert {path.relative_to(home): path.read_bytes() for path in home.rglob("*") if path.is_file()} == files
    assert {path: path.stat().st_mtime_ns for path in work.rglob("result.json")} == results, "nothing trained again"


def test_a_label_that_does_not_hold_is_not_scored(few: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    labels = Path(few[1])
    labels.write_text(labels.read_text().replace("score <= 1", "score > 1", 1))
    assert diagnosis.main(few) == 2
    assert "its criterion does not hold: score > 1" in capsys.readouterr().err


def test_a_model_without_an_endpoint_or_a_key_is_refused(
    few: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert diagnosis.main(few) == 2
    assert "set OPENAI_API_KEY" in capsys.readouterr().err


def test_a_misspelled_case_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    name = next(iter(load_cases(LABELS)))
    assert diagnosis.main(["make", name[:-1]]) == 2
    assert name in capsys.readouterr().err
