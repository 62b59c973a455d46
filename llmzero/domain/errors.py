"""One root, few leaves. A message says what, where and what to do; the command line prints it as one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LLMZeroError(Exception):
    """Anything LLMZero says to its user instead of a traceback."""


class UsageError(LLMZeroError):
    """The user's input cannot be used: a flag, a TOML key, a name, a folder."""


class StateError(LLMZeroError):
    """A run folder cannot be used as it is: locked, damaged, newer, or the disk is full."""


class PhaseError(LLMZeroError):
    """A phase cannot go on. `kind` is a `FailureKind` value, so the search can show it and go around it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message

    def __str__(self) -> str:
        return self.message


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """The tail of an error about a name: the nearest valid names, then all of them."""
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{hint}valid: {', '.join(names)}"
