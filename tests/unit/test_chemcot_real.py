"""The loader and the reward on real ChemCoTBench rows and on recorded row shapes; no network."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from rdkit import Chem

from llmzero.domain.errors import UsageError
from llmzero.domain.examples import SPLITS, Example, Reward, Transcript
from llmzero.tasks.base import check
from llmzero.tasks.chemcot import chem, dataset, known_bad, prompts
from llmzero.tasks.chemcot.known_bad import KNOWN_BAD, BadRow, Fault
from llmzero.tasks.chemcot.policies import policies
from llmzero.tasks.chemcot.task import ChemCoT, best_constant, best_constant_of_any

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "chemcotbench"
FILES = sorted(DATA.glob("*.jsonl"))
RECORDS = {str(row["id"]): row for path in FILES for row in map(json.loads, path.read_text("utf-8").splitlines())}
"""Every distinct row that lies here: a sample of the benchmark, or all of it."""

needs_data = pytest.mark.skipif(not RECORDS, reason=f"no ChemCoTBench rows: {DATA} is absent or holds no *.jsonl")


def shape(subtask: str, **columns: object) -> dict[str, object]:
    """A row in the published table's shape, made up."""
    return {"id": "x1", "task": "mol_und", "subtask": subtask, "query": "", "gt": "", "meta": "{}"} | columns


def edit(subtask: str, source: str, gold: str, *, added: str = "", removed: str = "") -> Example:
    """An editing row, made up."""
    columns = {"molecule": source, "reference": gold, "added_group": added, "removed_group": removed}
    example = dataset.map_row({"id": "x1", "subtask": subtask, **columns})
    assert example is not None
    return example


def reference_reward(example: Example) -> Reward:
    answer = prompts.answer(example.fields["gold"], str(example.fields["key"]))
    return ChemCoT(data="hub").reward(example, Transcript.of(answer))


@pytest.fixture(scope="module")
def loaded() -> dataset.Loaded:
    return dataset.arrange(RECORDS.values())


@pytest.fixture(scope="module")
def sound(loaded) -> list[Example]:
    return [example for split in SPLITS for example in loaded.splits[split]]


@pytest.fixture
def task(loaded, monkeypatch) -> ChemCoT:
    monkeypatch.setattr("llmzero.tasks.chemcot.task._hub", lambda revision: loaded)
    return ChemCoT(data="hub")


def test_six_bad_rows_are_named_each_with_its_reason():
    assert Counter(bad.subtask for bad in KNOWN_BAD) == {"delete": 3, "sub": 3}
    for names in ({bad.id for bad in KNOWN_BAD}, {(bad.subtask, bad.source_inchikey) for bad in KNOWN_BAD}):
        assert len(names) == 6
    assert all(bad.reason for bad in KNOWN_BAD)


@needs_data
@pytest.mark.parametrize("bad", KNOWN_BAD, ids=lambda bad: f"{bad.subtask}-{bad.id[:8]}")
def test_a_known_bad_row_shows_its_fault_and_is_left_out(bad, loaded):
    if bad.id not in RECORDS:
        pytest.skip(f"not checked: {bad.subtask} row {bad.id} ({bad.fault}) is in none of {[p.name for p in FILES]}")
    example = dataset.map_row(RECORDS[bad.id])
    assert example is not None and known_bad.find(example) == bad
    assert loaded.unsound[bad.id] == bad.reason
    assert bad.id not in {kept.id for examples in loaded.splits.values() for kept in examples}


@needs_data
def test_every_supported_row_is_used_but_the_named_ones(loaded, sound):
    named = {bad.id: bad.reason for bad in KNOWN_BAD if bad.id in RECORDS}
    supported = {row_id for row_id, row in RECORDS.items() if row["subtask"] in dataset.KINDS}
    assert loaded.unsound == named
    assert {example.id for example in sound} == supported - set(named)
    assert {example.subtask for example in sound} == set(dataset.KINDS)
    assert {name.split("/")[0] for name in loaded.skipped} <= {"mol_opt", "reaction"}


@needs_data
def test_the_reference_earns_everything_on_every_row_but_the_named_ones(sound):
    assert [(e.id, reference_reward(e).reason) for e in sound if reference_reward(e).value != 1.0] == []


@needs_data
def test_no_other_editing_row_shows_a_fault(sound):
    edits = [example for example in sound if example.fields["kind"] == "edit"]
    assert [(e.id, fault) for e in edits for fault in get_args(Fault) if known_bad.shows(fault, e)] == []


@needs_data
def test_computed_answers_agree_with_the_golds(sound):
    compute = {
        "Murcko_scaffold": lambda source, fields: chem.scaffold(source),
        "ring_count": lambda source, fields: str(chem.count_matches(source, fields["ring"])),
        "equivalence": lambda source, fields: "Yes" if same(source, fields["other"]) else "No",
    }

    def same(source: chem.Mol, other: str) -> bool:
        return chem.canonical(source) == chem.canonical(chem.source_mol(other))

    for example in (each for each in sound if each.subtask in compute):
        gold, source = str(example.fields["gold"]), chem.source_mol(str(example.fields["source"]))
        gold = chem.canonical(chem.source_mol(gold)) if example.subtask == "Murcko_scaffold" else gold
        assert compute[example.subtask](source, example.fields) == gold, example.id


@needs_data
def test_every_policy_keeps_its_bound_on_real_rows(task):
    rows = [row for split in SPLITS for row in check(task, task.policies(), split)]
    assert {row.kind for row in rows} == {"oracle", "noop", "unsolved", "shortcut"}
    assert [row for row in rows if not row.ok] == []
    assert all(row.mean_reward == 1.0 for row in rows if row.kind == "oracle")


@needs_data
def test_every_policy_keeps_its_bound_on_all_real_rows_together(task, sound):
    pooled = type("Pooled", (), {"examples": lambda *_: sound, "reward": lambda _, *given: task.reward(*given)})()
    assert [row for row in check(pooled, policies(best_constant(sound))) if not row.ok] == []


@needs_data
def test_a_constant_earns_its_share_on_real_rows_and_no_more(sound):
    assert best_constant(sound)["fg_count"] > 0.7, "the benchmark's own counts are far from flat"


@needs_data
def test_the_description_names_each_row_left_out(task):
    unsound = task.describe()["unsound"]
    assert unsound == {bad.id: bad.reason for bad in KNOWN_BAD if bad.id in RECORDS}


MADE_UP: dict[Fault, Example] = {
    "two fragments": edit("delete", "CCCC(=O)NCc1ccccc1", "CCC.Cc1ccccc1", removed="amide"),
    "count rule": edit("sub", "OCCc1ccccc1", "O=C(O)CCc1ccccc1", added="carboxyl", removed="hydroxyl"),
    "core lost": edit("delete", "O=C(NC1CCc2ccccc21)C1CCc2ccccc2C1", "C1CC(C2CCc3ccccc32)Cc2ccccc21", removed="amide"),
}
"""One row per fault, so that each check is tried without the data too."""


@pytest.mark.parametrize("fault", get_args(Fault))
def test_each_fault_is_told_from_the_others(fault):
    assert [each for each in get_args(Fault) if known_bad.shows(each, MADE_UP[fault])] == [fault]
    assert dataset.fault_of(MADE_UP[fault]).startswith("not a known bad row, but its reference earns nothing")


@pytest.mark.parametrize("gold", ["OCCCc1ccccc1", "no molecule"])
def test_a_reference_without_the_fault_shows_none(gold):
    example = edit("add", "CCCc1ccccc1", gold, added="hydroxyl")
    assert not any(known_bad.shows(fault, example) for fault in get_args(Fault))


def test_a_named_row_is_used_again_once_its_reference_is_repaired(monkeypatch):
    broken = edit("delete", "CCNC(=O)Cc1ccc(C=O)cc1", "CCN.Cc1ccc(C=O)cc1", removed="aldehyde")
    repaired = edit("delete", "CCNC(=O)Cc1ccc(C=O)cc1", "CCNC(=O)Cc1ccccc1", removed="aldehyde")
    inchikey = Chem.MolToInchiKey(chem.source_mol(str(broken.fields["source"])))
    monkeypatch.setattr(known_bad, "KNOWN_BAD", (BadRow("x1", "delete", inchikey, "two fragments", "why"),))
    assert (dataset.fault_of(broken), dataset.fault_of(repaired)) == ("why", "")


def test_constants_are_bounded_by_the_split_they_do_best_on():
    counts = [Example(str(n), "fg_count", {"gold": gold}) for n, gold in enumerate("1122")]
    assert best_constant(counts) == {"fg_count": 0.5}
    assert best_constant_of_any([counts[:2], counts[1:], ()]) == {"fg_count": 1.0}


@needs_data
def test_real_splits_share_no_scaffold(loaded):
    frames = [{chem.scaffold(chem.source_mol(str(e.fields["source"]))) for e in loaded.splits[s]} for s in SPLITS]
    assert not (frames[0] & frames[1] or frames[0] & frames[2] or frames[1] & frames[2])


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        (
            shape(
                "sub",
                query="Please edit. Input Molecule: CCO, replace it",
                meta=json.dumps({"reference": "CCCl", "added_group": "halo", "removed_group": "hydroxyl"}),
            ),
            {"source": "CCO", "gold": "CCCl", "added": "halo", "removed": "hydroxyl", "key": "output"},
        ),
        (
            shape("fg_count", query="How many? Input Molecule: OCCCO.", gt=2),
            {"source": "OCCCO", "gold": "2", "key": "count"},
        ),
        (
            shape("Murcko_scaffold", query="Scaffold of Cc1ccccc1CC please", gt="c1ccccc1"),
            {"source": "Cc1ccccc1CC", "gold": "c1ccccc1", "key": "Output Scaffold"},
        ),
        (
            {"id": "x", "subtask": "equivalence", "smiles_a": "CCO", "smiles_b": "OCC", "gt": "Yes"},
            {"source": "CCO", "other": "OCC", "gold": "Yes"},
        ),
        (
            {"id": "x", "subtask": "add", "molecule": "CCC", "added_group": "Benzene ring", "reference": "CCCc1ccccc1"},
            {"source": "CCC", "added": "benzene_ring", "removed": ""},
        ),
    ],
)
def test_recorded_shapes_map(row, fields):
    example = dataset.map_row(row)
    assert example is not None
    assert {name: example.fields[name] for name in fields} == fields


@pytest.mark.parametrize(
    "row",
    [
        {},
        shape("qed", task="mol_opt"),
        shape("add", meta="not json"),
        shape("add", query="Input Molecule: CCO", meta={"reference": "OCCO", "added_group": "unobtainium"}),
        shape("fg_count", query="no molecule here", gt="1"),
        shape("equivalence", smiles_a="CCO", gt="No"),
    ],
)
def test_rows_without_what_the_reward_needs_are_skipped(row):
    assert dataset.map_row(row) is None


def test_an_unreachable_benchmark_is_one_line_with_two_ways_out():
    message = dataset.unreachable(OSError("gated repo\n401 Client Error"))
    assert "\n" not in message and "accept its terms" in message and "data = 'mini'" in message


def test_offline_loading_is_an_explained_error(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def offline(*_: object, **__: object) -> None:
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(UsageError, match="cannot load OpenMol/ChemCoTBench"):
        dataset.load()
