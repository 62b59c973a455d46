"""Plain values -> YAML text that reads the same in every YAML version, with optional comments.

Strings are quoted unless they are a bare word, one line each, whatever they hold; numbers keep their type
(`1.0e-06`, which YAML 1.1 readers would take for a string without the point).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_ENDLESS = 2**31


def scalar(value: Any) -> str:
    """One YAML scalar (or empty collection), on one line."""
    if isinstance(value, str):
        bare = _BARE.fullmatch(value) and yaml.safe_load(value) == value
        return value if bare else _dump(value, '"')
    return _dump(value, None)


def _dump(value: Any, style: str | None) -> str:
    text = yaml.safe_dump(value, default_style=style, width=_ENDLESS, allow_unicode=True)
    return str(text).removesuffix("\n").removesuffix("\n...")


def emit(value: Mapping[str, Any], docs: Mapping[str, str] | None = None) -> str:
    """A YAML mapping as text. `docs` maps paths (`stages[].seed`) to the comment printed at their first use."""
    return "\n".join(_mapping(value, "", dict(docs or {}))) + "\n"


def _mapping(value: Mapping[str, Any], path: str, docs: dict[str, str]) -> list[str]:
    """Lines of a mapping; comments that were printed leave `docs`, so that a list documents its first item only."""
    lines: list[str] = []
    for key, item in value.items():
        at = f"{path}.{key}" if path else str(key)
        comment = docs.pop(at, "")
        lines += _entry(scalar(str(key)), item, at, docs, f"  # {comment}" if comment else "")
    return lines


def _entry(key: str, item: Any, at: str, docs: dict[str, str], comment: str) -> list[str]:
    if isinstance(item, Mapping) and item:
        return [f"{key}:{comment}", *_indented(_mapping(item, at, docs))]
    if isinstance(item, list) and item:
        return [f"{key}:{comment}", *_indented([line for each in item for line in _list_item(each, at, docs)])]
    return [f"{key}: {scalar(item)}{comment}"]


def _list_item(item: Any, at: str, docs: dict[str, str]) -> list[str]:
    if not isinstance(item, Mapping):
        return [f"- {scalar(item)}"]
    first, *rest = _mapping(item, f"{at}[]", docs)
    return [f"- {first}", *_indented(rest)]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
