"""Records and commands as msgpack: arrays of a tag and the fields, new fields last. Pure.

A shorter array takes the missing fields' defaults, so what was written before a field came still reads. A field whose
type is a NamedTuple, or a tuple of them, comes back as such.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import starmap
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any

import msgpack

from gateway.errors import Corrupted
from gateway.journal.commands import COMMAND_CLASSES
from gateway.journal.records import RECORDS

Converter = Callable[[Any], Any]


def _converter(hint: Any) -> Converter | None:
    """What makes a field of this type out of what msgpack gives; None where nothing is to do."""
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_make"):
        return _named(hint)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return _each(inner[0])
    if origin in (typing.Union, UnionType) and NoneType in inner:
        wrapped = [_converter(one) for one in inner if one is not NoneType]
        if len(wrapped) == 1 and wrapped[0] is not None:
            some = wrapped[0]
            return lambda value: None if value is None else some(value)
    return None


def _inner(cls: Any) -> list[tuple[int, Converter]]:
    """The converters of a NamedTuple's own fields, by position."""
    hints = typing.get_type_hints(cls)
    found = [(at, _converter(hints[name])) for at, name in enumerate(cls._fields)]
    return [(at, convert) for at, convert in found if convert is not None]


def _named(cls: Any) -> Converter:
    inner = _inner(cls)
    if not inner:
        return lambda values: cls(*values)
    return lambda values: cls(*_converted(values, inner))


def _each(hint: Any) -> Converter | None:
    """For a tuple of any length of *hint*."""
    each = _converter(hint)
    if each is None:
        return None
    if hasattr(hint, "_make") and not _inner(hint):
        return lambda values: tuple(starmap(hint, values))
    return lambda values: tuple(map(each, values))


def _converted(values: tuple[Any, ...], converters: list[tuple[int, Converter]]) -> list[Any]:
    given = list(values)
    for at, convert in converters:
        if at < len(given):
            given[at] = convert(given[at])
    return given


class _Form:
    """How one class is packed and unpacked."""

    __slots__ = ("_cls", "_converters", "_get", "_one", "tag")

    def __init__(self, cls: type[Any]) -> None:
        names = [field.name for field in fields(cls)]
        hints = typing.get_type_hints(cls)
        self._cls = cls
        self._one = len(names) == 1
        self._get: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()
        self._converters = [(at, made) for at, name in enumerate(names) if (made := _converter(hints[name]))]
        self.tag: int = cls.TAG

    def flat(self, value: Any) -> tuple[Any, ...]:
        got = self._get(value)
        return (self.tag, got) if self._one else (self.tag, *got)

    def make(self, values: tuple[Any, ...]) -> Any:
        if not self._converters:
            return self._cls(*values)
        return self._cls(*_converted(values, self._converters))


class Codec:
    """Packs and unpacks the classes of one table of tags."""

    def __init__(self, classes: Mapping[int, type[Any]], what: str) -> None:
        self._classes = classes
        self._what = what
        self._forms: dict[type[Any], _Form] = {}
        self._by_tag: dict[int, _Form] = {}

    def flat(self, value: Any) -> tuple[Any, ...]:
        """The tag and the fields."""
        form = self._forms.get(type(value)) or self._learn(type(value))
        return form.flat(value)

    def make(self, flat: tuple[Any, ...]) -> Any:
        """The value again. Raises `Corrupted` for a tag that this version does not know, or fields that do not fit."""
        form = self._by_tag.get(flat[0])
        if form is None:
            cls = self._classes.get(flat[0])
            if cls is None:
                raise Corrupted(f"{self._what} of tag {flat[0]!r} is not known to this version of entrepot")
            form = self._learn(cls)
        try:
            return form.make(flat[1:])
        except TypeError as error:
            raise Corrupted(f"{self._what} of tag {flat[0]}: {error}") from error

    def pack(self, values: list[Any]) -> bytes:
        """A list of values."""
        return msgpack.packb([self.flat(value) for value in values])  # type: ignore[no-any-return]

    def unpack(self, packed: bytes) -> list[Any]:
        return [self.make(flat) for flat in msgpack.unpackb(packed, use_list=False, strict_map_key=False)]

    def _learn(self, cls: type[Any]) -> _Form:
        form = _Form(cls)
        self._forms[cls] = form
        self._by_tag[form.tag] = form
        return form


RECORD_CODEC = Codec(RECORDS, "a record")
COMMAND_CODEC = Codec(COMMAND_CLASSES, "a command")
