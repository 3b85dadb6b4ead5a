"""Reads the journal of a site directly, to check what file system operations recorded."""

from __future__ import annotations

from pathlib import Path

from gateway.config import load
from gateway.journal.codec import RECORD_CODEC
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from gateway.site.paths import journal_folder


def _store(folder: Path) -> ReadStore:
    return ReadStore(JournalPaths(journal_folder(folder, load(folder))).database)


def blocks_of(folder: Path) -> set[bytes]:
    """The ids of the site's blocks, without those that its keeper wrote when compacting.

    The keeper deletes blocks at any time: test which ids are new, never whether the set is unchanged."""
    store = _store(folder)
    try:
        keepers = {row[0] for row in store.query("SELECT id FROM session WHERE kind = 'keeper'")}
        blocks = {bytes(row[0]) for row in store.query("SELECT id FROM block")}
    finally:
        store.close()
    return {block for block in blocks if int.from_bytes(block[:8], "big") not in keepers}


def head_of(folder: Path) -> int:
    """The number of the last record."""
    store = _store(folder)
    try:
        return store.head()
    finally:
        store.close()


def records_after(folder: Path, number: int) -> list[object]:
    """The records after *number*, of all processes. The keeper may add some at any time."""
    store = _store(folder)
    try:
        batches = store.query("SELECT records FROM journal WHERE number > ? ORDER BY number", (number,))
    finally:
        store.close()
    return [each for batch in batches for each in RECORD_CODEC.unpack(batch[0])]


def uploads_of(folder: Path, bucket: str) -> int:
    """The number of open uploads in a bucket."""
    store = _store(folder)
    try:
        return int(store.query_one("SELECT count(*) FROM upload WHERE bucket = ? AND state = 0", (bucket,))[0])
    finally:
        store.close()


def sessions_of(folder: Path) -> set[int]:
    """The sessions that have not ended."""
    store = _store(folder)
    try:
        return {row[0] for row in store.query("SELECT id FROM session WHERE state = 0")}
    finally:
        store.close()
