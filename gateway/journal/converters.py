"""Rebuild values from what msgpack decodes: NamedTuples come back from msgpack as plain tuples. Pure."""

from __future__ import annotations

import typing
from collections.abc import Callable
from itertools import starmap
from types import NoneType, UnionType
from typing import Any

Converter = Callable[[Any], Any]


def converter(hint: Any) -> Converter | None:
    """Return a function that rebuilds a value of type *hint*; None if the decoded value needs no change.

    Handles a NamedTuple, a tuple of any length of one type, and an optional one of these."""
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_make"):
        return _named(hint)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return _each(inner[0])
    if origin in (typing.Union, UnionType) and NoneType in inner:
        wrapped = [converter(one) for one in inner if one is not NoneType]
        if len(wrapped) == 1 and wrapped[0] is not None:
            some = wrapped[0]
            return lambda value: None if value is None else some(value)
    return None


def convert_fields(values: tuple[Any, ...], converters: list[tuple[int, Converter]]) -> list[Any]:
    """Convert the values at the given positions. *values* may be shorter than the positions reach."""
    converted = list(values)
    for at, convert in converters:
        if at < len(converted):
            converted[at] = convert(converted[at])
    return converted


def _inner(cls: Any) -> list[tuple[int, Converter]]:
    """The converters of a NamedTuple's own fields, by position."""
    hints = typing.get_type_hints(cls)
    converters = [(at, converter(hints[name])) for at, name in enumerate(cls._fields)]
    return [(at, convert) for at, convert in converters if convert is not None]


def _named(cls: Any) -> Converter:
    inner = _inner(cls)
    if not inner:
        return lambda values: cls(*values)
    return lambda values: cls(*convert_fields(values, inner))


def _each(hint: Any) -> Converter | None:
    """The converter of a tuple of any length of *hint*."""
    each = converter(hint)
    if each is None:
        return None
    if hasattr(hint, "_make") and not _inner(hint):
        return lambda values: tuple(starmap(hint, values))
    return lambda values: tuple(map(each, values))
