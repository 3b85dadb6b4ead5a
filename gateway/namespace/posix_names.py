"""Escaping of tree names to POSIX names, and back. Pure.

Most names are not changed; a directory's without its slash. Some cannot be: the empty one, `.` and `..`, those
with a NUL, those over 255 bytes; and an object `a` beside the directory `a/`, which has the better right to `a`. They
get an escape, which begins with `%%` and a letter:

    %%n…            the name, percent-encoded
    %%o…            the object of that name, percent-encoded, that stands beside the directory
    %%N…~HEX %%O…~HEX   the same, too long: as much of its beginning as fits, and the BLAKE2b-128 of the whole

A name that reads like an escape but is not meant as one is escaped too, so that the way back is always plain. A long
name's way back is a look-up: the names with that beginning whose digest is that (`UnescapedName.matches_name`).
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple

NAME_BYTES = 255
"""The most bytes of a POSIX name."""
MARK = b"%%"
DIGEST_HEX = 32

_QUOTED = re.compile(rb"%([0-9A-F]{2})")
_LONG = re.compile(rb"(.*)~([0-9a-f]{32})", re.DOTALL)


class UnescapedName(NamedTuple):
    """The tree name that a POSIX name refers to, without a directory's slash."""

    base: bytes
    """The name; of a long one, its beginning."""
    beside: bool
    """The object is meant, though a directory of that name may stand."""
    digest: str = ""
    """Of a long name; otherwise `base` is all of it."""

    def matches_name(self, base: bytes) -> bool:
        """Return whether this refers to the tree name *base*."""
        if not self.digest:
            return base == self.base
        return base.startswith(self.base) and _digest(base) == self.digest


def escape_name(base: bytes, *, beside: bool = False) -> bytes:
    """Return the POSIX name of a tree name without its slash. *beside*: an object beside a directory of that name."""
    if not beside and _is_plain(base):
        return base
    escaped = MARK + (b"o" if beside else b"n") + _quote(base)
    if len(escaped) <= NAME_BYTES:
        return escaped
    room = NAME_BYTES - len(MARK) - 1 - 1 - DIGEST_HEX
    beginning = base[:room]
    while len(_quote(beginning)) > room:
        beginning = beginning[:-1]
    return MARK + (b"O" if beside else b"N") + _quote(beginning) + b"~" + _digest(base).encode()


def unescape_name(name: bytes) -> UnescapedName:
    """Return the tree name of a POSIX name: the inverse of `escape_name`. A name that is no escape is itself."""
    return _parse_escape(name) or UnescapedName(name, False)


def _is_plain(base: bytes) -> bool:
    if base in (b"", b".", b"..") or b"\0" in base or len(base) > NAME_BYTES:
        return False
    return not base.startswith(MARK) or _parse_escape(base) is None


def _parse_escape(name: bytes) -> UnescapedName | None:
    """What *name* says as an escape; None if it is none, or not as `escape_name` would have written it."""
    kind, rest = name[2:3], name[3:]
    if not name.startswith(MARK) or not kind or kind not in b"noNO":
        return None
    if kind in b"no":
        base = _unquote(rest)
        canonical = base is not None and escape_name(base, beside=kind == b"o") == name
        return UnescapedName(base, kind == b"o") if base is not None and canonical else None
    long = _LONG.fullmatch(rest)
    base = _unquote(long[1]) if long else None
    return UnescapedName(base, kind == b"O", long[2].decode()) if long and base is not None else None


def _quote(base: bytes) -> bytes:
    """Percent-encoded: the percent sign, NUL, and the dots of a name of dots alone."""
    quoted = base.replace(b"%", b"%25").replace(b"\0", b"%00")
    return quoted.replace(b".", b"%2E") if base in (b".", b"..") else quoted


def _unquote(quoted: bytes) -> bytes | None:
    """None for what `_quote` does not write."""
    base = _QUOTED.sub(lambda found: bytes((int(found[1], 16),)), quoted)
    return base if _quote(base) == quoted else None


def _digest(base: bytes) -> str:
    return blake2b(base, digest_size=16).hexdigest()
