"""Dataclasses <-> plain JSON values, driven by the type hints; unknown keys and wrong types are refused.

One codec serves the journal, the job files and the results. It raises ValueError naming the path of the bad value.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

T = TypeVar("T")

LARGEST = 10**300
"""Whole numbers beyond it overflow where they are used; nothing here is that large."""


def to_json(value: Any) -> Any:
    """Plain JSON values (dict, list, str, int, float, bool, None) for a tree of dataclasses."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(v) for v in value]
    return value.value if isinstance(value, StrEnum) else value


def from_json(kind: type[T], value: Any, where: str = "") -> T:
    """The value of type `kind` that `to_json` made; missing keys take their defaults."""
    return typing.cast(T, _decode(kind, value, where or kind.__name__))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _decode_dataclass(kind, value, where)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(kind), value, where)
    if origin is Literal:
        return _expect(value in get_args(kind), value, f"one of {get_args(kind)}", where)
    if origin is tuple:
        return _decode_tuple(get_args(kind), value, where)
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(value, dict), value, "an object", where)
        return {k: _decode(get_args(kind)[1], v, f"{where}.{k}") for k, v in value.items()}
    if kind is Any or kind is object:
        return value
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(_expect(value in [m.value for m in kind], value, f"one of {[m.value for m in kind]}", where))
    return _decode_scalar(kind, value, where)


def _decode_dataclass(kind: type, value: Any, where: str) -> Any:
    _expect(isinstance(value, dict), value, "an object", where)
    hints = _hints(kind)
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise ValueError(f"{where}: unknown key {unknown[0]!r}")
    given = {name: _decode(hints[name], item, f"{where}.{name}") for name, item in value.items()}
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None


def _decode_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    exact = [k for k in kinds if k is type(value)]
    for kind in exact or [k for k in kinds if k is not type(None)]:
        try:
            return _decode(kind, value, where)
        except ValueError:
            continue
    raise ValueError(f"{where}: {_short(value)} fits none of {kinds}")


def _decode_tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    _expect(isinstance(value, list | tuple), value, "a list", where)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_decode(kinds[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    _expect(len(value) == len(kinds), value, f"a list of {len(kinds)}", where)
    return tuple(_decode(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True)))


def _decode_scalar(kind: type, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(_expect(abs(value) < LARGEST, value, "a number below 1e300", where))
    if kind is int and isinstance(value, int):
        _expect(abs(value) < LARGEST, value, "a number below 1e300", where)
    fits = isinstance(value, kind) and not (kind in (int, float) and isinstance(value, bool))
    return _expect(fits, value, kind.__name__, where)


def _expect(holds: bool, value: Any, what: str, where: str) -> Any:
    if not holds:
        raise ValueError(f"{where}: expected {what}, got {_short(value)}")
    return value


def _short(value: Any) -> str:
    """A bad value as it may stand in a message."""
    text = "a huge number" if isinstance(value, int) and abs(value) >= LARGEST else repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
