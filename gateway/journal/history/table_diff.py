"""Compare the truth tables of a site, row by row, with those that a replay of its journal makes.

The replay writes to a temporary file, so its memory is bounded by the rows that it caches. The site may be in use: the
journal as it is at first is replayed while the site goes on. Only the replay of the rest and the comparison run in one
read transaction, which takes as long as reading every table once.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gateway.journal.history.replay import Replay
from gateway.journal.sqlite.journal_reader import open_readonly, read_batches, read_head
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.store import Head
from gateway.journal.tables import TABLES, Key, Table

CACHED_ROWS = 50_000
WRITE_ROWS = 5_000
"""Changed rows of the replay that are written together."""
PROGRESS_ROWS = 10_000
"""Rows between two reports of the progress."""
_MISSING, _EXTRA = "the row that the journal makes is missing", "the journal makes no such row"
_RANKS = {type(None): 0, int: 1, float: 1, str: 2, bytes: 3}
"""The order of SQLite's types, https://sqlite.org/datatype3.html#comparison_expressions."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is (0: unknown)."""


class Difference(NamedTuple):
    """A row that differs from what the journal makes."""

    table: str
    key: Key
    sentence: str


def differences(path: Path, progress: Progress) -> Iterator[Difference]:
    """Yield every row of the site's tables, in the SQLite file at *path*, that differs from what a replay makes.

    Takes as long as replaying every record; call it in a thread. The temporary file is in the folder that TMPDIR names,
    or in /var/tmp, and needs as much space as the tables. Raises `Corrupted` if the journal cannot be replayed,
    `DiskFull`, `sqlite3.Error`."""
    with tempfile.TemporaryDirectory(prefix="entrepot-replay-", dir=_scratch_folder()) as folder:
        replayed = SqliteStore(Path(folder) / "tables.db", durable=False)
        source = open_readonly(path)
        try:
            replay = Replay(replayed, rows_max=CACHED_ROWS, write_rows=WRITE_ROWS)
            _catch_up(replay, replayed, source, read_head(source), progress)
            source.execute("BEGIN")
            _catch_up(replay, replayed, source, read_head(source), progress)
            for table in TABLES:
                if table.truth:
                    yield from _compare(table, source, replayed, progress)
        finally:
            source.close()
            replayed.close()


def _catch_up(
    replay: Replay, replayed: SqliteStore, source: sqlite3.Connection, head: Head, progress: Progress
) -> None:
    for row in read_batches(source, after=replay.head.number, up_to=head.number):
        replay.apply(row)
        replayed.checkpoint(idle=False)
        progress("replayed records", replay.head.number, head.number)
    replay.finish()


def _compare(
    table: Table[Any], source: sqlite3.Connection, replayed: SqliteStore, progress: Progress
) -> Iterator[Difference]:
    """Compare the actual rows of *table* with the expected ones: both are read in the order of their stored key."""
    names, key = table.row._fields, [table.row._fields.index(name) for name in table.stored_key]
    columns = ", ".join(f'"{name}"' for name in names)
    statement = f"SELECT {columns} FROM {table.name} ORDER BY {', '.join(table.stored_key)}"
    actual_rows, expected_rows = iter(source.execute(statement)), iter(replayed.rows(statement))
    actual, expected, done = next(actual_rows, None), next(expected_rows, None), 0
    while actual is not None or expected is not None:
        order = _compare_keys(actual, expected, key)
        row = expected if order > 0 else actual
        assert row is not None, "one of them is a row"
        if order:
            yield Difference(table.name, row[: table.key], _MISSING if order > 0 else _EXTRA)
        elif actual != expected:
            other = [name for name, one, two in zip(names, actual or (), expected or (), strict=True) if one != two]
            yield Difference(table.name, row[: table.key], f"the journal makes it with another {', '.join(other)}")
        actual = next(actual_rows, None) if order <= 0 else actual
        expected = next(expected_rows, None) if order >= 0 else expected
        done += 1
        if done % PROGRESS_ROWS == 0:
            progress(f"compared rows of {table.name}", done, 0)


def _compare_keys(actual: tuple[Any, ...] | None, expected: tuple[Any, ...] | None, key: list[int]) -> int:
    """Return a negative number if *actual* comes first, a positive one if *expected* does, 0 if they have the same
    key. None comes last."""
    if actual == expected:
        return 0
    if actual is None or expected is None:
        return 1 if actual is None else -1
    one, two = [_sort_key(actual[at]) for at in key], [_sort_key(expected[at]) for at in key]
    return (one > two) - (one < two)


def _sort_key(value: Any) -> tuple[int, Any]:
    return _RANKS[type(value)], value.encode() if isinstance(value, str) else value


def _scratch_folder() -> str | None:
    """Return the folder for large temporary files, chosen as SQLite does: on many machines /tmp is in memory."""
    if os.environ.get("TMPDIR") or not os.access("/var/tmp", os.W_OK | os.X_OK):  # noqa: S108 (mkdtemp makes it private)
        return None
    return "/var/tmp"  # noqa: S108
