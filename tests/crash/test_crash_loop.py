"""SIGKILL at random moments, then `resume`: nothing lost, nothing trained twice, the same tree.

The whole program on real processes, with the simulated trainer so that a search takes seconds. `make slow` runs 100
points and writes benchmarks/crash_loop.md; the default suite runs a handful.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llmzero.domain.codec import to_json
from llmzero.domain.events import PhaseFinished, Tree, fold
from llmzero.domain.types import FailureKind, Status
from llmzero.store.journal import read_journal

SETTINGS = """
nodes = 5
steps = 24
trainer = "sim"
seed = 7
[eval]
every = 6
[stop]
grace_steps = 12
[options]
sim_step_s = "0.01"
"""

WORDS = [sys.executable, "-m", "llmzero.cli"]


@dataclass
class Count:
    """What a crash loop found."""

    points: int = 0
    lost: int = 0
    twice: int = 0
    wrong_tree: int = 0
    failed_phases: int = 0
    victims: Counter[str] = field(default_factory=Counter)


def start(out: Path, *words: str) -> subprocess.Popen[bytes]:
    with (out / "stderr.txt").open("ab") as log:
        return subprocess.Popen([*WORDS, *words, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=log)


def begin(out: Path) -> subprocess.Popen[bytes]:
    out.mkdir(parents=True)
    (out / "settings.toml").write_text(SETTINGS)
    return start(out, "search", "--config", str(out / "settings.toml"))


def run_of(out: Path) -> Path | None:
    return next((p.parent for p in out.glob("*/journal.jsonl")), None)


def tree_of(out: Path) -> Tree:
    run = run_of(out)
    assert run is not None
    return fold(read_journal(run / "journal.jsonl"))


def decisions(tree: Tree) -> object:
    """Everything a tree says but what depends on the clock and the place."""

    def without(value: object) -> object:
        if isinstance(value, dict):
            return {k: without(v) for k, v in value.items() if k not in ("cost", "at", "step_time_s", "message")}
        return [without(v) for v in value] if isinstance(value, list) else value

    return without([to_json(list(tree.nodes.values())), to_json(tree.test_scores), tree.ended])


def results(out: Path) -> dict[str, int]:
    """Finished jobs and when their result was written."""
    return {p.parent.name: p.stat().st_mtime_ns for p in out.glob("*/*/*/result.json")}


def worker_pids(out: Path) -> list[int]:
    found = []
    for lock in out.glob("*/*/*/lock"):
        text = lock.read_text().split()
        if text and not (lock.parent / "result.json").exists() and Path(f"/proc/{text[0]}").exists():
            found.append(int(text[0]))
    return found


def strike(out: Path, process: subprocess.Popen[bytes], victim: str) -> None:
    """Kill the controller, a worker, or both."""
    for pid in worker_pids(out) if victim != "controller" else []:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if victim != "worker":
        process.kill()
        process.wait()


def crash_once(out: Path, rng: random.Random, whole_s: float, expected: object, count: Count) -> None:
    """One run: one to three strikes at random moments, each followed by a resume; then the accounts."""
    process = begin(out)
    before: dict[str, int] = {}
    worker_hit = False
    for _ in range(rng.randint(1, 3)):
        time.sleep(rng.uniform(0.0, whole_s * 0.7))
        if process.poll() is not None:
            break
        victim = rng.choice(["controller", "worker", "both"])
        count.victims[victim] += 1
        count.points += 1
        worker_hit |= victim != "controller" and bool(worker_pids(out))
        strike(out, process, victim)
        before.update(results(out))
        if process.poll() is not None:
            run = run_of(out)
            process = start(out, "resume", run.name) if run and journal_begun(run) else restart(out)
    assert process.wait(timeout=120) == 0, (out / "stderr.txt").read_text()[-2000:]
    account(out, before, worker_hit=worker_hit, expected=expected, count=count)


def journal_begun(run: Path) -> bool:
    return b"\n" in (run / "journal.jsonl").read_bytes()


def restart(out: Path) -> subprocess.Popen[bytes]:
    """Killed before the run's first event was on disk: there is nothing to resume, the user types `search` again."""
    for run in out.glob("*/journal.jsonl"):
        run.unlink()
    return start(out, "search", "--config", str(out / "settings.toml"))


def account(out: Path, before: dict[str, int], *, worker_hit: bool, expected: object, count: Count) -> None:
    after = results(out)
    tree = tree_of(out)
    run = run_of(out)
    assert run is not None
    finishes = Counter(e.node for e in read_journal(run / "journal.jsonl") if isinstance(e, PhaseFinished))
    count.lost += sum(name not in after for name in before)
    count.lost += sum(n.result is None for n in tree.nodes.values())
    count.twice += sum(after.get(name) != at for name, at in before.items())
    count.twice += sum(times > 1 for times in finishes.values())
    failed = [n for n in tree.nodes.values() if n.status == Status.FAILED]
    count.failed_phases += len(failed)
    if failed and worker_hit:
        assert all(n.result and n.result.failure is FailureKind.DIED for n in failed)
        count.wrong_tree += len(tree.nodes) != 6 or not tree.ended
    else:
        count.wrong_tree += decisions(tree) != expected


def loop(folder: Path, points: int, seed: int) -> Count:
    began = time.monotonic()
    assert begin(folder / "whole").wait(timeout=120) == 0, (folder / "whole" / "stderr.txt").read_text()
    whole_s = time.monotonic() - began
    expected = decisions(tree_of(folder / "whole"))
    rng, count, k = random.Random(seed), Count(), 0
    while count.points < points:
        crash_once(folder / f"run{k}", rng, whole_s, expected, count)
        k += 1
    return count


def test_a_few_random_kills_lose_nothing(tmp_path: Path) -> None:
    count = loop(tmp_path, points=6, seed=1)
    assert (count.lost, count.twice, count.wrong_tree) == (0, 0, 0)


@pytest.mark.slow
def test_a_hundred_random_kills_lose_nothing(tmp_path: Path) -> None:
    count = loop(tmp_path, points=100, seed=2)
    table = (
        "# Crash loop\n\n`make slow` (tests/crash/test_crash_loop.py): SIGKILL at random moments of a search on real "
        "processes\n(simulated trainer), then `llmzero resume`; the tree is compared with an uninterrupted run's.\n\n"
        "| kill points | controller / worker / both | finished phases lost | trained twice | wrong tree | "
        "phases that died with a worker |\n|---|---|---|---|---|---|\n"
        f"| {count.points} | {' / '.join(str(count.victims[v]) for v in ('controller', 'worker', 'both'))} | "
        f"{count.lost} | {count.twice} | {count.wrong_tree} | {count.failed_phases} |\n"
    )
    (Path(__file__).parents[2] / "benchmarks" / "crash_loop.md").write_text(table)
    print(json.dumps({"points": count.points, "lost": count.lost, "twice": count.twice}))
    assert (count.lost, count.twice, count.wrong_tree) == (0, 0, 0)
