"""A suite that cannot fail is a defect: each of its tests must catch a plug-in broken in that way.

A module holds `BROKEN`: for every test of the suite, a subclass whose plug-in breaks that promise.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any


def promises_of(suite: type) -> list[str]:
    return [name for name in dir(suite) if name.startswith("test_")]


def caught(suite: type, test: str, folder: Path) -> str:
    """What the suite's test says of its plug-in; empty when it finds nothing wrong."""
    instance: Any = suite()
    method = getattr(instance, test)
    given = {"tmp_path": folder} if "tmp_path" in inspect.signature(method).parameters else {}
    try:
        getattr(suite, "setup_class", lambda: None)()
        method(**given)
    except (AssertionError, ArithmeticError) as error:  # an ArithmeticError is a broken plug-in's own
        return str(error)
    finally:
        getattr(suite, "teardown_class", lambda: None)()
    return ""
