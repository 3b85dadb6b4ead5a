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

from gateway import failpoints
from gateway.errors import Corrupted, DiskFull, Misconfigured
from gateway.journal.history import chain
from gateway.journal.records import FEATURE_LEVEL
from gateway.journal.sqlite.schema import migrate
from gateway.journal.store import EMPTY_HEAD, VALUES, Batch, Head, JournalRow, TreePath
from gateway.journal.tables import SITE, TOKEN, Dir, Entry, Key, Table, Token
from gateway.timing import Timing

LOAD_KEYS = 256
"""Keys that one query asks for at most."""
CHECKPOINT_BYTES = 64 << 20
"""A WAL longer than this is checkpointed even under load."""
# A name is cut from the path behind each slash; the last one may have none, or be empty.
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
_CLIMB = """
WITH RECURSIVE
path(level, node) AS (
    SELECT 0, ?1
    UNION ALL
    SELECT level + 1, d.parent FROM path CROSS JOIN dir AS d ON d.id = path.node WHERE d.parent > 0 AND level < ?2
)
SELECT d.*, e.* FROM path CROSS JOIN dir AS d ON d.id = path.node
LEFT JOIN entry AS e ON e.parent = d.parent AND e.dead IN (0, 1) AND e.name = d.name"""
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}


class SqliteStore:
    """The store of one site. Whoever opens it holds the site's lock."""

    def __init__(self, path: Path, *, durable: bool = True, timing: Timing | None = None) -> None:
        """Open, or make, the file at *path*. Without *durable* nothing in it survives a power cut: for a file that is
        thrown away. *timing*: the defaults, unless given. Raises `Misconfigured` if it is newer than this code,
        `DiskFull`."""
        self._synchronous = "FULL" if durable else "OFF"
        self._path = path
        self._timing = timing or Timing()
        self._wal = f"{path}-wal"
        try:
            self._open(path)
        except sqlite3.Error as error:
            if _code(error) in _FULL:
                raise DiskFull(f"the journal's disk is full ({self._path})") from error
            raise

    def _open(self, path: Path) -> None:
        # SQLite gives the WAL and the index beside it the file's own mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._writing = self._connect()
        self._writing.execute("PRAGMA journal_mode = WAL")
        self._writing.execute(f"PRAGMA synchronous = {self._synchronous}")
        self._writing.execute("PRAGMA wal_autocheckpoint = 0")
        self._writing.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")
        migrate(self._writing, str(path))
        self._loading = self._connect()
        self._checkpointed = 0
        self._not_before = 0.0
        self._check_feature()
        self._statements: dict[tuple[Table[Any], int], str] = {}

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, cached_statements=512)
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute(f"PRAGMA busy_timeout = {round(self._timing.journal.busy_seconds * 1000)}")
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection

    def _check_feature(self) -> None:
        """Raises `Misconfigured` for a journal whose records this code does not all know."""
        row = self._loading.execute("SELECT feature FROM site").fetchone()
        if row is not None and row[0] > FEATURE_LEVEL:
            raise Misconfigured(
                f"{self._path} has feature level {row[0]}, and this version of entrepot knows those up to "
                f"{FEATURE_LEVEL}: use the version that wrote it, or a newer one"
            )

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

    def descend(self, parent: int, names: Sequence[bytes]) -> TreePath:
        return self._tree_path(_DESCEND, (parent, b"".join(names), len(names)))

    def climb(self, node: int, levels: int) -> TreePath:
        return self._tree_path(_CLIMB, (node, levels))

    def _tree_path(self, statement: str, values: Sequence[Any]) -> TreePath:
        path = TreePath([], [])
        columns = len(Dir._fields)
        for row in self._loading.execute(statement, values):
            if row[0] is not None:
                path.directories.append(Dir._make(row[:columns]))
            if row[columns] is not None:
                path.entries.append(Entry._make(row[columns:]))
        return path

    def _select(self, table: Table[Any], count: int) -> str:
        """Rows of *count* keys, by point look-ups in the primary key whatever the planner thinks."""
        statement = self._statements.get((table, count))
        if statement is None:
            names = table.row._fields[: table.key]
            marks = ", ".join(["(" + ", ".join("?" * len(names)) + ")"] * count)
            terms = [f"t.{name} = k.{name}" for name in names]
            between = [f"t.{name} IN {VALUES[name]}" for name in table.stored_key if name not in names]
            statement = (
                f"WITH k({', '.join(names)}) AS (VALUES {marks}) "
                f"SELECT t.* FROM k CROSS JOIN {table.name} AS t ON {' AND '.join(terms + between)}"
            )
            self._statements[(table, count)] = statement
        return statement

    def write(self, batch: Batch) -> None:
        """Raises `DiskFull` where nothing was written; any other `sqlite3.Error` leaves open whether it stands."""
        connection = self._writing
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._write_rows(connection, batch)
            if batch.journal is not None:
                connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)", batch.journal)
            connection.execute("INSERT OR REPLACE INTO head VALUES (0, ?, ?, ?, ?)", batch.head)
            failpoints.reach("batch-written")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if _code(error) in _FULL:
                raise DiskFull(f"the journal's disk is full ({self._path})") from error
            raise

    @staticmethod
    def _write_rows(connection: sqlite3.Connection, batch: Batch) -> None:
        for table, keys in batch.drops.items():
            terms = " AND ".join(f"{name} = ?" for name in table.stored_key)
            connection.executemany(f"DELETE FROM {table.name} WHERE {terms}", keys)
        for table, rows in batch.puts.items():
            marks = ", ".join("?" * len(table.row._fields))
            connection.executemany(f"INSERT OR REPLACE INTO {table.name} VALUES ({marks})", rows)

    def checkpoint(self, *, idle: bool, longest: int = CHECKPOINT_BYTES) -> None:
        """Copy the WAL into the file where that is due: when it is longer than *longest*, or nothing else is to do.
        Called by the commit thread between two batches."""
        due = self._checkpointed != self._writing.total_changes if idle else self.checkpoint_due(longest)
        if due:
            self._bring_home("PASSIVE" if longest == CHECKPOINT_BYTES else "TRUNCATE")

    def checkpoint_due(self, longest: int = CHECKPOINT_BYTES) -> bool:
        """Whether the WAL is longer than *longest*."""
        try:
            return os.stat(self._wal).st_size > longest and self._timing.clock.monotonic() > self._not_before
        except FileNotFoundError:
            return False

    def shrink_wal(self) -> None:
        """Give the room of the WAL back to the disk, as far as the file has room for what is in it."""
        self._bring_home("TRUNCATE")

    def _bring_home(self, mode: str) -> None:
        self._checkpointed = self._writing.total_changes
        try:
            kept = self._writing.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            # What is in the WAL stays there, and durable, until there is room.
            if _code(error) not in _FULL:
                raise
            kept = (1, 0, 0)
        failpoints.reach("checkpointed")
        if kept[0] or kept[1] != kept[2] or mode == "PASSIVE":
            self._not_before = self._timing.clock.monotonic() + self._timing.journal.checkpoint_seconds

    def live_sessions(self) -> list[int]:
        """The sessions that a committer that died left open."""
        return [row[0] for row in self._loading.execute("SELECT id FROM session WHERE state = 0")]

    def token(self) -> Token | None:
        """The fencing token of the committer that started last; None where none ever drew one."""
        return self.load(TOKEN, [(0,)]).get((0,))

    def is_founded(self) -> bool:
        """Whether there is a site in this journal."""
        return bool(self.load(SITE, [(0,)]))

    def drop_slots(self) -> None:
        """Forget the answers of sessions that have ended."""
        self._scratch("DELETE FROM slot WHERE session NOT IN (SELECT id FROM session WHERE state = 0)")

    def _scratch(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Change what is no truth. Raises `DiskFull`."""
        try:
            self._writing.execute(statement, values)
        except sqlite3.Error as error:
            if _code(error) in _FULL:
                raise DiskFull(f"the journal's disk is full ({self._path})") from error
            raise

    def keep_clock(self, site_ns: int, wall_ns: int, boot: str, boot_ns: int) -> None:
        """Where the site's clock stands, as in `site_clock`. Raises `DiskFull`."""
        self._scratch("INSERT OR REPLACE INTO clock VALUES (0, ?, ?, ?, ?)", (site_ns, wall_ns, boot, boot_ns))

    def pin(self, name: str, number: int, until_ns: int, now_ns: int) -> None:
        """Keep what died behind *number* until *until_ns*: a backup refers to it. Both times are the site's clock's."""
        self._scratch("DELETE FROM pin WHERE until_ns < ?", (now_ns,))
        self._scratch("INSERT OR REPLACE INTO pin VALUES (?, ?, ?)", (name, number, until_ns))

    def pins(self, now_ns: int) -> list[int]:
        """The numbers that backups still pin."""
        return [row[0] for row in self._loading.execute("SELECT number FROM pin WHERE until_ns > ?", (now_ns,))]

    def batches(self, after: int = 0) -> Iterator[JournalRow]:
        return chain.batches(self._loading, behind=after)

    def dump(self, table: Table[Any]) -> Iterable[tuple[Any, ...]]:
        order = ", ".join(table.row._fields[: table.key])
        return self._loading.execute(f"SELECT * FROM {table.name} ORDER BY {order}")

    def drop_journal(self, number: int) -> None:
        """Forget every record: the tables stand at *number*, and the chain of hashes begins behind it, from zeros. For
        a file that nobody else has open."""
        self._writing.execute("BEGIN IMMEDIATE")
        self._writing.execute("DELETE FROM journal")
        self._writing.execute("UPDATE head SET number = ?, hash = ?", (number, EMPTY_HEAD.hash))
        self._writing.execute("COMMIT")

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows that a statement finds."""
        return self._loading.execute(statement).fetchall()

    def rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """The rows that a statement finds, one at a time."""
        return iter(self._loading.execute(statement))

    def check(self) -> None:
        """Raises `Corrupted` if SQLite finds the file malformed."""
        found = self._loading.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise Corrupted(f"{self._path}: {found}")

    def close(self) -> None:
        self._loading.close()
        self._writing.close()


def _code(error: sqlite3.Error) -> int | None:
    """SQLite's own code; None for an error of the Python module."""
    return getattr(error, "sqlite_errorcode", None)
