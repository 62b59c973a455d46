"""What each command does, in terms of the rooms below. Results go to stdout, progress to stderr."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from llmzero import models, reading, wiring
from llmzero.domain.config import RunConfig
from llmzero.domain.errors import StateError, UsageError
from llmzero.domain.events import RunStarted, Tree, fold
from llmzero.domain.jobs import JobPaths
from llmzero.domain.strategy import best_node
from llmzero.domain.types import ROOT
from llmzero.report import view
from llmzero.report.words import printable
from llmzero.search.controller import search
from llmzero.search.parts import Parts
from llmzero.settings import FLAGS, load_settings
from llmzero.store.journal import read_journal
from llmzero.store.layout import RunPaths, find_run, list_runs, new_run_dir
from llmzero.store.run import RunFolder


def run(args: argparse.Namespace) -> int:
    """Dispatch one parsed command."""
    handlers: dict[str, Callable[[argparse.Namespace], int]] = {
        "search": _search,
        "resume": _resume,
        "report": reading.report,
        "export": reading.export,
        "show": reading.show,
        "replay": reading.replay,
        "ls": reading.ls,
        "task": reading.task,
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
    wiring.check_endpoint(config)
    config = replace(config, versions=models.versions(config))
    root = new_run_dir(args.out, config.task, datetime.date.today())
    with RunFolder.create(root) as store:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        store.append(RunStarted(run=root.name, config=config, at=now))
        return _go(args, store, root)


def _resume(args: argparse.Namespace) -> int:
    root = find_run(args.out, args.run)
    wiring.check(fold(read_journal(RunPaths(root).journal)).config)
    with RunFolder.open(root) as store:
        if store.recovered_bytes:
            print(f"llmzero: cut a torn last line ({store.recovered_bytes} bytes) off the journal", file=sys.stderr)
        _warn_of_endpoint(fold(store.events()))
        return _go(args, store, root)


def _warn_of_endpoint(tree: Tree) -> None:
    """A run that has begun goes on without its model: recorded calls need none, and the rules answer the others."""
    try:
        if not tree.ended:
            wiring.check_endpoint(tree.config)
    except UsageError as error:
        _say(f"{error}; going on, with the rules where it gives no answer")


def _go(args: argparse.Namespace, store: RunFolder, root: Path) -> int:

    with contextlib.ExitStack() as closing:
        tree = _searched(store, root, closing)
    return _finish(args, tree, root)


def _searched(store: RunFolder, root: Path, closing: contextlib.ExitStack) -> Tree:
    """The final tree; what was opened on the way to it is left to `closing`."""
    from llmzero.report.terminal import TerminalView

    tree = fold(store.events())
    proposer, stopper = wiring.make_agents(tree.config, root=root, rows_of=store.rows, closing=closing)
    _say(f"run {root}  {_who(tree.config)}")
    executor = wiring.make_executor(tree.config)
    closing.callback(executor.close)
    try:
        with _sigterm_as_interrupt(), TerminalView() as observer:
            parts = Parts(
                store=store,
                executor=executor,
                proposer=proposer,
                stopper=stopper,
                observer=observer,
                base=models.base_weights(tree.config),
            )
            return search(parts)
    except KeyboardInterrupt:
        _say(f"interrupted; go on with: llmzero resume {shlex.quote(str(root))}")
        raise


def _who(config: RunConfig) -> str:
    """One line: which proposer and stopper, and which model they ask."""
    names = wiring.proposer_name(config), wiring.stopper_name(config)
    where = f" ({config.llm.model} at {config.llm.base_url or 'api.openai.com'})"
    model = where if wiring.asks_a_model(config) else ""
    return f"proposer {names[0]}, stopper {names[1]}{model}"


def _finish(args: argparse.Namespace, tree: Tree, root: Path) -> int:
    from llmzero.report.terminal import print_final

    page = reading.write_report(tree, root, None)
    if args.json:
        print(json.dumps({**view.summary(tree, reading.calls_of(root)), "report": str(page)}))
        return 0
    best = best_node(tree)
    run = printable(shlex.quote(str(root)))
    commands = [f"llmzero show {run} {best.id if best else ROOT}", f"llmzero export {run}", f"llmzero report {run}"]
    calls = reading.calls_of(root)
    print_final(tree, console=Console(), next_commands=commands, report_path=printable(str(page)), calls=calls)
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
        base=models.resolve_model(config.model, config.task),
        shape=models.model_shape(config),
        sizes=wiring.task_sizes(config),
        past=_past_phase_s(args, config),
        llm=_forecast(args, config),
    )
    print(json.dumps(plan) if args.json else plan_text(plan))
    return 0


def _past_phase_s(args: argparse.Namespace, config: RunConfig) -> tuple[str, float] | None:
    """Seconds per step of an earlier run of the same task and model under --out, and its name."""
    for root in reversed(list_runs(args.out)):
        if not JobPaths(RunPaths(root).phase_dir(ROOT)).spec.is_file():
            continue  # copied here without its jobs: its times are another machine's
        with contextlib.suppress(StateError):
            tree = fold(read_journal(RunPaths(root).journal))
            same = (tree.config.task, tree.config.model, tree.config.trainer)
            costs = [n.result.cost for n in tree.nodes.values() if n.result and n.result.cost.steps]
            if costs and same == (config.task, config.model, config.trainer):
                return root.name, sum(c.wall_s for c in costs) / sum(c.steps for c in costs)
    return None


def _forecast(args: argparse.Namespace, config: RunConfig) -> dict[str, Any] | None:
    """The agents' model calls to expect, by an earlier run under --out that asked the same model where there is one."""
    from llmzero.forecast import MODEL_AGENTS, forecast

    agents = wiring.proposer_name(config), wiring.stopper_name(config)
    if not set(agents) & set(MODEL_AGENTS):
        return None
    return forecast(config, wiring.make_briefing(config), agents=agents, past=_past_calls(args, config, agents))


def _past_calls(
    args: argparse.Namespace, config: RunConfig, agents: tuple[str, str]
) -> tuple[str, int, dict[str, Any]] | None:
    """(run, phases, ledger by agent) of the latest run of the same model and agents that has calls on record."""
    from llmzero.report.ledger import ledger

    for root in reversed(list_runs(args.out)):
        with contextlib.suppress(StateError):
            tree = fold(read_journal(RunPaths(root).journal))
            then = tree.config
            same = then.llm.model == config.llm.model and (then.task, then.steps) == (config.task, config.steps)
            if same and agents == (wiring.proposer_name(then), wiring.stopper_name(then)):
                entry = ledger(reading.calls_of(root))
                if entry["prompt_tokens"]:
                    return root.name, len(tree.nodes) - 1, entry["by_agent"]
    return None


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"llmzero: {printable(text)}", file=sys.stderr)
