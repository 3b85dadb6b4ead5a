"""The committer's connections to the SQLite file: one that writes, used by the commit thread alone, and one that loads.

Order of steps, and what a crash leaves: `write` is one transaction (records, rows, head) made durable by one fsync of
the WAL (`synchronous=FULL`). Killed or cut off before it, nothing of the batch is there; behind it, all. Checkpoints
copy what is durable in the WAL into the file, and are SQLite's own argument.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gateway.errors import Damaged, DiskFull, Unavailable
from gateway.journal.sqlite.schema import migrate
from gateway.journal.store import EMPTY_HEAD, Batch, Head, JournalRow
from gateway.journal.tables import Key, Table

LOAD_KEYS = 256
"""Keys that one query asks for at most."""
CHECKPOINT_BYTES = 64 << 20
"""A WAL longer than this is checkpointed even under load."""
_FULL = ("database or disk is full", "disk I/O error")


class SqliteStore:
    """The store of one site. Whoever opens it holds the site's lock."""

    def __init__(self, path: Path) -> None:
        """Open, or make, the file at *path*. Raises `Misconfigured` if it is newer than this code."""
        self._path = path
        self._writing = self._connect()
        self._writing.execute("PRAGMA journal_mode = WAL")
        self._writing.execute("PRAGMA synchronous = FULL")
        self._writing.execute("PRAGMA wal_autocheckpoint = 0")
        migrate(self._writing, str(path))
        self._loading = self._connect()
        self._statements: dict[tuple[Table[Any], int], str] = {}

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, cached_statements=512)
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA busy_timeout = 5000")
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection

    def head(self) -> Head:
        row = self._loading.execute("SELECT number, hash, at_ns, next_id FROM head").fetchone()
        return EMPTY_HEAD if row is None else Head._make(row)

    def load(self, table: Table[Any], keys: Sequence[Key]) -> dict[Key, Any]:
        found: dict[Key, Any] = {}
        for at in range(0, len(keys), LOAD_KEYS):
            some = keys[at : at + LOAD_KEYS]
            padded = 1 << (len(some) - 1).bit_length()
            values = [value for key in some for value in key]
            values += [*some[-1]] * (padded - len(some))
            make, size = table.row._make, table.key
            for row in self._loading.execute(self._select(table, padded), values):
                found[row[:size]] = make(row)
        return found

    def _select(self, table: Table[Any], count: int) -> str:
        """Rows of *count* keys, by point look-ups in the primary key whatever the planner thinks."""
        statement = self._statements.get((table, count))
        if statement is None:
            names = table.row._fields[: table.key]
            marks = ", ".join(["(" + ", ".join("?" * len(names)) + ")"] * count)
            terms = [f"t.{name} = k.{name}" for name in names]
            between = [f"t.{name} IN {_VALUES[name]}" for name in table.stored_key if name not in names]
            statement = (
                f"WITH k({', '.join(names)}) AS (VALUES {marks}) "
                f"SELECT t.* FROM k CROSS JOIN {table.name} AS t ON {' AND '.join(terms + between)}"
            )
            self._statements[(table, count)] = statement
        return statement

    def write(self, batch: Batch) -> None:
        connection = self._writing
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._write_rows(connection, batch)
            if batch.journal is not None:
                connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)", batch.journal)
            connection.execute("INSERT OR REPLACE INTO head VALUES (0, ?, ?, ?, ?)", batch.head)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if any(word in str(error) for word in _FULL):
                raise DiskFull(f"the journal's disk is full: {error} ({self._path})") from error
            raise Unavailable(f"the journal could not be written: {error} ({self._path})") from error

    @staticmethod
    def _write_rows(connection: sqlite3.Connection, batch: Batch) -> None:
        for table, keys in batch.drops.items():
            terms = " AND ".join(f"{name} = ?" for name in table.stored_key)
            connection.executemany(f"DELETE FROM {table.name} WHERE {terms}", keys)
        for table, rows in batch.puts.items():
            marks = ", ".join("?" * len(table.row._fields))
            connection.executemany(f"INSERT OR REPLACE INTO {table.name} VALUES ({marks})", rows)

    def checkpoint(self, *, idle: bool) -> None:
        """Copy the WAL into the file where that is due. Called by the commit thread between two batches."""
        try:
            length = os.stat(f"{self._path}-wal").st_size
        except FileNotFoundError:
            return
        if idle or length > CHECKPOINT_BYTES:
            mode = "TRUNCATE" if length > 4 * CHECKPOINT_BYTES else "PASSIVE"
            self._writing.execute(f"PRAGMA wal_checkpoint({mode})")

    def live_sessions(self) -> list[int]:
        """The sessions that a committer that died left open."""
        return [row[0] for row in self._loading.execute("SELECT id FROM session WHERE state = 0")]

    def drop_slots(self, session: int) -> None:
        """Forget the answers of a session that has ended. Scratch: losing this to a crash costs a few rows."""
        self._writing.execute("DELETE FROM slot WHERE session = ?", (session,))

    def pin(self, name: str, number: int, until_ns: int) -> None:
        """Keep what died behind *number* until then: a backup refers to it."""
        self._writing.execute("INSERT OR REPLACE INTO pin VALUES (?, ?, ?)", (name, number, until_ns))

    def pins(self, now_ns: int) -> list[int]:
        """The numbers that backups still pin."""
        return [row[0] for row in self._loading.execute("SELECT number FROM pin WHERE until_ns > ?", (now_ns,))]

    def batches(self, after: int = 0) -> Iterator[JournalRow]:
        while True:
            rows = self._loading.execute(
                "SELECT * FROM journal WHERE number > ? ORDER BY number LIMIT 100", (after,)
            ).fetchall()
            if not rows:
                return
            yield from map(JournalRow._make, rows)
            after = rows[-1][0]

    def dump(self, table: Table[Any]) -> Iterable[tuple[Any, ...]]:
        order = ", ".join(table.row._fields[: table.key])
        return self._loading.execute(f"SELECT * FROM {table.name} ORDER BY {order}")

    def check(self) -> None:
        """Raises `Damaged` if SQLite finds the file malformed."""
        found = self._loading.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise Damaged(f"{self._path}: {found}")

    def close(self) -> None:
        self._loading.close()
        self._writing.close()


_VALUES = {"dead": "(0, 1)", "state": "(0, 1, 2)"}
"""The values of columns that stand in a stored key without being part of the key."""
