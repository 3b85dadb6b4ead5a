"""The tables against themselves: every count that `apply` keeps is counted anew, by SQL, in one snapshot.

Memory is bounded: what is tallied lies in temporary tables on disk. The snapshot is held while it lasts, so that the
journal's WAL grows meanwhile; run it when the site is not at its busiest. Runs in a thread.
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
from gateway.journal.columns import in_ranges, staged, unpack

BATCH = 2_000


def check_tables(path: Path, report: FsckReport, progress: Callable[[int, int], None]) -> None:
    """Check the tables in the file at *path*. *progress* is told, in this thread, how many steps of how many are done.

    Raises `Corrupted` where the file cannot be read."""
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
        steps += [partial(_run, connection, check, report) for check in CHECKS]
        for done, step in enumerate(steps, 1):
            step()
            progress(done, len(steps))
    except sqlite3.Error as error:
        raise Corrupted(f"{path} cannot be read: {error}") from error
    finally:
        connection.close()


def _is_joined(number: int, packed: bytes) -> bool:
    """Whether the content of part *number* was taken over, by the column `joined` of its upload."""
    return bool(packed) and in_ranges(number, _ranges(packed))


@lru_cache(maxsize=16)
def _ranges(packed: bytes) -> tuple[tuple[int, int], ...]:
    return tuple(unpack(packed))


def _tally_staged(connection: sqlite3.Connection, report: FsckReport) -> None:
    """The bodies that uploads hold until they are completed."""
    for rows in _batches(connection.execute("SELECT staged FROM upload WHERE staged <> x''")):
        connection.executemany(
            "INSERT INTO held_body VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET refs = refs + 1",
            ((body,) for (packed,) in rows for body in staged(packed).bodies),
        )


def _tally_runs(connection: sqlite3.Connection, report: FsckReport) -> None:
    """Where the extents of every run lie, and how long they are together."""
    for rows in _batches(connection.execute("SELECT id, extents FROM run")):
        lying: Counter[tuple[bytes, int]] = Counter()
        summed: Counter[int] = Counter()
        for run, packed in rows:
            for block, _, _, length in unpack(packed) or ():
                lying[(block, run)] += length
                summed[run] += length
        connection.executemany("INSERT INTO lying VALUES (?, ?, ?)", ((*key, size) for key, size in lying.items()))
        connection.executemany("INSERT INTO summed VALUES (1, ?, ?)", summed.items())
        report.counted["rows"] += len(rows)


def _tally_bodies(connection: sqlite3.Connection, report: FsckReport) -> None:
    """The runs that every body holds, but for those that takedown has let go of already."""
    bodies = connection.execute(
        "SELECT b.id, b.pieces, coalesce((SELECT max(cursor) FROM freed f WHERE f.shape = 2 AND f.content = b.id), 0) "
        "FROM body b"
    )
    for rows in _batches(bodies):
        held: Counter[int] = Counter()
        summed: Counter[int] = Counter()
        for body, packed, cursor in rows:
            pieces = unpack(packed) or ()
            summed[body] = sum(length for _, _, length in pieces)
            held.update(run for run, _, _ in pieces[cursor:])
        connection.executemany(
            "INSERT INTO held_run VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET refs = refs + excluded.refs",
            held.items(),
        )
        connection.executemany("INSERT INTO summed VALUES (2, ?, ?)", summed.items())
        report.counted["rows"] += len(rows)


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    rows = iter(rows)
    while batch := list(islice(rows, BATCH)):
        yield batch


def _run(connection: sqlite3.Connection, check: TableCheck, report: FsckReport) -> None:
    for where, *values in connection.execute(check.statement):
        report.add(Severity.WRONG, check.kind, where, check.sentence.format(*values))
