"""The committer's connections to the SQLite file: one that writes, and one that loads while another thread writes.

Crash argument: `write` is one transaction (records, rows, head), which one fsync of the WAL makes durable
(`synchronous=FULL`). After a kill or a power cut before it, nothing of the batch is in the file; after it, all of it
is. Checkpoints copy what is durable in the WAL into the file; SQLite guarantees that they survive a crash.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gateway import failpoints
from gateway.errors import Corrupted, DiskFull, Misconfigured
from gateway.journal.inline_values import COUNTED_BYTES_MIN
from gateway.journal.records import FEATURE_LEVEL
from gateway.journal.sqlite.catalog_version import CatalogCounter
from gateway.journal.sqlite.journal_reader import count_steps, read_batches, read_head
from gateway.journal.sqlite.schema import migrate
from gateway.journal.store import EMPTY_HEAD, STORED_KEY_VALUES, Batch, Head, JournalRow, TreePath
from gateway.journal.tables import SITE, TOKEN, Dir, Entry, Key, Table, Token
from gateway.timing import Timing

LOAD_KEYS = 256
"""The most keys that one query looks up."""
CHECKPOINT_BYTES = 64 << 20
"""A WAL longer than this is checkpointed even under load."""

# ?1: the first directory. ?2: the path below it. ?3: how many names it has. The path is cut after each slash; its last
# name may have no slash, or be empty. Each row has the columns of a directory and those of an entry; either may be
# NULL.
_DESCEND = """
WITH RECURSIVE
path(level, at, node, parent, name) AS (
    SELECT 0, 1, ?1, 0, NULL
    UNION ALL
    SELECT level + 1, at + length(e.name), e.node, e.parent, e.name
    FROM path CROSS JOIN entry AS e ON e.parent = path.node AND e.dead IN (0, 1) AND e.name = CASE
        WHEN instr(substr(?2, at), x'2f') THEN substr(?2, at, instr(substr(?2, at), x'2f')) ELSE substr(?2, at) END
    WHERE level < ?3
)
SELECT d.*, e.* FROM path LEFT JOIN dir AS d ON d.id = path.node
LEFT JOIN entry AS e ON e.parent = path.parent AND e.dead IN (0, 1) AND e.name = path.name"""
# ?1: the directory to begin at. ?2: how many levels to climb at most. Rows as of `_DESCEND`.
_CLIMB = """
WITH RECURSIVE
path(level, node) AS (
    SELECT 0, ?1
    UNION ALL
    SELECT level + 1, d.parent FROM path CROSS JOIN dir AS d ON d.id = path.node WHERE d.parent > 0 AND level < ?2
)
SELECT d.*, e.* FROM path CROSS JOIN dir AS d ON d.id = path.node
LEFT JOIN entry AS e ON e.parent = d.parent AND e.dead IN (0, 1) AND e.name = d.name"""
_FULL_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}


class SqliteStore:
    """The committer's store of one site. The process that opens it holds the site's lock."""

    def __init__(self, path: Path, *, durable: bool = True, timing: Timing | None = None) -> None:
        """Open the file at *path*, or create it. If *durable* is false, what is written may not survive a power cut:
        for temporary files. *timing* has the usual defaults. Raises `Misconfigured` if the file is of a newer version,
        `DiskFull`."""
        self._synchronous = "FULL" if durable else "OFF"
        self._path = path
        self._timing = timing or Timing()
        self._wal = f"{path}-wal"
        try:
            self._open(path)
        except sqlite3.Error as error:
            self._raise_if_full(error)
            raise

    def _open(self, path: Path) -> None:
        # SQLite gives the WAL and its index the mode of the database file.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._writing = self._connect()
        self._writing.execute("PRAGMA journal_mode = WAL")
        self._writing.execute(f"PRAGMA synchronous = {self._synchronous}")
        self._writing.execute("PRAGMA wal_autocheckpoint = 0")
        self._writing.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")
        migrate(self._writing, str(path))
        self._loading = self._connect()
        self._in_use = threading.Lock()
        self._catalog = CatalogCounter(str(path))
        self._checkpointed = 0
        self.wal_bytes = 0
        """The size of the WAL when `checkpoint_due` looked last."""
        self._not_before = 0.0
        self._check_feature()
        self._statements: dict[tuple[Table[Any], int], str] = {}

    def _raise_if_full(self, error: sqlite3.Error) -> None:
        """Raise `DiskFull` if that is the reason for *error*."""
        if _code(error) in _FULL_CODES:
            raise DiskFull(f"the journal's disk is full ({self._path})") from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, cached_statements=512)
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute(f"PRAGMA busy_timeout = {round(self._timing.journal.busy_seconds * 1000)}")
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection

    def _check_feature(self) -> None:
        """Raise `Misconfigured` if the journal may have records that this version does not know."""
        row = self._loading.execute("SELECT feature FROM site").fetchone()
        if row is not None and row[0] > FEATURE_LEVEL:
            raise Misconfigured(
                f"{self._path} has feature level {row[0]}, and this version of entrepot knows those up to "
                f"{FEATURE_LEVEL}: use the version that wrote it, or a newer one"
            )

    def head(self) -> Head:
        return read_head(self._loading)

    def load(self, table: Table[Any], keys: Sequence[Key]) -> dict[Key, Any]:
        rows: dict[Key, Any] = {}
        for at in range(0, len(keys), LOAD_KEYS):
            some = keys[at : at + LOAD_KEYS]
            padded = 1 << (len(some) - 1).bit_length()
            values = [value for key in some for value in key]
            values += [*some[-1]] * (padded - len(some))
            make, size = table.row._make, table.key
            for row in self._load(self._select(table, padded), values):
                rows[row[:size]] = make(row)
        return rows

    def descend(self, parent: int, names: Sequence[bytes]) -> TreePath:
        return self._tree_path(_DESCEND, (parent, b"".join(names), len(names)))

    def climb(self, node: int, levels: int) -> TreePath:
        return self._tree_path(_CLIMB, (node, levels))

    def _tree_path(self, statement: str, values: Sequence[Any]) -> TreePath:
        path = TreePath([], [])
        columns = len(Dir._fields)
        for row in self._load(statement, values):
            if row[0] is not None:
                path.directories.append(Dir._make(row[:columns]))
            if row[columns] is not None:
                path.entries.append(Entry._make(row[columns:]))
        return path

    def _load(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows that a statement selects, as they are durable. The writing connection is used unless another
        thread uses it: after each commit, the other connection has to read its pages again."""
        if not self._in_use.acquire(blocking=False):
            return self._loading.execute(statement, values).fetchall()
        try:
            return self._writing.execute(statement, values).fetchall()
        finally:
            self._in_use.release()

    def _select(self, table: Table[Any], count: int) -> str:
        """The statement that selects the rows of *count* keys. The CROSS JOIN forces SQLite's planner to look up each
        of them in the primary key."""
        statement = self._statements.get((table, count))
        if statement is None:
            names = table.row._fields[: table.key]
            marks = ", ".join(["(" + ", ".join("?" * len(names)) + ")"] * count)
            terms = [f"t.{name} = k.{name}" for name in names]
            between = [f"t.{name} IN {STORED_KEY_VALUES[name]}" for name in table.stored_key if name not in names]
            statement = (
                f"WITH k({', '.join(names)}) AS (VALUES {marks}) "
                f"SELECT t.* FROM k CROSS JOIN {table.name} AS t ON {' AND '.join(terms + between)}"
            )
            self._statements[(table, count)] = statement
        return statement

    def write(self, batch: Batch) -> None:
        """Commit *batch*. Raises `DiskFull` if nothing was written. After any other `sqlite3.Error` it is not known
        whether the batch is durable."""
        with self._in_use:
            self._write(self._writing, batch)

    def _write(self, connection: sqlite3.Connection, batch: Batch) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._write_rows(connection, batch)
            if batch.journal is not None:
                connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)", batch.journal)
            connection.execute("INSERT OR REPLACE INTO head VALUES (0, ?, ?, ?, ?)", batch.head)
            failpoints.reach("batch-written")
            connection.execute("COMMIT")
            if batch.catalog_changed:
                self._catalog.increment()
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._raise_if_full(error)
            raise

    @staticmethod
    def _write_rows(connection: sqlite3.Connection, batch: Batch) -> None:
        for table, keys in batch.drops.items():
            terms = " AND ".join(f"{name} = ?" for name in table.stored_key)
            connection.executemany(f"DELETE FROM {table.name} WHERE {terms}", keys)
        for table, rows in batch.puts.items():
            if table.counts and not batch.catalog_changed:
                _update_counts(connection, table, rows)
                continue
            marks = ", ".join("?" * len(table.row._fields))
            connection.executemany(f"INSERT OR REPLACE INTO {table.name} VALUES ({marks})", rows)

    def checkpoint(self, *, idle: bool, longest: int = CHECKPOINT_BYTES) -> None:
        """Checkpoint the WAL if that is due: if it is longer than *longest* bytes, or, with *idle*, if anything was
        written since the last checkpoint. Called by the commit thread between two batches."""
        due = self._checkpointed != self._writing.total_changes if idle else self.checkpoint_due(longest)
        if due:
            self._run_checkpoint("PASSIVE" if longest == CHECKPOINT_BYTES else "TRUNCATE")

    def checkpoint_due(self, longest: int = CHECKPOINT_BYTES) -> bool:
        """Whether the WAL is longer than *longest* bytes, and no recent checkpoint was cut short."""
        try:
            self.wal_bytes = os.stat(self._wal).st_size
        except FileNotFoundError:
            return False
        return self.wal_bytes > longest and self._timing.clock.monotonic() > self._not_before

    def shrink_wal(self) -> None:
        """Free the disk space of the WAL, if the database file has space for its contents."""
        self._run_checkpoint("TRUNCATE")

    def _run_checkpoint(self, mode: str) -> None:
        self._checkpointed = self._writing.total_changes
        try:
            with self._in_use:
                busy, pages, copied = self._writing.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            # The contents of the WAL remain in it, and durable, until there is space.
            if _code(error) not in _FULL_CODES:
                raise
            busy, pages, copied = 1, 0, 0
        failpoints.reach("checkpointed")
        if busy or pages != copied or mode == "PASSIVE":
            self._not_before = self._timing.clock.monotonic() + self._timing.journal.checkpoint_seconds

    def live_sessions(self) -> list[int]:
        """The sessions that are open in the tables."""
        return [row[0] for row in self._loading.execute("SELECT id FROM session WHERE state = 0")]

    def token(self) -> Token | None:
        """The fencing token of the committer that started last; None if none has ever drawn one."""
        return self.load(TOKEN, [(0,)]).get((0,))

    def is_founded(self) -> bool:
        """Whether the journal has a site."""
        return bool(self.load(SITE, [(0,)]))

    def drop_slots(self) -> None:
        """Delete the slot rows of ended sessions. Raises `DiskFull`."""
        self._write_scratch("DELETE FROM slot WHERE session NOT IN (SELECT id FROM session WHERE state = 0)")

    def _write_scratch(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Change a scratch table. Raises `DiskFull`."""
        try:
            with self._in_use:
                self._writing.execute(statement, values)
        except sqlite3.Error as error:
            self._raise_if_full(error)
            raise

    def store_clock(self, site_ns: int, wall_ns: int, boot: str, boot_ns: int) -> None:
        """Store the site's clock; the values are those of `site_clock.ClockAnchor`. Raises `DiskFull`."""
        self._write_scratch("INSERT OR REPLACE INTO clock VALUES (0, ?, ?, ?, ?)", (site_ns, wall_ns, boot, boot_ns))

    def pin(self, name: str, number: int, until_ns: int, now_ns: int) -> None:
        """Keep what died after record *number* until *until_ns*, since a backup refers to it. Drops pins that ended
        before *now_ns*. Both times are those of the site's clock."""
        self._write_scratch("DELETE FROM pin WHERE until_ns < ?", (now_ns,))
        self._write_scratch("INSERT OR REPLACE INTO pin VALUES (?, ?, ?)", (name, number, until_ns))

    def pins(self, now_ns: int) -> list[int]:
        """The record numbers that are pinned at *now_ns*."""
        return [row[0] for row in self._loading.execute("SELECT number FROM pin WHERE until_ns > ?", (now_ns,))]

    def inline_bytes(self) -> int:
        """The bytes that all values in the table `inline_value` count for. Reads the whole table."""
        statement = "SELECT coalesce(sum(max(length(value), ?)), 0) FROM inline_value"
        return int(self._loading.execute(statement, (COUNTED_BYTES_MIN,)).fetchone()[0])

    def batches(self, after: int = 0) -> Iterator[JournalRow]:
        return read_batches(self._loading, after=after)

    def dump(self, table: Table[Any]) -> Iterable[tuple[Any, ...]]:
        order = ", ".join(table.row._fields[: table.key])
        return self._loading.execute(f"SELECT * FROM {table.name} ORDER BY {order}")

    def drop_journal(self, number: int) -> None:
        """Delete every record. The tables are then at record *number*, and the chain of hashes begins after it, from
        zeros. No other process may have the file open."""
        with self._in_use:
            self._writing.execute("BEGIN IMMEDIATE")
            self._writing.execute("DELETE FROM journal")
            self._writing.execute("UPDATE head SET number = ?, hash = ?", (number, EMPTY_HEAD.hash))
            self._writing.execute("COMMIT")

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows that a statement selects."""
        return self._loading.execute(statement).fetchall()

    def rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """The rows that a statement selects, one at a time."""
        return iter(self._loading.execute(statement))

    def check(self) -> None:
        """Raise `Corrupted` if SQLite finds the file malformed."""
        result = self._loading.execute("PRAGMA quick_check(1)").fetchone()[0]
        if result != "ok":
            raise Corrupted(f"{self._path}: {result}")

    def steps(self, count: list[int]) -> None:
        """Add the steps of SQLite's virtual machine to *count*[0] from now on, as `ReadStore.steps` does."""
        for connection in (self._writing, self._loading):
            count_steps(connection, count)

    def close(self) -> None:
        self._catalog.close()
        self._loading.close()
        self._writing.close()


def _update_counts(connection: sqlite3.Connection, table: Table[Any], rows: Sequence[Any]) -> None:
    """Write rows that exist and of which only the counts have changed. To replace them would write their indexes, too,
    at each PUT."""
    terms = " AND ".join(f"{name} = ?" for name in table.stored_key)
    changes = ", ".join(f"{name} = ?" for name in table.counts)
    values = [[getattr(row, name) for name in (*table.counts, *table.stored_key)] for row in rows]
    connection.executemany(f"UPDATE {table.name} SET {changes} WHERE {terms}", values)


def _code(error: sqlite3.Error) -> int | None:
    """SQLite's result code; None for an error of the Python module."""
    return getattr(error, "sqlite_errorcode", None)
