"""The check of the tables against themselves: every count that the journal keeps is counted again, by SQL.

All of it reads one snapshot. Memory is bounded, since intermediate counts are in temporary tables on disk. The
journal's WAL grows while the snapshot is held, so run the check when the site is not at its busiest. Runs in a thread.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from gateway.blocks.fsck.findings import FsckReport, Severity
from gateway.blocks.fsck.statements import CHECKS, FILLING, TEMPORARY, TableCheck
from gateway.errors import Corrupted
from gateway.journal.columns import in_ranges, unpack, unpack_staged

BATCH = 2_000
"""Rows that are unpacked at a time."""


def check_tables(path: Path, report: FsckReport, progress: Callable[[int, int], None]) -> None:
    """Check the tables in the file at *path*. *progress* is called in this thread with (steps done, all steps).

    Raises `Corrupted` if the file cannot be read."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("PRAGMA temp_store = FILE")
        connection.create_function("is_joined", 2, _is_joined, deterministic=True)
        connection.execute("BEGIN")
        for table in TEMPORARY:
            connection.execute(f"CREATE TEMP TABLE {table}")
        steps: list[Callable[[], object]] = [partial(connection.execute, statement) for statement in FILLING]
        tallies = (_tally_staged, _tally_runs, _tally_bodies)
        steps += [partial(tally, connection, report) for tally in tallies]
        steps += [partial(_check, connection, check, report) for check in CHECKS]
        for done, step in enumerate(steps, 1):
            step()
            progress(done, len(steps))
    except sqlite3.Error as error:
        raise Corrupted(f"{path} cannot be read: {error}") from error
    finally:
        connection.close()


def _is_joined(number: int, packed: bytes) -> bool:
    """Return whether the completed object took over the content of part *number*: *packed* is its upload's `joined`."""
    return bool(packed) and in_ranges(number, _ranges(packed))


@lru_cache(maxsize=16)
def _ranges(packed: bytes) -> tuple[tuple[int, int], ...]:
    return tuple(unpack(packed))


def _tally_staged(connection: sqlite3.Connection, report: FsckReport) -> None:
    """Count the references to bodies that uploads hold until they are completed."""
    for rows in _batches(connection.execute("SELECT staged FROM upload WHERE staged <> x''")):
        connection.executemany(
            "INSERT INTO body_refs VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET refs = refs + 1",
            ((body,) for (packed,) in rows for body in unpack_staged(packed).bodies),
        )


def _tally_runs(connection: sqlite3.Connection, report: FsckReport) -> None:
    """Sum up the extents of every run: by block, and in total."""
    for rows in _batches(connection.execute("SELECT id, extents FROM run")):
        in_block: Counter[tuple[bytes, int]] = Counter()
        sizes: Counter[int] = Counter()
        for run, packed in rows:
            for block, _, _, length in unpack(packed) or ():
                in_block[(block, run)] += length
                sizes[run] += length
        connection.executemany(
            "INSERT INTO block_run VALUES (?, ?, ?)", ((*key, size) for key, size in in_block.items())
        )
        connection.executemany("INSERT INTO content_size VALUES (1, ?, ?)", sizes.items())
        report.counted["rows"] += len(rows)


def _tally_bodies(connection: sqlite3.Connection, report: FsckReport) -> None:
    """Sum up the pieces of every body, and count its references to runs, except those that are released already."""
    bodies = connection.execute(
        "SELECT b.id, b.pieces, coalesce((SELECT max(cursor) FROM freed f WHERE f.shape = 2 AND f.content = b.id), 0) "
        "FROM body b"
    )
    for rows in _batches(bodies):
        refs: Counter[int] = Counter()
        sizes: Counter[int] = Counter()
        for body, packed, cursor in rows:
            pieces = unpack(packed) or ()
            sizes[body] = sum(length for _, _, length in pieces)
            refs.update(run for run, _, _ in pieces[cursor:])
        connection.executemany(
            "INSERT INTO run_refs VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET refs = refs + excluded.refs",
            refs.items(),
        )
        connection.executemany("INSERT INTO content_size VALUES (2, ?, ?)", sizes.items())
        report.counted["rows"] += len(rows)


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield *rows* in lists of up to `BATCH`."""
    rows = iter(rows)
    while batch := list(islice(rows, BATCH)):
        yield batch


def _check(connection: sqlite3.Connection, check: TableCheck, report: FsckReport) -> None:
    """Add a finding for each row that violates *check*."""
    for where, *values in connection.execute(check.statement):
        report.add(Severity.WRONG, check.kind, where, check.sentence.format(*values))
