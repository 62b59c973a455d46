"""What the suites share. They import no pytest: a plain runner may call them too.

Every assertion carries its message, because pytest rewrites only the asserts of test files.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any, TypeVar

from llmzero.domain.codec import from_json, to_json

T = TypeVar("T")


def made(factory: Callable[..., T], **offered: Any) -> T:
    """The factory called with those of the offered arguments it takes, as `wiring.make_agents` does."""
    taken = inspect.signature(factory).parameters
    return factory(**{name: value for name, value in offered.items() if name in taken})


def refuses(kind: type[Exception], call: Callable[[], object]) -> bool:
    """Whether `call` raises `kind`; any other error is the caller's."""
    try:
        call()
    except kind:
        return True
    return False


def survives_json(value: Any) -> bool:
    """Whether a dataclass comes back from a journal line as it went in (NaN, sets, tuples of dicts do not)."""
    try:
        line = json.dumps(to_json(value), allow_nan=False)
        return bool(from_json(type(value), json.loads(line)) == value)
    except (TypeError, ValueError):
        return False


def is_one_line(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip()) and "\n" not in text
