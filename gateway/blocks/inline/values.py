"""The inline values of a site, as one process sees them.

A small block whose only copy goes to a local backend on the journal's own file system need not be written twice, once
to the backend and once to the journal, with a sync for each. Its sealed bytes are attached to the command that names
it, and the committer stores both in one transaction (`gateway/journal/inline_values.py`, with the crash argument).

**Theory of operation.** To all other code the block is on that backend:

- Its row in `block` names the set of that backend, from the beginning.
- `InlineBackend` (`backend.py`) is the local backend and the table `inline_value` together: what is not in a file is
  read from the table, and listings contain both.
- The keeper writes the value to its file later, and then drops the row (`maintenance/inline_flusher.py`).

So drains, repairs, backups, checks and sweeps need no special case. A row is dropped in three cases: the flusher has
made the file durable; somebody deletes the block from the backend; or the flusher finds that the journal has forgotten
the block. A block's id is never used again, so a row that was dropped is never needed again.

**Flushing and deleting.** The keeper's sweeper and mover may delete a block while the flusher is about to write its
file, which would then stay. So within a process one block is not flushed and deleted at the same time: a deletion waits
until a flush of that block has ended (`deleting`), and a flush leaves out the blocks that are being deleted
(`flushing`). Another process may delete a block at the same moment (`entrepot gc` runs a sweeper, too, or an older
keeper is about to end). Then a file may stay that no row names; it is found like any other when its session is swept,
or by the next `gc`. The rows themselves are never in danger: one is dropped only when its file is durable, or its block
deleted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from backends import errors as backend_errors
from backends.base import Buffer, Listed
from gateway.blocks.commands.inline_values import DropInlineValues
from gateway.blocks.protocols import TableReader, WorkerJournal
from gateway.blocks.types import block_path
from gateway.errors import EntrepotError
from gateway.journal.inline_values import AttachedValues, SentValue

KEYS = 256
"""Rows that one query of a listing reads."""


class StoredValue(NamedTuple):
    """A value that is in the table."""

    crc32c: int
    value: bytes


class InlineValues:
    """Reads, attaches and drops inline values. For one event loop."""

    def __init__(
        self,
        rows: TableReader,
        journal: WorkerJournal,
        attached: AttachedValues,
        bytes_max: int,
        accepts: Callable[[int], bool],
    ) -> None:
        """*attached*: the journal client's. *bytes_max*: longer blocks are not attached; 0: none is. *accepts* returns
        whether values may be attached that belong to the backend of this id: it is on the journal's file system, and
        in use."""
        self._rows = rows
        self._journal = journal
        self._attached = attached
        self._bytes_max = bytes_max
        self._accepts = accepts
        self._flushing: dict[bytes, asyncio.Future[None]] = {}
        self._deleting: Counter[bytes] = Counter()

    # ---- writing ------------------------------------------------------------------------------------------------

    def attach(self, block: bytes, backend: int, crc32c: int, buffers: Iterable[Buffer], size: int) -> bool:
        """Attach a sealed block to the commands that will name it, instead of putting it on *backend*.

        Returns False if it has to be put there. Otherwise the caller calls `detach` once all these commands have been
        answered or given up."""
        if size > self._bytes_max or not self._accepts(backend):
            return False
        return self._attached.add(SentValue(block, backend, crc32c, b"".join(buffers)))

    def detach(self, block: bytes) -> None:
        """Forget the value of *block*, if one was attached."""
        self._attached.remove(block)

    # ---- reading ------------------------------------------------------------------------------------------------

    def get(self, block: bytes, backend: int) -> StoredValue | None:
        """Return the value of *block* on *backend*; None if the table does not have it."""
        statement = "SELECT crc32c, value FROM inline_value WHERE block = ? AND backend = ?"
        rows = self._rows.query(statement, (block, backend))
        return StoredValue._make(rows[0]) if rows else None

    def list(self, backend: int, prefix: str, after: str) -> Iterator[Listed]:
        """Yield the values of *backend* whose key begins with *prefix* and is greater than *after*, in their order."""
        block = _first_id(max(prefix, after))
        while True:
            rows = self._rows.query(
                "SELECT block, length(value) FROM inline_value WHERE block >= ? AND backend = ? ORDER BY block LIMIT ?",
                (block, backend, KEYS),
            )
            for block, size in rows:
                key = block_path(block)
                if key > after and key.startswith(prefix):
                    yield Listed(key, size)
                elif key > prefix and not key.startswith(prefix):
                    return
            if len(rows) < KEYS:
                return
            block += b"\0"

    # ---- dropping -----------------------------------------------------------------------------------------------

    async def drop_rows(self, blocks: Iterable[bytes]) -> None:
        """Drop the rows of *blocks*. Raises the errors of the journal's client."""
        await self._journal.send(DropInlineValues(tuple(blocks)))

    async def drop_row_of(self, block: bytes, backend: int) -> None:
        """Drop the row of a block that was deleted from *backend*, if there is one. Raises
        `backends.errors.Unavailable`."""
        if not self._rows.query("SELECT 1 FROM inline_value WHERE block = ? AND backend = ?", (block, backend)):
            return
        try:
            await self.drop_rows([block])
        except EntrepotError as error:
            raise backend_errors.Unavailable(f"its inline value cannot be dropped: {error}") from error

    @contextmanager
    def flushing(self, blocks: Iterable[bytes]) -> Iterator[set[bytes]]:
        """A context within which the caller writes the files of blocks and drops their rows: those of *blocks* that
        are not being deleted. Deletions of these wait until it ends."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mine = {block for block in blocks if not self._deleting[block]}
        self._flushing |= dict.fromkeys(mine, ended)
        try:
            yield mine
        finally:
            for block in mine:
                del self._flushing[block]
            ended.set_result(None)

    @asynccontextmanager
    async def deleting(self, block: bytes) -> AsyncIterator[None]:
        """A context within which the caller deletes *block*. Waits until no flush of it is under way in this process;
        none begins until the context ends."""
        while (flush := self._flushing.get(block)) is not None:
            await asyncio.shield(flush)
        self._deleting[block] += 1
        try:
            yield
        finally:
            self._deleting[block] -= 1
            if not self._deleting[block]:
                del self._deleting[block]


def _first_id(key: str) -> bytes:
    """Return a block id, or the beginning of one, which is not greater than that of any block whose path is *key* or
    greater."""
    digits = ""
    for each in key.replace("/", "", 1):
        if each not in "0123456789abcdef":
            break
        digits += each
    return bytes.fromhex(digits[: len(digits) // 2 * 2])
