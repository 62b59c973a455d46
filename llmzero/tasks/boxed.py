r"""Answers inside `\boxed{...}`, and letters of multiple-choice questions: shared by the tasks that ask for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from string import ascii_uppercase
from typing import Final

from llmzero.domain.examples import Example
from llmzero.tasks.base import Policy, single, visible

MAX_BOXES: Final = 64
_OPEN: Final = re.compile(r"\\boxed\s{0,8}\{")
_WRAPPED: Final = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s{0,8}\{([^{}]*)\}")


def boxed(text: object) -> list[str]:
    r"""The contents of every `\boxed{...}` in the visible text, in order, stripped; nested braces must balance.

    At most MAX_BOXES are read; text with more counts as unreadable and gives [].
    """
    shown = visible(text)
    found: list[str] = []
    for match in _OPEN.finditer(shown):
        inside = _balanced(shown, match.end())
        if inside is not None:
            found.append(inside.strip())
        if len(found) > MAX_BOXES:
            return []
    return found


def _balanced(text: str, start: int) -> str | None:
    """From `start` (just inside a brace) up to the brace that closes it; None where none does."""
    depth = 1
    for match in re.finditer(r"[{}]", text[start:]):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return text[start : start + match.start()]
    return None


def boxed_answer(text: object) -> str | None:
    r"""The one boxed answer, `\text{}` and its like unwrapped; None when there is none or when two boxes differ."""
    return single(_WRAPPED.sub(r"\1", each).strip() for each in boxed(text))


def boxed_letter(text: object, options: int) -> str | None:
    """The one boxed letter among the first `options` (at most 26), upper case; a full stop or brackets are forgiven."""
    answer = boxed_answer(text)
    if answer is None:
        return None
    letter = answer.strip(" .()[]").upper()
    return letter if len(letter) == 1 and letter in ascii_uppercase[:options] else None


def box(answer: object) -> str:
    r"""`\boxed{answer}`."""
    return f"\\boxed{{{answer}}}"


def format_policies(right: Callable[[Example], str], wrong: Callable[[Example], str]) -> Sequence[Policy]:
    """Right answers hidden where they must not count; `right` and `wrong` give an item's answer without its box."""

    def said(name: str, answer: Callable[[Example], str]) -> Policy:
        return Policy(name, "shortcut", 0.0, answer)

    return (
        Policy("empty text", "noop", 0.0, lambda _: ""),
        Policy("empty box", "noop", 0.0, lambda _: box("")),
        said("right answer without a box", right),
        said("two boxes, the right one last", lambda e: f"{box(wrong(e))} {box(right(e))}"),
        said("two boxes, the right one first", lambda e: f"{box(right(e))} {box(wrong(e))}"),
        said("both answers in one box", lambda e: box(f"{right(e)} {wrong(e)}")),
        said("only inside think", lambda e: f"<think>{box(right(e))}</think>"),
        said("inside an unclosed think", lambda e: f"<think>{box(right(e))}"),
        said("an unclosed box", lambda e: box(right(e))[:-1]),
    )
