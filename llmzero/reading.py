"""The commands that read a run: report, export, show, replay, ls; and those about tasks. Results go to stdout."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from llmzero import wiring
from llmzero.domain.codec import to_json
from llmzero.domain.errors import StateError, UsageError, did_you_mean
from llmzero.domain.events import Tree, fold
from llmzero.domain.jobs import JobPaths
from llmzero.domain.series import MetricRow
from llmzero.domain.strategy import best_node, strategy_of
from llmzero.domain.types import ROOT, NodeId
from llmzero.executors.watch import lock_held
from llmzero.report import view
from llmzero.report.words import printable
from llmzero.store.atomic import write_text
from llmzero.store.journal import read_journal
from llmzero.store.layout import RunPaths, find_run, list_runs


def load(args: argparse.Namespace) -> tuple[Path, Tree]:
    root = find_run(args.out, args.run)
    return root, fold(read_journal(RunPaths(root).journal))


def write_report(tree: Tree, root: Path, output: Path | None) -> Path:
    from llmzero.report.render import render
    from llmzero.store.metrics import readable_rows

    paths = RunPaths(root)
    rows = {n: readable_rows(JobPaths(paths.phase_dir(n)).metrics) for n in tree.nodes}
    target = output or paths.report / "index.html"
    _refuse_inside(target, root, paths.report)
    write_text(target, render(tree, rows, calls_of(root)))
    return target


def calls_of(root: Path) -> list[dict[str, Any]]:
    """A run's recorded model calls as JSON, oldest first."""
    from llmzero.agents.llm.recorder import read_calls

    return [to_json(call) for call in read_calls(RunPaths(root).calls)]


def _refuse_inside(target: Path, root: Path, allowed: Path) -> None:
    """A run's own files are nobody's output: only its folder for such files may be written to."""
    place = target.resolve()
    if place.is_relative_to(root.resolve()) and not place.is_relative_to(allowed.resolve()):
        raise UsageError(
            f"--output {target} lies inside the run {root}: name a place outside it, or in {allowed.name}/"
        )


def report(args: argparse.Namespace) -> int:
    root, tree = load(args)
    page = write_report(tree, root, args.output)
    print(json.dumps({"run": tree.run, "report": str(page)}) if args.json else printable(str(page)))
    return 0


def export(args: argparse.Namespace) -> int:
    root, tree = load(args)
    node = _node(tree, args.node) if args.node is not None else _best(tree)
    exporter = wiring.make_exporter(args.format)
    folder = args.output or RunPaths(root).exports / f"{exporter.name}-{node}"
    files = exporter.files(tree, strategy_of(tree, node))
    _refuse_inside(folder, root, RunPaths(root).exports)
    _make_room(folder, files, force=args.force)
    for name, text in files.items():
        write_text(folder / name, text)
    if args.json:
        print(json.dumps({"run": tree.run, "node": node, "folder": str(folder), "files": sorted(files)}))
        return 0
    print("\n".join(printable(str(folder / name)) for name in files))
    return 0


def _make_room(folder: Path, files: dict[str, str], *, force: bool) -> None:
    """Refuse a folder that holds anything but this very export: users edit stage files, and stale ones would train."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--output {folder} is no folder")
    if force or not folder.is_dir():
        return
    found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    for name, path in sorted(found.items()):
        if not name.startswith("outputs/") and files.get(name, "").encode() != path.read_bytes():
            raise UsageError(f"{folder} holds another {name}: give another --output, or --force to write over it")


def _best(tree: Tree) -> NodeId:
    best = best_node(tree)
    if best is None or best.id == ROOT:
        raise UsageError(f"run {tree.run}: no phase beat the base model, so there is no strategy to export (--node N)")
    return best.id


def _node(tree: Tree, name: str) -> NodeId:
    if name not in tree.nodes:
        raise UsageError(f"no node {name[:60]!r} in this run: {did_you_mean(name[:60], tree.nodes)}")
    if name == ROOT:
        raise UsageError(f"{ROOT} is the base model: a strategy needs at least one phase")
    return name


def show(args: argparse.Namespace) -> int:
    from llmzero.report.ledger import calls_by_node, ledger
    from llmzero.report.tables import node_text, run_text
    from llmzero.report.transcript import transcript_text
    from llmzero.store.metrics import readable_rows

    root, tree = load(args)
    if args.node is not None and args.node not in tree.nodes:
        raise UsageError(f"run {root.name} has no node {args.node[:60]!r}: {did_you_mean(args.node[:60], tree.nodes)}")
    calls = calls_of(root)
    own = calls_by_node(tree, calls).get(args.node, []) if args.node else calls
    if args.transcript:
        shown = {"run": tree.run, "node": args.node, "calls": own, "ledger": ledger(own)}
        print(json.dumps(shown) if args.json else transcript_text(own))
        return 0
    rows = readable_rows(JobPaths(RunPaths(root).phase_dir(args.node)).metrics) if args.node else ()
    if args.json:
        print(json.dumps(view.node_view(tree, args.node, rows, own) if args.node else view.summary(tree, calls)))
    else:
        Console().print(node_text(tree, args.node, rows, own) if args.node else run_text(tree, calls))
    return 0


def replay(args: argparse.Namespace) -> int:
    from llmzero.replay import replay
    from llmzero.store.metrics import read_rows

    root = find_run(args.out, args.run)
    paths, events = RunPaths(root), read_journal(RunPaths(root).journal)
    tree = fold(events)

    def rows_of(node: NodeId) -> tuple[MetricRow, ...]:
        return tuple(read_rows(JobPaths(paths.phase_dir(node)).metrics))

    proposer, stopper = wiring.make_agents(tree.config, root=root, rows_of=rows_of, offline=True)
    decisions = list(replay(events, proposer, stopper, rows_of))
    first = next((d for d in decisions if d.difference), None)
    same = sum(not d.difference for d in decisions)
    if args.json:
        report = {"run": tree.run, "decisions": len(decisions), "identical": same, "first": to_json(first)}
        print(json.dumps(report))
    elif first is None:
        print(f"{tree.run}: all {same} decisions identical")
    else:
        print(
            f"{tree.run}: {same} of {len(decisions)} decisions identical; first difference: {first.kind} {first.node}"
        )
        print(f"  {first.difference}")
    return 0 if first is None else 1


def ls(args: argparse.Namespace) -> int:
    from llmzero.report.terminal import runs_table

    rows: list[dict[str, Any]] = []
    for root in list_runs(args.out):
        try:
            tree = fold(read_journal(RunPaths(root).journal))
            rows.append({**view.summary(tree), "run": root.name, "state": _state(root, tree)})
        except StateError as error:
            rows.append({"run": root.name, "error": str(error)})
    if args.json:
        print(json.dumps({"runs": rows}))
    else:
        Console().print(runs_table(rows))
    return 0


def _state(root: Path, tree: Tree) -> str:
    """ended; running, while a process works on it; open: llmzero resume goes on with it."""
    if tree.ended:
        return "ended"
    return "running" if lock_held(RunPaths(root).lock) else "open"


def task(args: argparse.Namespace) -> int:
    from llmzero.report.tables import check_table, facts_table

    if args.action == "list":
        found = wiring.names("tasks")
        print(json.dumps({"tasks": found}) if args.json else "\n".join(found))
        return 0
    if not args.name:
        raise UsageError(f"task {args.action} needs a task name; valid: {', '.join(wiring.names('tasks'))}")
    task = wiring.make_task(args.name, data=args.data)
    if args.action == "show":
        shown = wiring.describe_task(task)
        print(json.dumps(shown)) if args.json else Console().print(facts_table(shown))
        return 0
    rows = wiring.check_task(task)
    print(json.dumps({"task": args.name, "checks": rows})) if args.json else Console().print(check_table(rows))
    return 0 if all(row["ok"] for row in rows) else 1
