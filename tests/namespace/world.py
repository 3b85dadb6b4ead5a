"""A site without a site: the tables as dictionaries, commands run over them, and their rows mirrored into SQLite."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from gateway.blocks.read.lookup import Lookup
from gateway.blocks.read.read_plan import plan_read
from gateway.blocks.types import ReadRange
from gateway.journal.apply import apply
from gateway.journal.columns import Extent
from gateway.journal.commands import Tx
from gateway.journal.records import Record
from gateway.journal.records.bytes import NewBlock
from gateway.journal.records.site import TenantMade, UserMade
from gateway.journal.rows import LEVELS_MAX, Climb, LoadRequest, Overlay, RowsNotLoaded
from gateway.journal.tables import TABLES, Key, Table
from gateway.namespace import COMMANDS
from gateway.namespace.commands.buckets import MakeBucket
from gateway.namespace.commands.objects import PutObject
from gateway.namespace.read.lookups import Found
from tests.journal import memory_store

USER = 7
OTHER = 8
SESSION = 1
START_NS = 1_700_000_000_000_000_000


class DictRows:
    """Every row there is, in memory; or, cold, only those that were asked for once (`RowsNotLoaded` for the others)."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Key, Any]] = {table.name: {} for table in TABLES}
        self.known: set[tuple[str, Key]] | None = None

    def get(self, table: Table[Any], key: Key) -> Any:
        if self.known is not None and (table.name, key) not in self.known:
            raise RowsNotLoaded([(table, key)])
        return self.tables[table.name].get(key)

    def knows(self, wanted: tuple[Table[Any], Key]) -> bool:
        return self.known is None or (wanted[0].name, wanted[1]) in self.known

    def put(self, table: Table[Any], row: Any) -> None:
        self.tables[table.name][row[: table.key]] = row
        if self.known is not None:
            self.known.add((table.name, row[: table.key]))

    def drop(self, table: Table[Any], key: Key) -> None:
        self.tables[table.name].pop(key, None)


def schema(table: Table[Any]) -> str:
    fields = table.row._fields
    order = table.order or fields[: table.key]
    columns = ", ".join(f'"{field}"' + (" INTEGER PRIMARY KEY" if order == ("id",) and field == "id"
                                        and table.name != "block" else "") for field in fields)  # fmt: skip
    if order == ("id",) and table.name != "block":
        return f'CREATE TABLE "{table.name}" ({columns})'
    keys = ", ".join(f'"{field}"' for field in order)
    return f'CREATE TABLE "{table.name}" ({columns}, PRIMARY KEY ({keys})) WITHOUT ROWID'


class Mirror:
    """The rows in SQLite, as the journal's store has them; a `Reads` that counts statements and VM steps."""

    def __init__(self, path: str = ":memory:") -> None:
        self.db = sqlite3.connect(path, isolation_level=None, cached_statements=512)
        self.queries = 0
        self.steps = 0
        for table in TABLES:
            self.db.execute(schema(table))
        self.db.execute("CREATE INDEX file_rewritten ON file(id) WHERE rewritten = 1")
        self.db.execute("CREATE INDEX upload_ended ON upload(ended_ns) WHERE state > 0")
        self.db.execute("CREATE INDEX upload_made ON upload(made_ns) WHERE state = 0")

    def write(self, changed: dict[tuple[Table[Any], Key], Any]) -> None:
        for (table, key), row in changed.items():
            where = " AND ".join(f'"{field}" = ?' for field in table.row._fields[: table.key])
            self.db.execute(f'DELETE FROM "{table.name}" WHERE {where}', key)
            if row is not None:
                self.db.execute(f'INSERT INTO "{table.name}" VALUES ({", ".join("?" * len(row))})', row)

    def fill(self, table: Table[Any], rows: Any) -> None:
        marks = ", ".join("?" * len(table.row._fields))
        self.db.executemany(f'INSERT INTO "{table.name}" VALUES ({marks})', rows)

    def query(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self.queries += 1
        return self.db.execute(sql, params).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self.db.execute("BEGIN")
        try:
            yield
        finally:
            self.db.execute("COMMIT")

    @asynccontextmanager
    async def separate_snapshot(self) -> AsyncIterator[Mirror]:
        with self.snapshot():
            yield self

    def count_steps(self, on: bool) -> None:
        def step() -> int:
            self.steps += 1
            return 0

        self.steps = 0
        self.db.set_progress_handler(step if on else None, 1)


class World:
    """Commands, one after the other."""

    def __init__(self, mirror: bool = True) -> None:
        self.rows = DictRows()
        self.mirror = Mirror() if mirror else None
        self.records: list[Record] = []
        self.next_id = (1 << 48) + 1
        self.at_ns = START_NS
        self.rounds = 0
        self.touched: Counter[str] = Counter()
        self.apply(TenantMade("default", 1), UserMade("alice", USER, 1, 0, 0), UserMade("bob", OTHER, 1, 0, 0))

    def apply(self, *records: Record) -> None:
        overlay = Overlay(self.rows)
        for record in records:
            apply(record, overlay, len(self.records) + 1)
            self.records.append(record)
        self._keep(overlay)

    def _keep(self, overlay: Overlay) -> None:
        self.touched = Counter(table.name for table, _ in overlay.changed)
        for (table, key), row in overlay.changed.items():
            if row is None:
                self.rows.drop(table, key)
            else:
                self.rows.put(table, row)
        if self.mirror is not None:
            self.mirror.write(overlay.changed)

    def ranges(self, found: Found, start: int, length: int) -> list[ReadRange]:
        """The ranges to read for some plain bytes of what was found."""
        lookup = Lookup(self.mirror, {})
        file = found.file
        return [*plan_read(file.shape, file.content, start, length, lookup.extents_of, lookup.pieces_of)]

    def run(self, command: Any) -> Any:
        """The command's answer. Its records are applied; `touched` counts the rows that they changed, by table."""
        self.at_ns += 1_000_000_000
        self.rounds = 0
        while True:
            overlay = Overlay(self.rows)
            tx = Tx(overlay, number=len(self.records) + 1, next_id=self.next_id, at_ns=self.at_ns, session=SESSION)
            try:
                answer = COMMANDS[type(command)](command, tx)
            except RowsNotLoaded as missing:
                assert self.rows.known is not None
                for load in missing.wanted:
                    self._load(load)
                self.rounds += 1
                continue
            break
        self.next_id = tx.next_id
        self.records.extend(tx.records)
        self._keep(overlay)
        return answer

    def _load(self, load: LoadRequest) -> None:
        """As `RowCache.load`."""
        known, tables = self.rows.known, self.rows.tables
        assert known is not None
        if isinstance(load, tuple):
            known.add((load[0].name, load[1]))
            return
        directory, entry = tables["dir"].get, tables["entry"].get
        if isinstance(load, Climb):
            path = memory_store.climb(directory, entry, load.node, LEVELS_MAX)
        else:
            path = memory_store.descend(directory, entry, load.parent, load.names)
            parent = path.entries[-1].node if path.entries else load.parent
            known.update(("entry", (parent, name)) for name in load.names[len(path.entries) :][:1])
        known.update(("dir", (row.id,)) for row in path.directories)
        known.update(("entry", (row.parent, row.name)) for row in path.entries)

    def cold(self) -> None:
        """From now on a row is in memory only once it was asked for."""
        self.rows.known = set()

    # --- short words ---

    def bucket(self, name: str = "b", versioning: int = 0) -> None:
        self.run(MakeBucket(name, USER, "alice", 1, "us-east-1", 1))
        if versioning:
            from gateway.namespace.commands.buckets import SetVersioning

            self.run(SetVersioning(name, USER, False, versioning))

    def put(self, key: bytes, size: int = 4, bucket: str = "b", **more: Any) -> Any:
        return self.run(put_command(key, size, bucket, n=self.next_id, **more))


def stored(n: int, size: int, block_bytes: int = 8 << 20) -> tuple[tuple[Extent, ...], tuple[NewBlock, ...]]:
    """Extents and blocks of a run of *size* bytes, unlike any other for each *n*."""
    extents, blocks = [], []
    for i, at in enumerate(range(0, size, block_bytes)):
        block = SESSION.to_bytes(8, "big") + n.to_bytes(8, "big") + i.to_bytes(8, "big")
        length = min(block_bytes, size - at)
        extents.append(Extent(block, 64, 0, length))
        blocks.append(NewBlock(block, 1, length + 100, 0, 1))
    return tuple(extents), tuple(blocks)


def put_command(key: bytes, size: int = 4, bucket: str = "b", n: int = 1, etag: str | None = None, **more: Any) -> Any:
    extents, blocks = stored(n, size)
    return PutObject(
        bucket, key, more.pop("user", USER), more.pop("root", False), size, etag or f"{n:032x}", extents, blocks, 1,
        more.pop("headers", b""), more.pop("checksums", b""), more.pop("tags", b""), more.pop("conditions", None),
    )  # fmt: skip
