"""Addresses (`s3://bucket/key`) of what the journal's tables and records name, for people. All of these functions read
the database file directly, and are called in a thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gateway.journal.codec import RECORD_CODEC
from gateway.journal.records.tree import BucketDeleted, BucketMade
from gateway.namespace.version_ids import encode_version_id

ADDRESSES_MAX = 100
"""How many addresses `touched_addresses` returns."""
BATCHES_MAX = 100_000
"""How many batches of the journal it reads."""


def entry_address(connection: sqlite3.Connection, parent: int, name: bytes) -> str:
    """Return `s3://bucket/key` of the entry *name* in the directory *parent*, for people."""
    key, bucket = name, "?"
    while parent:
        row = connection.execute("SELECT bucket, parent, name FROM dir WHERE id = ?", (parent,)).fetchone()
        if row is None:
            break
        bucket, parent, own = row
        key = own + key
    return f"s3://{bucket}/{key.decode(errors='replace')}"


def addresses_of(connection: sqlite3.Connection, contents: set[tuple[int, int]]) -> Iterator[str]:
    """Yield the addresses of all objects, versions and parts with one of these contents (shape and id)."""
    files = connection.execute("SELECT id, shape, content FROM file WHERE shape > 0")
    nodes = {node for node, *content in files if tuple(content) in contents}
    for parent, name, node in connection.execute("SELECT parent, name, node FROM entry WHERE node > 0"):
        if node in nodes:
            yield entry_address(connection, parent, name)
    for parent, name, node, version in connection.execute("SELECT parent, name, node, version FROM version"):
        if node in nodes:
            yield f"{entry_address(connection, parent, name)} (version {encode_version_id(version)})"
    parts = connection.execute(
        "SELECT u.bucket, u.key, p.number, p.shape, p.content FROM part p JOIN upload u ON u.id = p.upload "
        "WHERE u.state = 0"
    )
    for bucket, key, number, *content in parts:
        if tuple(content) in contents:
            yield f"s3://{bucket}/{key.decode(errors='replace')} (part {number} of an upload)"


def touched_addresses(database: Path, after: int) -> tuple[tuple[str, ...], bool]:
    """Return addresses that the records after number *after* touch, and whether there may be more. Called in a
    thread."""
    addresses: dict[str, None] = {}
    with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as connection:
        batches = connection.execute(
            "SELECT records FROM journal WHERE number > ? ORDER BY number LIMIT ?", (after, BATCHES_MAX + 1)
        )
        for index, (packed,) in enumerate(batches):
            for record in RECORD_CODEC.unpack(packed):
                addresses |= dict.fromkeys(_addresses_in(connection, record))
            if len(addresses) > ADDRESSES_MAX or index >= BATCHES_MAX:
                return tuple(addresses)[:ADDRESSES_MAX], True
    return tuple(addresses), False


def _addresses_in(connection: sqlite3.Connection, record: Any) -> Iterator[str]:
    """Yield the addresses of the entries, objects and buckets that *record* names."""
    for parent, name in (("parent", "name"), ("to_parent", "to_name")):
        if isinstance(getattr(record, parent, None), int) and isinstance(getattr(record, name, None), bytes):
            yield entry_address(connection, getattr(record, parent), getattr(record, name))
    if isinstance(getattr(record, "bucket", None), str) and isinstance(getattr(record, "key", None), bytes):
        yield f"s3://{record.bucket}/{record.key.decode(errors='replace')}"
    if isinstance(record, BucketMade | BucketDeleted):
        yield f"s3://{record.name}"
