"""An example of a driver, which docs/architecture.md explains: values in one SQLite file. Not for production."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from backends import base, errors
from backends.base import Buffer, Listed, Marker, Stat
from backends.marker_format import encode_marker, parse_marker

TABLES = """CREATE TABLE IF NOT EXISTS value (key TEXT PRIMARY KEY, bytes BLOB);
            CREATE TABLE IF NOT EXISTS marker (id INTEGER PRIMARY KEY, text BLOB)"""
SWAP = "INSERT OR REPLACE INTO marker SELECT 0, ? WHERE (SELECT text FROM marker) IS ? RETURNING id"


class SqliteBackend(base.Backend):
    name = "example"

    def __init__(self, path: str) -> None:
        self._thread = ThreadPoolExecutor(1)  # the event loop never waits for the disk
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.executescript(f"PRAGMA synchronous = FULL; {TABLES}")

    async def _run(self, statement: str, *values: Any) -> list[Any]:
        try:
            query = self._thread.submit(lambda: self._database.execute(statement, values).fetchall())
            return await asyncio.wrap_future(query)
        except sqlite3.OperationalError as error:  # translate the medium's errors into those of backends.errors
            raise errors.Unavailable(str(error), backend=self.name) from error

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        base.check_key(key)
        if base.crc32c_of(value) != crc32c:
            raise errors.Corrupted("the value differs from its CRC32C", backend=self.name, key=key)
        await self._run("INSERT OR REPLACE INTO value VALUES (?, ?)", key, b"".join(value))  # durable once it returns

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        base.check_range(start, length)
        rows = await self._run("SELECT bytes FROM value WHERE key = ?", base.check_key(key))
        if not rows:
            raise errors.NotFound("no such value", backend=self.name, key=key)
        end = len(rows[0][0]) if length is None else start + length
        if not start <= end <= len(rows[0][0]):
            raise errors.Corrupted(f"the value ends before byte {max(start, end)}", backend=self.name, key=key)
        return memoryview(rows[0][0])[start:end]

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        base.check_range(start, length)
        base.check_key(key)
        return None  # no value is in memory, so the caller has to await `get`

    async def stat(self, key: str) -> Stat:
        return Stat(len(bytes(await self.get(key))))

    async def delete(self, key: str) -> None:
        await self._run("DELETE FROM value WHERE key = ?", base.check_key(key))

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        page = "SELECT key, length(bytes) FROM value WHERE key > ? AND substr(key, 1, ?) = ? ORDER BY key LIMIT 1000"
        while rows := await self._run(page, after, len(prefix), prefix):
            for after, size in rows:
                yield Listed(after, size)

    async def marker(self) -> Marker | None:
        rows = await self._run("SELECT text FROM marker")
        return parse_marker(rows[0][0]) if rows else None

    async def claim(self, marker: Marker) -> None:
        swapped: list[Any] = []
        while not swapped:  # compare-and-set: read, apply the rule, replace exactly what was read, or begin again
            held = await self.marker()
            if base.is_claimed(held, marker):
                return
            if reason := base.check_claim(held, marker):
                raise errors.OwnedByAnotherSite(reason, backend=self.name)
            swapped = await self._run(SWAP, encode_marker(marker), encode_marker(held) if held else None)

    async def close(self) -> None:
        self._thread.shutdown()
        self._database.close()
