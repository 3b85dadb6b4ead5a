"""A local backend together with the inline values that belong to it (`values.py`).

A value may move from the table to a file while it is read: the file appears first, and then the row is dropped. So a
reader that finds no file and then no row looks for the file once more. If the backend's folder cannot be read, the
values in the table still can.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, TypeVar

from backends import errors
from backends.base import Backend, Buffer, Listed, Stat, check_range
from backends.wrappers import Wrapper
from gateway.blocks.inline.values import InlineValues
from gateway.blocks.types import block_id_of

T = TypeVar("T")


class _Row(NamedTuple):
    """An inline value, wrapped so that it can be told from what the backend returns."""

    value: bytes


class InlineBackend(Wrapper):
    """A backend some of whose values are rows of the journal's database."""

    def __init__(self, inner: Backend, backend_id: int, values: InlineValues) -> None:
        super().__init__(inner)
        self._id = backend_id
        self._values = values

    @property
    def files(self) -> Backend:
        """The backend itself, without its inline values."""
        return self._inner

    async def _around(self, operation: str, key: str | None, call: Callable[[], Awaitable[T]]) -> T:
        return await call()

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        data = self._inner.get_now(key, start, length)
        if data is not None:
            return data
        row = self._row(key)
        return None if row is None or start + (length or 0) > len(row.value) else _slice(row.value, start, length)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        value = await self._file_or_row(key, lambda: self._inner.get(key, start, length))
        if not isinstance(value, _Row):
            return value
        check_range(start, length)
        if start + (length or 0) > len(value.value):
            message = f"{length} bytes from {start} on were wanted, and it has {len(value.value)}"
            raise errors.Corrupted(message, backend=self.name, key=key)
        return _slice(value.value, start, length)

    async def stat(self, key: str) -> Stat:
        value = await self._file_or_row(key, lambda: self._inner.stat(key))
        return Stat(len(value.value)) if isinstance(value, _Row) else value

    async def delete(self, key: str) -> None:
        block = block_id_of(key)
        if block is None:
            await self._inner.delete(key)
            return
        async with self._values.deleting(block):
            await self._inner.delete(key)
            await self._values.drop_row_of(block, self._id)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        rows = self._values.list(self._id, prefix, after)
        row = next(rows, None)
        async for file in self._inner.list(prefix, after):
            while row is not None and row.key < file.key:
                yield row
                row = next(rows, None)
            if row is not None and row.key == file.key:
                row = next(rows, None)
            yield file
        while row is not None:
            yield row
            row = next(rows, None)

    async def _file_or_row(self, key: str, read_file: Callable[[], Awaitable[T]]) -> T | _Row:
        """Return what *read_file* returns, or the row of *key* if there is no file, or none can be read now."""
        try:
            return await read_file()
        except errors.Unavailable:
            if (row := self._row(key)) is None:
                raise
        except errors.NotFound:
            if (row := self._row(key)) is None:
                return await read_file()
        return row

    def _row(self, key: str) -> _Row | None:
        """Return the inline value of *key*; None if there is none."""
        block = block_id_of(key)
        stored = None if block is None else self._values.get(block, self._id)
        return None if stored is None else _Row(stored.value)


def _slice(value: bytes, start: int, length: int | None) -> Buffer:
    return value[start:] if length is None else value[start : start + length]
