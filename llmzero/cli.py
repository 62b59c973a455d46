"""The command line: parse, one call, exit code. Nothing else lives here.

Exit codes: 0 done, 1 the run cannot go on (its folder, disk or lock), 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from llmzero import __version__
from llmzero.domain.errors import LLMZeroError, UsageError, did_you_mean

MAX_LINE = 700
"""Characters of an error."""

SEARCH_FLAGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("task", {"metavar": "NAME", "help": "task name (llmzero task list); default chemcot"}),
    ("model", {"metavar": "MODEL", "help": "nano (embedded base, default), a Hugging Face id, or a folder"}),
    ("data", {"choices": ("mini", "hub"), "help": "mini: offline generator (default); hub: the real data set"}),
    ("nodes", {"type": int, "metavar": "N", "help": "phases to train at most (default 8)"}),
    ("hours", {"type": float, "metavar": "H", "help": "worker hours at most (default: no limit)"}),
    ("steps", {"type": int, "metavar": "N", "help": "steps per phase (default 60)"}),
    ("agent", {"metavar": "NAME", "help": "proposer: auto (default), llm, skill, playbook, random"}),
    ("stopper", {"metavar": "NAME", "help": "early stopper: auto (default), rule, agent, both, skill, none"}),
    ("llm-model", {"metavar": "NAME", "help": "the agents' language model (or LLMZERO_LLM_MODEL)"}),
    ("llm-base-url", {"metavar": "URL", "help": "its OpenAI-compatible endpoint (or OPENAI_BASE_URL)"}),
    ("usd", {"type": float, "metavar": "USD", "help": "ceiling for the agents' calls (needs a price)"}),
    ("prompts", {"metavar": "DIR", "help": "templates and knowledge cards of your own"}),
    ("seed", {"type": int, "metavar": "N", "help": "run seed (default 0)"}),
    ("workers", {"type": int, "metavar": "N", "help": "phases trained at the same time (default 1; nano 2)"}),
    ("kl-anchor", {"choices": ("base", "parent"), "help": "KL reference (default base)"}),
    ("keep", {"choices": ("best", "last"), "help": "a phase's checkpoint (default best)"}),
    ("trainer", {"metavar": "NAME", "help": "trl (default), or sim: seeded dynamics, no model"}),
)


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors that name the nearest valid choice."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            name = action.option_strings[0] if action.option_strings else action.dest
            raise UsageError(f"{name} {value!r}: {did_you_mean(str(value), map(str, action.choices))}")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, rest = self.parse_known_args(args, namespace)
        if len(rest) == 1 and not rest[0].startswith("-") and parsed.command == "show" and parsed.node is None:
            parsed.node = rest.pop()  # argparse gives up on NODE once a flag came between it and RUN
        if rest:
            flags = {flag for flag in _option_strings(self, parsed) if flag.startswith("--")} - {"--version"}
            word = rest[0][:60]
            raise UsageError(f"unknown argument {word!r}: {did_you_mean(word.split('=')[0], flags)}")
        return parsed


def _option_strings(parser: Parser, parsed: argparse.Namespace) -> list[str]:
    """The flags of the command that was typed."""
    found: list[str] = []
    for action in parser._actions:
        found += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            chosen = action.choices.get(getattr(parsed, action.dest, None) or "")
            found += _option_strings(chosen, parsed) if chosen else []
    return found


def path(text: str) -> Path:
    """A path a user gave; an empty one would silently mean the current folder."""
    if not text.strip() or "\0" in text:
        raise argparse.ArgumentTypeError("an empty path")
    return Path(text)


def build_parser() -> Parser:
    """The whole command line."""
    parser = Parser(prog="llmzero", description="Search GRPO training strategies for RL post-training of LLMs.")
    parser.add_argument("--version", action="version", version=f"llmzero {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    _add_search(commands)
    for name, text in (
        ("resume", "go on with an interrupted search"),
        ("report", "write the strategy-tree page of a run"),
        ("export", "write the best strategy as configs for a trainer"),
        ("show", "a run's tree, or one of its nodes"),
        ("replay", "derive every decision of a run again, offline, and compare"),
    ):
        sub = _command(commands, name, text)
        sub.add_argument("run", metavar="RUN", help="run name, unique prefix, folder, or 'latest'")
        _add_specific(sub, name)
    _command(commands, "ls", "the runs under --out")
    task = _command(commands, "task", "list, show or check tasks")
    task.add_argument("action", choices=("list", "show", "check"))
    task.add_argument("name", nargs="?", metavar="NAME", help="task name")
    task.add_argument("--data", choices=("mini", "hub"), default="mini", help="data source (default mini)")
    return parser


def _command(commands: Any, name: str, text: str) -> Parser:
    sub: Parser = commands.add_parser(name, help=text, description=text)
    sub.add_argument("--out", type=path, default=Path("runs"), help="folder of runs (default runs/)")
    sub.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    sub.add_argument("--debug", action="store_true", help="show a traceback on errors")
    return sub


def _add_search(commands: Any) -> None:
    sub = _command(commands, "search", "search a better training strategy")
    for name, options in SEARCH_FLAGS:
        sub.add_argument(f"--{name}", default=argparse.SUPPRESS, **options)
    sub.add_argument("--config", type=path, metavar="FILE.toml", help="settings file; flags win over it")
    sub.add_argument("--dry-run", action="store_true", help="print the plan; train nothing")


def _add_specific(sub: Parser, name: str) -> None:
    if name == "show":
        sub.add_argument("node", nargs="?", metavar="NODE", help="node id, for example n3")
        sub.add_argument("--transcript", action="store_true", help="the model calls behind the node (or the run)")
    if name == "report":
        sub.add_argument("--output", type=path, metavar="FILE", help="where to write (default RUN/report/index.html)")
    if name == "export":
        sub.add_argument("--node", metavar="NODE", help="the strategy that ends here (default: the best)")
        sub.add_argument("--format", default="trl", metavar="NAME", help="trl (default) or strategy")
        sub.add_argument("--output", type=path, metavar="DIR", help="where to write (default RUN/exports/FORMAT-NODE)")
        sub.add_argument("--force", action="store_true", help="write into a folder that holds other files")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; errors become one line on stderr."""
    _mend_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        args = build_parser().parse_args(words)
        if not args.command:
            build_parser().print_help()
            return 0
        from llmzero import commands

        code = commands.run(args)
        sys.stdout.flush()
        return code
    except LLMZeroError as error:
        if debug:
            raise
        _complain(str(error))
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except BrokenPipeError:
        return _pipe_closed()
    except OSError as error:
        if debug:
            raise
        _complain(f"cannot read or write {error.filename or 'the output'}: {error.strerror or error}")
        _pipe_closed()
        return 1
    except Exception as error:
        if debug:
            raise
        _complain(f"unexpected {type(error).__name__}: {error} (run with --debug for details)")
        return 1


def _complain(text: str) -> None:
    """One line on stderr, whatever is in the text: no control characters, no pages of a bad value."""
    shown = "".join(c if c.isprintable() else " " for c in text[: 4 * MAX_LINE])
    line = " ".join(shown.split())
    with contextlib.suppress(OSError):
        print(f"llmzero: {line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + '…'}", file=sys.stderr)


def _pipe_closed() -> int:
    """Whoever read our output has had enough (`| head -1`): nothing more is written, not even at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _mend_streams() -> None:
    """Standard streams that are closed lead nowhere; characters a stream cannot show become question marks."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
