"""The shapes of what travels between a file system and a gateway: how a value becomes plain (msgpack's), and again a
value. Pure.

Whoever reads is told by a stranger: each shape checks what it is given, to its type and its bound, and says where it
was wrong (`Malformed`), never what it was. A named value is an array of its fields; new fields come last, so that a
longer array is from a newer speaker, and what is more is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

TEXT_CHARS_MOST = 8 << 10
BYTES_MOST = 4 << 10
INTEGER_MOST = 1 << 63


class Malformed(ValueError):
    """What came is not of the shape that stands here. args: a sentence with the place."""


class Shape(Protocol):
    """One kind of value."""

    def plain(self, value: Any) -> Any:
        """*value* as msgpack takes it."""

    def read(self, plain: Any, at: str) -> Any:
        """The value again, that stood at the place *at*. Raises `Malformed`."""


class _Plain:
    """What msgpack knows by itself, up to a bound."""

    def __init__(self, kind: type, said: str, fits: Callable[[Any], bool]) -> None:
        self._kind = kind
        self._said = said
        self._fits = fits

    def plain(self, value: Any) -> Any:
        return value

    def read(self, plain: Any, at: str) -> Any:
        if type(plain) is not self._kind:
            raise Malformed(f"{at} is {self._said}, not {_kind_of(plain)}")
        if not self._fits(plain):
            raise Malformed(f"{at} is {self._said}; this is out of bounds")
        return plain


class _Key(_Plain):
    """Bytes, which may come as any buffer."""

    def plain(self, value: Any) -> Any:
        return bytes(value)


def between(least: int, most: int) -> Shape:
    """A whole number from *least* to *most*, both among them."""
    return _Plain(int, f"a whole number from {least} to {most}", lambda number: least <= number <= most)


TEXT: Shape = _Plain(str, "a text", lambda text: len(text) <= TEXT_CHARS_MOST)
BYTES: Shape = _Key(bytes, "bytes", lambda data: len(data) <= BYTES_MOST)
BLOB: Shape = _Key(bytes, "bytes", lambda data: True)
INTEGER: Shape = _Plain(int, "a whole number", lambda number: -INTEGER_MOST <= number < INTEGER_MOST)
UNSIGNED: Shape = _Plain(int, "a whole number from 0 on", lambda number: 0 <= number < 2 * INTEGER_MOST)
BOOLEAN: Shape = _Plain(bool, "true or false", lambda truth: True)
NOTHING: Shape = _Plain(type(None), "nothing", lambda nothing: True)


class Optional:
    """The shape, or nothing."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def plain(self, value: Any) -> Any:
        return None if value is None else self._shape.plain(value)

    def read(self, plain: Any, at: str) -> Any:
        return None if plain is None else self._shape.read(plain, at)


class Many:
    """Up to *most* of the shape; *made* of them, a list as a rule."""

    def __init__(self, shape: Shape, most: int, made: Callable[[Iterable[Any]], Any] = list) -> None:
        self._shape = shape
        self._most = most
        self._made = made

    def plain(self, value: Any) -> Any:
        return [self._shape.plain(each) for each in value]

    def read(self, plain: Any, at: str) -> Any:
        if not isinstance(plain, tuple):
            raise Malformed(f"{at} is a list, not {_kind_of(plain)}")
        if len(plain) > self._most:
            raise Malformed(f"{at} has {len(plain)} elements; at most {self._most}")
        return self._made(self._shape.read(each, f"{at}[{number}]") for number, each in enumerate(plain))


class Texts:
    """A map of texts, as headers and tags are."""

    def __init__(self, most: int) -> None:
        self._most = most

    def plain(self, value: Any) -> Any:
        return dict(value)

    def read(self, plain: Any, at: str) -> Any:
        if not isinstance(plain, dict):
            raise Malformed(f"{at} is a map, not {_kind_of(plain)}")
        if len(plain) > self._most:
            raise Malformed(f"{at} has {len(plain)} entries; at most {self._most}")
        return {TEXT.read(name, f"a name in {at}"): TEXT.read(each, f"a value in {at}") for name, each in plain.items()}


class Fields:
    """A named value, field by field: *get* takes it apart, *make* puts it together."""

    def __init__(
        self, make: Callable[..., Any], shapes: dict[str, Shape], get: Callable[[Any], tuple[Any, ...]]
    ) -> None:
        self._make = make
        self._shapes = shapes
        self._get = get

    def plain(self, value: Any) -> Any:
        return [shape.plain(each) for shape, each in zip(self._shapes.values(), self._get(value), strict=True)]

    def read(self, plain: Any, at: str) -> Any:
        if not isinstance(plain, tuple):
            raise Malformed(f"{at} is a list of fields, not {_kind_of(plain)}")
        if len(plain) < len(self._shapes):
            raise Malformed(f"{at} has {len(plain)} fields; it needs {', '.join(self._shapes)}")
        return self._make(
            *[
                shape.read(each, f"{at}.{name}")
                for (name, shape), each in zip(self._shapes.items(), plain, strict=False)
            ]
        )


def named(kind: Callable[..., Any], **shapes: Shape) -> Fields:
    """The shape of a class whose fields have these names and stand in this order."""
    names = tuple(shapes)
    return Fields(kind, shapes, lambda value: tuple(getattr(value, name) for name in names))


class Either:
    """One of several classes, told apart by a number before it."""

    def __init__(self, *kinds: tuple[type, Shape]) -> None:
        self._kinds = kinds

    def plain(self, value: Any) -> Any:
        for number, (kind, shape) in enumerate(self._kinds):
            if isinstance(value, kind):
                return [number, shape.plain(value)]
        raise TypeError(f"{type(value).__name__} has no shape here")

    def read(self, plain: Any, at: str) -> Any:
        if not isinstance(plain, tuple) or len(plain) < 2 or type(plain[0]) is not int:
            raise Malformed(f"{at} is a kind's number and a value")
        if not 0 <= plain[0] < len(self._kinds):
            raise Malformed(f"{at} is of a kind that is not known")
        return self._kinds[plain[0]][1].read(plain[1], at)


class Together:
    """Several values, each of a shape of its own: a tuple."""

    def __init__(self, *shapes: Shape) -> None:
        self._shapes = shapes

    def plain(self, value: Any) -> Any:
        return [shape.plain(each) for shape, each in zip(self._shapes, value, strict=True)]

    def read(self, plain: Any, at: str) -> Any:
        if not isinstance(plain, tuple) or len(plain) < len(self._shapes):
            raise Malformed(f"{at} is a list of {len(self._shapes)}")
        return tuple(
            shape.read(each, f"{at}[{number}]")
            for number, (shape, each) in enumerate(zip(self._shapes, plain, strict=False))
        )


def _kind_of(plain: Any) -> str:
    names = {type(None): "nothing", tuple: "a list", dict: "a map", str: "a text", bytes: "bytes", bool: "a truth"}
    return names.get(type(plain), "a number")
