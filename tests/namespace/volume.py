"""Large trees, written as rows: what histories of a million commands would have left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gateway.journal.columns import Checksum, checksum_kind, pack_list
from gateway.journal.tables import BUCKET, DIR, ENTRY, FILE, Bucket, Dir, Entry, File
from tests.namespace.world import Mirror

ROOT = 10
CHECKSUMS = pack_list([Checksum("CRC64NVME", "FULL_OBJECT", "AAAAAAAAAAA=")])


def bucket(mirror: Mirror, live: int, subdirs: int = 0) -> Bucket:
    row = Bucket("b", 1, 1, 7, ROOT, "us-east-1", 0, 1, live, live, 0, 0, b"", 0)
    mirror.fill(BUCKET, [row])
    mirror.fill(DIR, [directory(ROOT, 0, b"", live, subdirs)])
    return row


def directory(node: int, parent: int, name: bytes, live: int, subdirs: int = 0) -> Dir:
    return Dir(node, "b", parent, name, live, live, subdirs, 0o755, 0, 0, 0, 0, 0, b"")


def entry(parent: int, name: bytes, node: int, *, dead: int = 0, version: int = 1) -> Entry:
    at = 1_700_000_000_000_000_000
    if dead or not version:
        return Entry(parent, name, dead, node, version, 1, 0, version, at)
    return Entry(
        parent, name, dead, node, version, 1, 0, version, at, 4096, f"{node:032x}", 7, checksum_kind(CHECKSUMS)
    )


def file(node: int) -> File:
    at = 1_700_000_000_000_000_000
    return File(
        node, 0, 1, 4096, 1, node, f"{node:032x}", 7, at, 0o644, 0, 0, at, at, at, 0, b"", b"", CHECKSUMS, b"", b""
    )


def files(mirror: Mirror, parent: int, names: Iterable[bytes], first: int) -> None:
    """Live objects of these names in a directory."""

    def rows() -> Iterator[Any]:
        for n, name in enumerate(names, first):
            yield entry(parent, name, n)

    listed = list(rows())
    mirror.fill(ENTRY, listed)
    mirror.fill(FILE, (file(row.node) for row in listed))


def directories_of_one(mirror: Mirror, parent: int, names: Iterable[bytes], first: int, leaf: bytes = b"x") -> None:
    """Directories of these names (with their slashes), one object in each."""
    listed = list(enumerate(names, first))
    mirror.fill(ENTRY, (entry(parent, name, 2 * n, version=0) for n, name in listed))
    mirror.fill(DIR, (directory(2 * n, parent, name, 1) for n, name in listed))
    mirror.fill(ENTRY, (entry(2 * n, leaf, 2 * n + 1) for n, _ in listed))
    mirror.fill(FILE, (file(2 * n + 1) for n, _ in listed))
