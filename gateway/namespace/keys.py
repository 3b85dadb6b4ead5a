"""Keys as paths: how an S3 key is split into names, and how keys are ordered. Pure.

A key is bytes, from the wire to the rows. It is split *after* each slash: `a/b/c` is the names `a/`, `b/`, `c`; `a/` is
`a/` and the empty name; `a//b` is `a/`, `/`, `b`. So every key can exist, no two keys share a path, and walking names
in byte order gives S3's listing order.

S3 requires UTF-8; POSIX names are any bytes. A key that POSIX made and that is not UTF-8 is written in S3 by
percent-encoding its bytes: in a request's path, and in listings under `encoding-type=url`. In XML without that, its
bytes that are not UTF-8 appear as `text` has them: such a client cannot name the key, but it can see that there is one.
"""

from __future__ import annotations

from gateway.errors import InvalidKey

KEY_BYTES = 1024
"""The most bytes of a key that an S3 request creates."""

SLASH = b"/"


def check_new_key(key: bytes) -> bytes:
    """Return *key* if an S3 request may create it. Raises `InvalidKey`."""
    if len(check_existing_key(key)) > KEY_BYTES:
        raise InvalidKey(f"a key has at most {KEY_BYTES} bytes, not {len(key)}")
    return key


def check_existing_key(key: bytes) -> bytes:
    """Return *key* if it may exist. Directories that POSIX made can give a longer key than S3 may create, and S3 must
    be able to delete it.

    Raises `InvalidKey`."""
    if not key:
        raise InvalidKey("a key has at least one byte")
    return key


def split(key: bytes) -> list[bytes]:
    """Return the names of *key*: directories, each with its slash, and the leaf, empty if the key ends in a slash."""
    names = key.split(SLASH)
    leaf = names.pop()
    found = [name + SLASH for name in names]
    found.append(leaf)
    return found


def join(names: list[bytes]) -> bytes:
    """Return the key of these names: the inverse of `split`."""
    return b"".join(names)


def directory_of(key: bytes) -> bytes:
    """Return the prefix of *key* that names its directories: `a/b/` for `a/b/c`."""
    return key[: key.rfind(SLASH) + 1]


def successor(prefix: bytes) -> bytes | None:
    """Return the least bytes greater than all that begin with *prefix*; None if there are none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None


def key_after(key: bytes) -> bytes:
    """Return the least key greater than *key*."""
    return key + b"\0"


def common_prefix(key: bytes, prefix: bytes, delimiter: bytes) -> bytes | None:
    """Return the common prefix that a listing shows for *key*: up to the first *delimiter* after *prefix*. None if the
    listing shows the key itself."""
    if not delimiter:
        return None
    at = key.find(delimiter, len(prefix))
    return None if at < 0 else key[: at + len(delimiter)]


def text(key: bytes) -> str:
    """Return *key* as text for people: bytes that are not UTF-8 become `\\xNN`."""
    return key.decode("utf-8", "backslashreplace")
