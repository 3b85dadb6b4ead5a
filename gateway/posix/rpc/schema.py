"""Schemas of the values that a file system and a gateway exchange: encoding to msgpack's types and validated decoding.

Pure. The peer is not trusted: each schema checks the type and the bound of what it decodes. `SchemaError` says where
the error is, and never quotes the value. A struct is encoded as an array of its fields. New fields are appended, so a
longer array comes from a newer peer, and the additional fields are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

TEXT_CHARS_MOST = 8 << 10
BYTES_MOST = 4 << 10
INTEGER_MOST = 1 << 63


class SchemaError(ValueError):
    """A value does not match its schema. args: a sentence that names the place."""


class Schema(Protocol):
    """One type of value."""

    def encode(self, value: Any) -> Any:
        """Return *value* in the types of msgpack."""

    def decode(self, encoded: Any, at: str) -> Any:
        """Return the value of an untrusted encoding. *at*: its place, for the error. Raises `SchemaError`."""


class _Scalar:
    """A type of msgpack itself, with a bound."""

    def __init__(self, kind: type, description: str, fits: Callable[[Any], bool]) -> None:
        self._kind = kind
        self._description = description
        self._fits = fits

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, encoded: Any, at: str) -> Any:
        if type(encoded) is not self._kind:
            raise SchemaError(f"{at} must be {self._description}, not {_type_name(encoded)}")
        if not self._fits(encoded):
            raise SchemaError(f"{at} must be {self._description}; the value is out of bounds")
        return encoded


class _Bytes(_Scalar):
    """Bytes. Encodes any buffer."""

    def encode(self, value: Any) -> Any:
        return bytes(value)


def integer_between(least: int, most: int) -> Schema:
    """An integer from *least* to *most*, both included."""
    return _Scalar(int, f"an integer from {least} to {most}", lambda number: least <= number <= most)


TEXT: Schema = _Scalar(str, "a string", lambda text: len(text) <= TEXT_CHARS_MOST)
BYTES: Schema = _Bytes(bytes, "bytes", lambda data: len(data) <= BYTES_MOST)
BLOB: Schema = _Bytes(bytes, "bytes", lambda data: True)
INTEGER: Schema = _Scalar(int, "an integer", lambda number: -INTEGER_MOST <= number < INTEGER_MOST)
UNSIGNED: Schema = _Scalar(int, "an integer that is not negative", lambda number: 0 <= number < 2 * INTEGER_MOST)
BOOLEAN: Schema = _Scalar(bool, "a boolean", lambda truth: True)
NOTHING: Schema = _Scalar(type(None), "nil", lambda nothing: True)


class OptionalOf:
    """A value of the schema, or None."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def encode(self, value: Any) -> Any:
        return None if value is None else self._schema.encode(value)

    def decode(self, encoded: Any, at: str) -> Any:
        return None if encoded is None else self._schema.decode(encoded, at)


class ListOf:
    """At most *most* values of the schema. *collect* builds the decoded collection, by default a list."""

    def __init__(self, schema: Schema, most: int, collect: Callable[[Iterable[Any]], Any] = list) -> None:
        self._schema = schema
        self._most = most
        self._collect = collect

    def encode(self, value: Any) -> Any:
        return [self._schema.encode(each) for each in value]

    def decode(self, encoded: Any, at: str) -> Any:
        if not isinstance(encoded, tuple):
            raise SchemaError(f"{at} must be a list, not {_type_name(encoded)}")
        if len(encoded) > self._most:
            raise SchemaError(f"{at} has {len(encoded)} elements; at most {self._most} are allowed")
        return self._collect(self._schema.decode(each, f"{at}[{number}]") for number, each in enumerate(encoded))


class TextMap:
    """A map of strings to strings with at most *most* entries, as headers and tags are."""

    def __init__(self, most: int) -> None:
        self._most = most

    def encode(self, value: Any) -> Any:
        return dict(value)

    def decode(self, encoded: Any, at: str) -> Any:
        if not isinstance(encoded, dict):
            raise SchemaError(f"{at} must be a map, not {_type_name(encoded)}")
        if len(encoded) > self._most:
            raise SchemaError(f"{at} has {len(encoded)} entries; at most {self._most} are allowed")
        return {
            TEXT.decode(name, f"a name in {at}"): TEXT.decode(each, f"a value in {at}")
            for name, each in encoded.items()
        }


class Struct:
    """An object with the named attributes, encoded as an array in their order. *make* is called with the values."""

    def __init__(self, make: Callable[..., Any], fields: dict[str, Schema]) -> None:
        self._make = make
        self._fields = fields

    def encode(self, value: Any) -> Any:
        return [schema.encode(getattr(value, name)) for name, schema in self._fields.items()]

    def decode(self, encoded: Any, at: str) -> Any:
        return self._make(*decode_fields(self._fields, encoded, at))


def struct(make: Callable[..., Any], **fields: Schema) -> Struct:
    """The schema of a class whose constructor takes these fields in this order."""
    return Struct(make, fields)


def decode_fields(fields: dict[str, Schema], encoded: Any, at: str) -> list[Any]:
    """Decode an array of values, each by its own schema; further elements are ignored. Raises `SchemaError`."""
    if not isinstance(encoded, tuple):
        raise SchemaError(f"{at} must be a list of fields, not {_type_name(encoded)}")
    if len(encoded) < len(fields):
        raise SchemaError(f"{at} has {len(encoded)} fields; it needs {', '.join(fields)}")
    return [schema.decode(each, f"{at}.{name}") for (name, schema), each in zip(fields.items(), encoded, strict=False)]


class TaggedUnion:
    """An instance of one of several classes, encoded after the number of its class."""

    def __init__(self, *alternatives: tuple[type, Schema]) -> None:
        self._alternatives = alternatives

    def encode(self, value: Any) -> Any:
        for number, (kind, schema) in enumerate(self._alternatives):
            if isinstance(value, kind):
                return [number, schema.encode(value)]
        raise TypeError(f"{type(value).__name__} is not in this union")

    def decode(self, encoded: Any, at: str) -> Any:
        if not isinstance(encoded, tuple) or len(encoded) < 2 or type(encoded[0]) is not int:
            raise SchemaError(f"{at} must be the number of a type and a value")
        if not 0 <= encoded[0] < len(self._alternatives):
            raise SchemaError(f"{at} is of an unknown type")
        return self._alternatives[encoded[0]][1].decode(encoded[1], at)


class TupleOf:
    """A tuple whose elements have schemas of their own."""

    def __init__(self, *schemas: Schema) -> None:
        self._schemas = schemas

    def encode(self, value: Any) -> Any:
        return [schema.encode(each) for schema, each in zip(self._schemas, value, strict=True)]

    def decode(self, encoded: Any, at: str) -> Any:
        if not isinstance(encoded, tuple) or len(encoded) < len(self._schemas):
            raise SchemaError(f"{at} must be a list of {len(self._schemas)}")
        return tuple(
            schema.decode(each, f"{at}[{number}]")
            for number, (schema, each) in enumerate(zip(self._schemas, encoded, strict=False))
        )


def _type_name(encoded: Any) -> str:
    names = {type(None): "nil", tuple: "a list", dict: "a map", str: "a string", bytes: "bytes", bool: "a boolean"}
    return names.get(type(encoded), "a number")
