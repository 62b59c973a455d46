"""What each command does, in terms of the rooms below. Results go to stdout, progress to stderr."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from llmzero import wiring
from llmzero.domain.codec import to_json
from llmzero.domain.config import RunConfig
from llmzero.domain.errors import StateError, UsageError, did_you_mean
from llmzero.domain.events import RunStarted, Tree, fold
from llmzero.domain.jobs import JobPaths
from llmzero.domain.series import MetricRow
from llmzero.domain.strategy import best_node, strategy_of
from llmzero.domain.types import ROOT, NodeId
from llmzero.executors.watch import lock_held
from llmzero.report import view
from llmzero.search.controller import search
from llmzero.search.parts import Parts
from llmzero.settings import FLAGS, load_settings
from llmzero.store.atomic import write_text
from llmzero.store.journal import read_journal
from llmzero.store.layout import RunPaths, find_run, list_runs, new_run_dir
from llmzero.store.run import RunFolder


def run(args: argparse.Namespace) -> int:
    """Dispatch one parsed command."""
    handlers: dict[str, Callable[[argparse.Namespace], int]] = {
        "search": _search,
        "resume": _resume,
        "report": _report,
        "export": _export,
        "show": _show,
        "replay": _replay,
        "ls": _ls,
        "task": _task,
    }
    return handlers[args.command](args)


# --- search and resume


def _search(args: argparse.Namespace) -> int:
    config = load_settings(args.config, {n: getattr(args, n) for n in FLAGS if hasattr(args, n)}, os.environ)
    wiring.check(config)
    if Path(config.model).is_dir():
        config = replace(config, model=str(Path(config.model).resolve()))
    if args.dry_run:
        return _dry_run(args, config)
    config = replace(config, versions=wiring.versions(config))
    root = new_run_dir(args.out, config.task, datetime.date.today())
    with RunFolder.create(root) as store:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        store.append(RunStarted(run=root.name, config=config, at=now))
        return _go(args, store, root)


def _resume(args: argparse.Namespace) -> int:
    root = find_run(args.out, args.run)
    with RunFolder.open(root) as store:
        if store.recovered_bytes:
            print(f"llmzero: cut a torn last line ({store.recovered_bytes} bytes) off the journal", file=sys.stderr)
        return _go(args, store, root)


def _go(args: argparse.Namespace, store: RunFolder, root: Path) -> int:
    from llmzero.report.terminal import TerminalView

    tree = fold(store.events())
    proposer, stopper = wiring.make_agents(tree.config, root=root, rows_of=store.rows)
    _say(f"run {root}  {_who(tree.config)}")
    executor = wiring.make_executor(tree.config)
    try:
        with _sigterm_as_interrupt(), TerminalView() as observer:
            parts = Parts(
                store=store,
                executor=executor,
                proposer=proposer,
                stopper=stopper,
                observer=observer,
                base=wiring.base_weights(tree.config),
            )
            tree = search(parts)
    except KeyboardInterrupt:
        _say(f"interrupted; go on with: llmzero resume {root}")
        raise
    finally:
        executor.close()
    return _finish(args, tree, root)


def _who(config: RunConfig) -> str:
    """One line: which proposer and stopper, and which model they ask."""
    names = wiring.proposer_name(config), wiring.stopper_name(config)
    asks = bool({"llm", "agent", "both"} & set(names))
    model = f" ({config.llm.model} at {config.llm.base_url or 'api.openai.com'})" if asks else ""
    return f"proposer {names[0]}, stopper {names[1]}{model}"


def _finish(args: argparse.Namespace, tree: Tree, root: Path) -> int:
    from llmzero.report.terminal import print_final

    page = _write_report(tree, root, None)
    if args.json:
        print(json.dumps({**view.summary(tree), "report": str(page)}))
        return 0
    best = best_node(tree)
    commands = [
        f"llmzero show {root} {best.id if best else ROOT}",
        f"llmzero export {root}",
        f"llmzero report {root}",
    ]
    print_final(tree, console=Console(), next_commands=commands, report_path=str(page))
    return 0


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """A polite kill ends a search like Ctrl-C: workers are ended and the way to resume is said."""

    def interrupt(_signal: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _dry_run(args: argparse.Namespace, config: RunConfig) -> int:
    from llmzero.plan import make_plan, plan_text

    plan = make_plan(
        config,
        base=wiring.resolve_model(config.model, config.task),
        shape=wiring.model_shape(config),
        sizes=wiring.task_sizes(config),
        past=_past_phase_s(args, config),
    )
    print(json.dumps(plan) if args.json else plan_text(plan))
    return 0


def _past_phase_s(args: argparse.Namespace, config: RunConfig) -> tuple[str, float] | None:
    """Seconds per step of an earlier run of the same task and model under --out, and its name."""
    for root in reversed(list_runs(args.out)):
        with contextlib.suppress(StateError):
            tree = fold(read_journal(RunPaths(root).journal))
            same = (tree.config.task, tree.config.model, tree.config.trainer)
            costs = [n.result.cost for n in tree.nodes.values() if n.result and n.result.cost.steps]
            if costs and same == (config.task, config.model, config.trainer):
                return root.name, sum(c.wall_s for c in costs) / sum(c.steps for c in costs)
    return None


# --- reading commands


def _load(args: argparse.Namespace) -> tuple[Path, Tree]:
    root = find_run(args.out, args.run)
    return root, fold(read_journal(RunPaths(root).journal))


def _write_report(tree: Tree, root: Path, output: Path | None) -> Path:
    from llmzero.report.render import render
    from llmzero.store.metrics import read_rows

    paths = RunPaths(root)
    rows = {n: read_rows(JobPaths(paths.phase_dir(n)).metrics) for n in tree.nodes}
    target = output or paths.report / "index.html"
    write_text(target, render(tree, rows))
    return target


def _report(args: argparse.Namespace) -> int:
    root, tree = _load(args)
    page = _write_report(tree, root, args.output)
    print(json.dumps({"run": tree.run, "report": str(page)}) if args.json else page)
    return 0


def _export(args: argparse.Namespace) -> int:
    root, tree = _load(args)
    node = _node(tree, args.node) if args.node else _best(tree)
    exporter = wiring.make_exporter(args.format)
    folder = args.output or RunPaths(root).exports / f"{exporter.name}-{node}"
    files = exporter.files(tree, strategy_of(tree, node))
    for name, text in files.items():
        write_text(folder / name, text)
    if args.json:
        print(json.dumps({"run": tree.run, "node": node, "folder": str(folder), "files": sorted(files)}))
        return 0
    print("\n".join(str(folder / name) for name in files))
    return 0


def _best(tree: Tree) -> NodeId:
    best = best_node(tree)
    if best is None or best.id == ROOT:
        raise UsageError(f"run {tree.run}: no phase beat the base model, so there is no strategy to export (--node N)")
    return best.id


def _node(tree: Tree, name: str) -> NodeId:
    if name not in tree.nodes:
        raise UsageError(f"run {tree.run} has no node {name!r}: {did_you_mean(name, tree.nodes)}")
    if name == ROOT:
        raise UsageError(f"{ROOT} is the base model: a strategy needs at least one phase")
    return name


def _show(args: argparse.Namespace) -> int:
    from llmzero.report.terminal import node_text, tree_text
    from llmzero.store.metrics import read_rows

    root, tree = _load(args)
    if args.node and args.node not in tree.nodes:
        raise UsageError(f"run {tree.run} has no node {args.node!r}: {did_you_mean(args.node, tree.nodes)}")
    if args.transcript:
        return _show_transcript(args, root, tree)
    rows = read_rows(JobPaths(RunPaths(root).phase_dir(args.node)).metrics) if args.node else ()
    if args.json:
        print(json.dumps(view.node_view(tree, args.node, rows) if args.node else view.summary(tree)))
    else:
        Console().print(node_text(tree, args.node, rows) if args.node else tree_text(tree))
    return 0


def _show_transcript(args: argparse.Namespace, root: Path, tree: Tree) -> int:
    from llmzero.agents.llm.recorder import read_calls
    from llmzero.report.transcript import calls_of, ledger, transcript_text

    calls = [to_json(call) for call in read_calls(RunPaths(root).calls)]
    shown = calls_of(tree, args.node, calls) if args.node else calls
    if args.json:
        print(json.dumps({"run": tree.run, "node": args.node, "calls": shown, "ledger": ledger(shown)}))
    else:
        print(transcript_text(shown))
    return 0


def _replay(args: argparse.Namespace) -> int:
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


def _ls(args: argparse.Namespace) -> int:
    from llmzero.report.terminal import runs_table

    rows: list[dict[str, Any]] = []
    for root in list_runs(args.out):
        try:
            tree = fold(read_journal(RunPaths(root).journal))
            rows.append({**view.summary(tree), "state": _state(root, tree)})
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


def _task(args: argparse.Namespace) -> int:
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


def _say(text: str) -> None:
    print(f"llmzero: {text}", file=sys.stderr)
