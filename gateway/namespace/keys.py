"""Keys as paths: how an S3 key is cut into names, and what orders them. Pure.

A key is bytes, from the wire to the rows. It is cut *behind* each slash: `a/b/c` is the names `a/`, `b/`, `c`; `a/` is
`a/` and the empty name; `a//b` is `a/`, `/`, `b`. So every key can exist, no two keys share a path, and walking names
in byte order gives S3's listing order.

S3 asks for UTF-8; POSIX names are any bytes. A key that POSIX made and that is not UTF-8 is spelled on S3's side by
percent-encoding its bytes: in a request's path, and in listings under `encoding-type=url`. In XML without that, its
bytes that are not UTF-8 appear as `text` has them: such a client cannot name the key, but it can see that there is one.
"""

from __future__ import annotations

from gateway.errors import InvalidKey

KEY_BYTES = 1024
"""The longest key that S3 may make."""

SLASH = b"/"


def check_new_key(key: bytes) -> bytes:
    """*key*, if S3 may make it. Raises `InvalidKey`."""
    if len(check_existing_key(key)) > KEY_BYTES:
        raise InvalidKey(f"a key has at most {KEY_BYTES} bytes, not {len(key)}")
    return key


def check_existing_key(key: bytes) -> bytes:
    """*key*, if it may stand: POSIX's directories can make one that S3 could not, and S3 must be able to delete it.

    Raises `InvalidKey`."""
    if not key:
        raise InvalidKey("a key has at least one byte")
    return key


def split(key: bytes) -> list[bytes]:
    """The names of *key*: directories, each with its slash, and the leaf, empty where the key ends in a slash."""
    names = key.split(SLASH)
    leaf = names.pop()
    found = [name + SLASH for name in names]
    found.append(leaf)
    return found


def join(names: list[bytes]) -> bytes:
    """The key that `split` cut."""
    return b"".join(names)


def directory_of(key: bytes) -> bytes:
    """The directories of *key*, as its own beginning: `a/b/` of `a/b/c`."""
    return key[: key.rfind(SLASH) + 1]


def successor(prefix: bytes) -> bytes | None:
    """The least bytes behind all that begin with *prefix*; None where there are none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None


def key_after(key: bytes) -> bytes:
    """The least key behind *key*."""
    return key + b"\0"


def common_prefix(key: bytes, prefix: bytes, delimiter: bytes) -> bytes | None:
    """The common prefix that *key* is shown as: up to its first *delimiter* behind *prefix*. None for a plain key."""
    if not delimiter:
        return None
    at = key.find(delimiter, len(prefix))
    return None if at < 0 else key[: at + len(delimiter)]


def text(key: bytes) -> str:
    """*key* for people: bytes that are not UTF-8 as `\\xNN`."""
    return key.decode("utf-8", "backslashreplace")
