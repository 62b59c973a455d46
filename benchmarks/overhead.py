"""What the search itself costs: time outside training and evaluation, phase start, and the command line's start.

    python benchmarks/overhead.py         writes benchmarks/overhead.md; the search is kept and not run twice

Ratios of one run on one machine; absolute seconds are of a shared 2-core machine.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import WORK, run_search, table, write_table
from llmzero.domain.types import ROOT

GOAL = 0.02
"""The most that should go to anything but training and evaluation, as a share of the search."""


def seconds(words: list[str], repeats: int = 9) -> float:
    """Median wall seconds of a command."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def timed_search(out: Path) -> float:
    """Wall seconds of the default search with one worker: its time is either a worker's or nobody's."""
    kept = out / "wall_s.json"
    if not kept.is_file():
        shutil.rmtree(out, ignore_errors=True)
        began = time.perf_counter()
        run_search(out, "--seed", "0", "--workers", "1")
        kept.write_text(json.dumps(time.perf_counter() - began))
    return float(json.loads(kept.read_text()))


def costs_of(out: Path) -> list[dict[str, float]]:
    """The cost of every job, the readings of the test split included."""
    return [json.loads(path.read_text())["cost"] for path in sorted(out.glob("*/*/*/result.json"))]


def main() -> None:
    out = WORK / "overhead"
    wall = timed_search(out)
    costs = costs_of(out)
    working = sum(c["train_s"] + c["eval_s"] for c in costs)
    inside = sum(c["wall_s"] for c in costs)
    first = first_start_s(next(out.glob("*/journal.jsonl")).parent)
    later = (wall - inside - first) / len(costs)
    share = [
        (name, value, f"{value / wall:.4f}")
        for name, value in (
            ("search, 8 nodes, one worker, wall", wall),
            ("training and evaluation", working),
            ("everything else", wall - working),
            ("of it: until the first worker runs (imports of torch and TRL, building the task), once", first),
            ("of it: inside workers, starting and saving", inside - working),
            ("of it: between jobs (forking, deciding, journal, display, report), all of them", wall - inside - first),
        )
    ]
    rows = [[name, f"{value:.2f} s", part] for name, value, part in share]
    rows.append(["between two jobs, mean", f"{later:.3f} s", ""])
    rows.append(
        ["start inside a later phase, median", f"{statistics.median(c['start_s'] for c in costs[1:]):.3f} s", ""]
    )
    bare, shown = seconds([sys.executable, "-c", "pass"]), seconds([sys.executable, "-m", "llmzero.cli", "--help"])
    rows.append(["`llmzero --help`", f"{shown:.3f} s", f"{shown / bare:.1f} x bare Python ({bare:.3f} s)"])
    text = f"# Overhead\n\n{__doc__}\n" + table(["part", "seconds", "share of the search"], rows)
    write_table("overhead.md", text + "\n\n" + verdict(wall, wall - working, first))


def verdict(wall: float, rest: float, first: float) -> str:
    """The goal against the measurement; and from which length on a search of such phases meets it."""
    share, recurring = rest / wall, (rest - first) / (wall - first)
    if share <= GOAL:
        return f"Goal, under {GOAL:.0%}: met with {share:.1%}."
    line = f"Goal, under {GOAL:.0%}: NOT met with {share:.1%}; {first / wall:.1%} of it is spent once, at the start."
    if recurring >= GOAL:
        return line
    enough = (first * (1 - recurring)) / (GOAL - recurring)
    return f"{line} A search of such phases that takes {enough / 60:.0f} minutes or more meets it."


def first_start_s(run: Path) -> float:
    """Seconds from the first job's order (phase.json) to its worker's first act (its result less its wall time)."""
    order, result = (run / "phases" / ROOT / name for name in ("phase.json", "result.json"))
    wall_s = float(json.loads(result.read_text())["cost"]["wall_s"])
    return result.stat().st_mtime - wall_s - order.stat().st_mtime


if __name__ == "__main__":
    main()
