"""Does the search pay? Five seeds of the default search against three ways of not searching.

    python benchmarks/gain.py [SEED ...]      writes benchmarks/gain.md; what is finished is not trained again

For each seed: the search's best strategy on the held-out test split, against
* base: the untrained model;
* unchanged: as many stages of the same steps, every stage with the first stage's hyperparameters;
* fixed, same path: one phase of the default configuration for the steps of the best strategy's path;
* fixed, whole budget: one phase of the default configuration for all the steps the search trained.

The playbook was adjusted after looking at searches with the seeds 0 to 4, 10 and 11; the seeds 20 to 24 are unseen:
they were first run when it was as it is.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from common import WORK, run_search, run_stages, table, write_table
from llmzero.domain.events import Tree, fold
from llmzero.domain.strategy import path_to
from llmzero.domain.types import ROOT, PhaseResult
from llmzero.store.journal import read_journal

GROUPS = {"Unseen seeds": range(20, 25), "Seeds seen while the playbook was made": range(5)}


@dataclass(frozen=True)
class Row:
    """Test scores of one seed."""

    seed: int
    base: float
    search: float
    unchanged: float
    fixed_path: float
    fixed_budget: float
    se: float
    stages: int
    path_steps: int
    budget_steps: int
    wall_s: float


def measure(seed: int) -> Row:
    out = WORK / "gain" / f"seed{seed}"
    summary = run_search(out / "search", "--seed", str(seed))
    tree = fold(read_journal(next((out / "search").glob("*/journal.jsonl"))))
    path = [n for n in path_to(tree, summary["best"]["node"]) if n.id != ROOT]
    stages = [(path[0].phase.hyper if path else tree.config.hyper, n.phase.steps) for n in path]
    path_steps = sum(steps for _, steps in stages)
    budget_steps = _trained_steps(tree)
    fixed, base = tree.config.hyper, summary["base"]["test_score"]
    return Row(
        seed=seed,
        base=base,
        search=summary["best"]["test_score"],
        unchanged=_test(run_stages(out / "unchanged", tree.config, stages)) if path else base,
        fixed_path=_test(run_stages(out / "fixed_path", tree.config, [(fixed, path_steps)])) if path else base,
        fixed_budget=_test(run_stages(out / "fixed_budget", tree.config, [(fixed, budget_steps)])),
        se=tree.test_scores[summary["best"]["node"]].se,
        stages=len(stages),
        path_steps=path_steps,
        budget_steps=budget_steps,
        wall_s=sum(n.result.cost.wall_s for n in tree.nodes.values() if n.result),
    )


def _trained_steps(tree: Tree) -> int:
    return sum(n.result.cost.steps for n in tree.nodes.values() if n.result)


def _test(results: list[PhaseResult]) -> float:
    """The test score; 0 for a run that failed, which is what its user would have."""
    return results[-1].score or 0.0


def verdict(rows: list[Row], name: str, words: str) -> str:
    gains = [row.search - getattr(row, name) for row in rows]
    wins = sum(g > 0 for g in gains)
    word = "wins" if statistics.median(gains) > 0 and wins > len(rows) / 2 else "does NOT win"
    return f"* against {words}: median {statistics.median(gains):+.3f}, better in {wins} of {len(rows)}: {word}"


def section(title: str, seeds: Sequence[int]) -> str:
    """One table, and what it says in words."""
    rows = [measure(seed) for seed in seeds]
    head = ["seed", "base", "search (± SE)", "unchanged", "fixed, same path", "fixed, whole budget", "stages", "steps"]
    cells: list[list[Any]] = [
        [
            r.seed,
            f"{r.base:.3f}",
            f"**{r.search:.3f}** ± {r.se:.3f}",
            f"{r.unchanged:.3f}",
            f"{r.fixed_path:.3f}",
            f"{r.fixed_budget:.3f}",
            r.stages,
            f"{r.path_steps} of {r.budget_steps}",
        ]
        for r in rows
    ]
    verdicts = [
        verdict(rows, "base", "the base"),
        verdict(rows, "unchanged", "the same stages without changes"),
        verdict(rows, "fixed_path", "one fixed default phase of the path's steps"),
        verdict(rows, "fixed_budget", "one fixed default phase of the whole search's steps"),
    ]
    return f"## {title}\n\n{table(head, cells)}\n\n" + "\n".join(verdicts)


def main() -> None:
    asked = [int(word) for word in sys.argv[1:]]
    groups = [("Seeds asked for", asked)] if asked else list(GROUPS.items())
    sections = [section(title, seeds) for title, seeds in groups]
    text = f"# Gain of the default search on chemcot (embedded base), test split\n\n{__doc__}\n"
    write_table("gain.md", text + "\n\n".join(sections))


if __name__ == "__main__":
    main()
