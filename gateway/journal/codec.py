"""Records and commands as msgpack: arrays of a tag and the fields, new fields last. Pure.

A shorter array takes the missing fields' defaults. So what was written before a field was added can still be read.
A field whose type is a NamedTuple, or a tuple of them, is decoded as such.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

import msgpack

from gateway.errors import Corrupted
from gateway.journal.commands import COMMAND_CLASSES
from gateway.journal.converters import convert_fields, converter
from gateway.journal.records import RECORDS


class _ClassCodec:
    """Packs and unpacks the values of one class."""

    __slots__ = ("_cls", "_converters", "_get", "_one", "tag")

    def __init__(self, cls: type[Any]) -> None:
        names = [field.name for field in fields(cls)]
        hints = typing.get_type_hints(cls)
        self._cls = cls
        self._one = len(names) == 1
        self._get: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()
        self._converters = [(at, made) for at, name in enumerate(names) if (made := converter(hints[name]))]
        self.tag: int = cls.TAG

    def to_tuple(self, value: Any) -> tuple[Any, ...]:
        values = self._get(value)
        return (self.tag, values) if self._one else (self.tag, *values)

    def from_fields(self, values: tuple[Any, ...]) -> Any:
        if not self._converters:
            return self._cls(*values)
        return self._cls(*convert_fields(values, self._converters))


class Codec:
    """Packs and unpacks the classes of one table of tags."""

    def __init__(self, classes: Mapping[int, type[Any]], what: str) -> None:
        """*what* names a value of these classes in error messages."""
        self._classes = classes
        self._what = what
        self._by_class: dict[type[Any], _ClassCodec] = {}
        self._by_tag: dict[int, _ClassCodec] = {}

    def to_tuple(self, value: Any) -> tuple[Any, ...]:
        """Return the tag of *value*, followed by its fields."""
        codec = self._by_class.get(type(value)) or self._add(type(value))
        return codec.to_tuple(value)

    def from_tuple(self, flat: tuple[Any, ...]) -> Any:
        """Rebuild a value from what `to_tuple` returned. Raises `Corrupted` for a tag that this version does not know,
        or for fields that do not fit the class."""
        codec = self._by_tag.get(flat[0])
        if codec is None:
            cls = self._classes.get(flat[0])
            if cls is None:
                raise Corrupted(f"{self._what} of tag {flat[0]!r} is not known to this version of entrepot")
            codec = self._add(cls)
        try:
            return codec.from_fields(flat[1:])
        except TypeError as error:
            raise Corrupted(f"{self._what} of tag {flat[0]}: {error}") from error

    def pack(self, values: list[Any]) -> bytes:
        """Encode a list of values."""
        return msgpack.packb([self.to_tuple(value) for value in values])  # type: ignore[no-any-return]

    def unpack(self, packed: bytes) -> list[Any]:
        """Decode a list of values. Raises `Corrupted` as `from_tuple`."""
        return [self.from_tuple(flat) for flat in msgpack.unpackb(packed, use_list=False, strict_map_key=False)]

    def _add(self, cls: type[Any]) -> _ClassCodec:
        codec = _ClassCodec(cls)
        self._by_class[cls] = codec
        self._by_tag[codec.tag] = codec
        return codec


RECORD_CODEC = Codec(RECORDS, "a record")
COMMAND_CODEC = Codec(COMMAND_CLASSES, "a command")
