"""Paths of the file system, `bucket/key`, and what they name. Pure.

A path contains a key of S3. Bytes that are not UTF-8 are written as in Python's file names (`surrogateescape`). So a
path names what the same key names in boto3, with one exception: fsspec strips slashes at the end.
"""

from __future__ import annotations

from typing import NamedTuple

PROTOCOL = "entrepot"
SLASH = b"/"


class ObjectPath(NamedTuple):
    """A parsed path: the root (*bucket* is empty), a bucket (*key* is empty), or an object or directory in a bucket."""

    bucket: str
    key: bytes

    @property
    def prefix(self) -> bytes:
        """The prefix of all keys in this directory."""
        return self.key + SLASH if self.key else b""

    @property
    def is_posix(self) -> bool:
        """Whether POSIX can name it: no component of the key is empty."""
        return b"" not in self.key.split(SLASH)


def encode_key(name: str) -> bytes:
    """Return the bytes of a part of a path. Raises `UnicodeEncodeError` for half of a surrogate pair."""
    return name.encode("utf-8", "surrogateescape")


def parse_path(path: str) -> ObjectPath:
    """Parse a path without its protocol. Raises `UnicodeEncodeError` for half of a surrogate pair."""
    bucket, _, key = path.partition("/")
    bucket.encode()
    return ObjectPath(bucket, encode_key(key))


def format_path(bucket: str, key: bytes) -> str:
    """Return the path of a key, or of the directory with that prefix, without slashes at its end."""
    return f"{bucket}/{key.decode('utf-8', 'surrogateescape')}".rstrip("/")


def parent_paths(path: str, root: str) -> list[str]:
    """Return the directories between *root* and *path*, both excluded, from the top.

    A directory with an empty name has no path of its own, and is left out."""
    parents = []
    at = path.find("/", len(root) + 1)
    while at >= 0:
        if path[at - 1] != "/":
            parents.append(path[:at])
        at = path.find("/", at + 1)
    return parents


def base_name(path: str) -> str:
    """Return the last component of a path."""
    return path.rstrip("/").rpartition("/")[2]
