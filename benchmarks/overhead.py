"""What the search itself costs: time outside training and evaluation, phase start, and the command line's start.

    python benchmarks/overhead.py         writes benchmarks/overhead.md; the search is kept and not run twice

Ratios of one run on one machine; absolute seconds are of a shared 2-core machine.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import WORK, run_search, table, write_table
from llmzero.domain.events import Tree, fold
from llmzero.domain.types import ROOT
from llmzero.store.journal import read_journal


def seconds(words: list[str], repeats: int = 9) -> float:
    """Median wall seconds of a command."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def timed_search(out: Path) -> tuple[Tree, float]:
    """The default search and its whole wall time, Python's own start included."""
    kept = out / "wall_s.json"
    began = time.perf_counter()
    run_search(out, "--seed", "0")
    if not kept.is_file():
        kept.write_text(json.dumps(time.perf_counter() - began))
    return fold(read_journal(next(out.glob("*/journal.jsonl")))), float(json.loads(kept.read_text()))


def main() -> None:
    tree, wall = timed_search(WORK / "overhead")
    results = [n.result for n in tree.nodes.values() if n.result]
    working = sum(r.cost.train_s + r.cost.eval_s for r in results)
    tests = [json.loads(p.read_text())["cost"] for p in (WORK / "overhead").glob("*/jobs/*/result.json")]
    working += sum(c["train_s"] + c["eval_s"] for c in tests)
    starts = [n.result.cost.start_s for n in tree.nodes.values() if n.result and n.id != ROOT]
    bare = seconds([sys.executable, "-c", "pass"])
    rows = [
        ["search, 8 nodes, wall", f"{wall:.1f} s", "1"],
        ["training and evaluation", f"{working:.1f} s", f"{working / wall:.3f}"],
        [
            "everything else (imports, starting workers, deciding, journal, report)",
            f"{wall - working:.1f} s",
            f"{(wall - working) / wall:.3f}",
        ],
        [
            "start of the first worker (imports torch and TRL)",
            f"{tree.nodes[ROOT].result.cost.start_s:.2f} s" if tree.nodes[ROOT].result else "",
            "",
        ],
        ["start of a later phase, median", f"{statistics.median(starts):.3f} s", ""],
        [
            "`llmzero --help`",
            f"{seconds([sys.executable, '-m', 'llmzero.cli', '--help']):.3f} s",
            f"bare Python {bare:.3f} s",
        ],
    ]
    write_table("overhead.md", f"# Overhead\n\n{__doc__}\n" + table(["part", "seconds", "share of the search"], rows))


if __name__ == "__main__":
    main()
