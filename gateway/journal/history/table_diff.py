"""Comparing the truth tables of a site with those that a replay of its journal makes, row by row.

The replay goes into a scratch file, so memory is bounded by the rows that it keeps at hand. A site may be in use: what
its journal held at first is replayed beside it, and only the rest and the comparison happen in one read transaction,
which is as long as reading every table once.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gateway.journal.history import chain
from gateway.journal.history.replay import Replay
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.store import Head
from gateway.journal.tables import TABLES, Key, Table

ROWS_AT_HAND = 50_000
WRITE_ROWS = 5_000
"""Changed rows of the replay that are written together."""
TELL_EVERY = 10_000
"""Rows between two words on the progress."""
_MISSING, _EXTRA = "the journal makes this row, and it is not there", "the journal makes no such row"
_RANKS = {type(None): 0, int: 1, float: 1, str: 2, bytes: 3}
"""The order of SQLite's types, https://sqlite.org/datatype3.html#comparison_expressions."""

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it, and of how much (0: not known)."""


class Difference(NamedTuple):
    """A row that is not what the journal says."""

    table: str
    key: Key
    sentence: str


def differences(path: Path, progress: Progress) -> Iterator[Difference]:
    """Every row of the site's tables, in the SQLite file at *path*, that a replay of its journal makes otherwise.

    Takes as long as replaying every record; call it in a thread. The scratch file lies where TMPDIR says, or in
    /var/tmp, and needs as much room as the tables. Raises `Corrupted` where the journal cannot be replayed, `DiskFull`,
    `sqlite3.Error`."""
    with tempfile.TemporaryDirectory(prefix="entrepot-replay-", dir=_scratch_folder()) as folder:
        replayed = SqliteStore(Path(folder) / "tables.db", durable=False)
        source = chain.open_readonly(path)
        try:
            replay = Replay(replayed, rows_max=ROWS_AT_HAND, write_rows=WRITE_ROWS)
            _catch_up(replay, replayed, source, chain.head_of(source), progress)
            source.execute("BEGIN")
            _catch_up(replay, replayed, source, chain.head_of(source), progress)
            for table in TABLES:
                if table.truth:
                    yield from _compared(table, source, replayed, progress)
        finally:
            source.close()
            replayed.close()


def _catch_up(
    replay: Replay, replayed: SqliteStore, source: sqlite3.Connection, head: Head, progress: Progress
) -> None:
    for row in chain.batches(source, behind=replay.head.number, up_to=head.number):
        replay.apply(row)
        replayed.checkpoint(idle=False)
        progress("replayed records", replay.head.number, head.number)
    replay.finish()


def _compared(
    table: Table[Any], source: sqlite3.Connection, replayed: SqliteStore, progress: Progress
) -> Iterator[Difference]:
    """Both tables are read in the order of the key that the store has, side by side."""
    names, key = table.row._fields, [table.row._fields.index(name) for name in table.stored_key]
    columns = ", ".join(f'"{name}"' for name in names)
    statement = f"SELECT {columns} FROM {table.name} ORDER BY {', '.join(table.stored_key)}"
    theirs, ours = iter(source.execute(statement)), iter(replayed.rows(statement))
    found, made, done = next(theirs, None), next(ours, None), 0
    while found is not None or made is not None:
        order = _order(found, made, key)
        row = made if order > 0 else found
        assert row is not None, "one of them is there"
        if order:
            yield Difference(table.name, row[: table.key], _MISSING if order > 0 else _EXTRA)
        elif found != made:
            other = [name for name, one, two in zip(names, found or (), made or (), strict=True) if one != two]
            yield Difference(table.name, row[: table.key], f"the journal makes it with another {', '.join(other)}")
        found = next(theirs, None) if order <= 0 else found
        made = next(ours, None) if order >= 0 else made
        done += 1
        if done % TELL_EVERY == 0:
            progress(f"compared rows of {table.name}", done, 0)


def _order(found: tuple[Any, ...] | None, made: tuple[Any, ...] | None, key: list[int]) -> int:
    """Negative where *found* comes first, positive where *made* does; 0 where they are of one key."""
    if found == made:
        return 0
    if found is None or made is None:
        return 1 if found is None else -1
    one, two = [_ranked(found[at]) for at in key], [_ranked(made[at]) for at in key]
    return (one > two) - (one < two)


def _ranked(value: Any) -> tuple[int, Any]:
    return _RANKS[type(value)], value.encode() if isinstance(value, str) else value


def _scratch_folder() -> str | None:
    """Where large temporary files go, as SQLite chooses: /tmp is memory on many machines."""
    if os.environ.get("TMPDIR") or not os.access("/var/tmp", os.W_OK | os.X_OK):  # noqa: S108 (mkdtemp makes it private)
        return None
    return "/var/tmp"  # noqa: S108
