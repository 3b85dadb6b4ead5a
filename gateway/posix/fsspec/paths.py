"""Paths of the file system, `bucket/key`, and what they name. Pure.

A path is a key as S3 has it, bytes that are not UTF-8 as Python's file names spell them (`surrogateescape`). So what
one names here is what boto3 names; only a slash at the end says nothing, since fsspec takes it off.
"""

from __future__ import annotations

from typing import NamedTuple

PROTOCOL = "entrepot"
SLASH = b"/"


class Place(NamedTuple):
    """What a path names: the root, where *bucket* is empty; a bucket, where *key* is; or something in it."""

    bucket: str
    key: bytes

    @property
    def below(self) -> bytes:
        """What the keys of everything in this directory begin with."""
        return self.key + SLASH if self.key else b""

    @property
    def plain(self) -> bool:
        """Whether POSIX's verbs can name it: no name on its way is empty."""
        return b"" not in self.key.split(SLASH)


def key_of(name: str) -> bytes:
    """The bytes that a path's part stands for. Raises `UnicodeEncodeError` for half of a pair of surrogates."""
    return name.encode("utf-8", "surrogateescape")


def place_of(path: str) -> Place:
    """The place that a path, already without its protocol, names. Raises `UnicodeEncodeError` as `key_of`."""
    bucket, _, key = path.partition("/")
    bucket.encode()
    return Place(bucket, key_of(key))


def path_of(bucket: str, key: bytes) -> str:
    """The path of a key or of a directory's prefix, without a slash at its end."""
    return f"{bucket}/{key.decode('utf-8', 'surrogateescape')}".rstrip("/")


def parents_of(path: str, root: str) -> list[str]:
    """The directories that *path* lies in, from *root* (itself not among them) downwards; those whose name is empty
    have no path of their own."""
    found = []
    at = path.find("/", len(root) + 1)
    while at >= 0:
        if path[at - 1] != "/":
            found.append(path[:at])
        at = path.find("/", at + 1)
    return found


def base_name(path: str) -> str:
    """The last name of a path."""
    return path.rstrip("/").rpartition("/")[2]
