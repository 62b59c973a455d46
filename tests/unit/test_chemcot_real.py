"""The loader and the reward on real ChemCoTBench rows and on recorded row shapes; no network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmzero.domain.errors import UsageError
from llmzero.domain.examples import SPLITS
from llmzero.tasks.base import check
from llmzero.tasks.chemcot import chem, dataset
from llmzero.tasks.chemcot.task import ChemCoT, best_constant

SAMPLE = Path(__file__).resolve().parents[3] / "shared" / "data" / "chemcotbench" / "sample_200.jsonl"
needs_sample = pytest.mark.skipif(not SAMPLE.is_file(), reason="no ChemCoTBench sample beside the repository")

UNSOUND = {
    "e583e34b-d5ab-41f2-a584-b9d868f5a965": "deleting the amide leaves two fragments",
    "00cbdb97-89f0-411b-974f-414447966aba": "deleting the benzene ring leaves two fragments",
}
"""Rows of the sample whose official reference fails the gates."""


def shape(subtask: str, **columns: object) -> dict[str, object]:
    """A row in the published table's shape, made up."""
    return {"id": "x1", "task": "mol_und", "subtask": subtask, "query": "", "gt": "", "meta": "{}"} | columns


@pytest.fixture(scope="module")
def loaded() -> dataset.Loaded:
    return dataset.arrange(json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines())


@needs_sample
def test_the_sample_maps_and_only_the_named_references_fail(loaded):
    assert set(loaded.unsound) == set(UNSOUND)
    assert sum(map(len, loaded.splits.values())) == 96 - len(UNSOUND)
    assert {name.split("/")[0] for name in loaded.skipped} == {"mol_opt", "reaction"}


@needs_sample
def test_policies_keep_their_bounds_on_real_rows(loaded, monkeypatch):
    monkeypatch.setattr("llmzero.tasks.chemcot.task._hub", lambda revision: loaded)
    task = ChemCoT(data="hub")
    rows = [row for split in SPLITS for row in check(task, task.policies(), split) if "always" not in row.policy]
    assert rows and [row for row in rows if not row.ok] == []


@needs_sample
def test_a_constant_earns_its_share_on_real_rows_and_no_more(loaded):
    shares = best_constant([example for split in SPLITS for example in loaded.splits[split]])
    assert shares["fg_count"] > 0.7, "the benchmark's own counts are far from flat"


@needs_sample
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
