"""Blocks that the journal names beside blocks that a backend holds: one walk over both, in the order of their keys.

Both sides are sorted alike (a key sorts as its id), so memory does not grow with the site. The site is alive: where
the two differ, the row and the value are looked at once more before anything is said.

A backend may be broken or hostile, and list keys without end. So the walk ends with `UnusableListing` once it has met
more keys that the journal does not name than `ListingLimits` allows, or the listing is too slow or out of order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from backends import errors as backend_errors
from backends.base import Backend, Listed
from gateway.blocks.protocols import TableReader, Tables
from gateway.blocks.types import block_id_of, block_path, session_of
from gateway.journal.columns import unpack
from gateway.journal.tables import SessionState
from gateway.timing import Timing

ROWS = 1_000
UNNAMED_MOST = 1_000_000
"""Keys of one backend that the journal does not name, before its listing counts as endless: blocks of sessions that go
on or are not swept yet, copies under way, and what a restored site no longer names."""


class BlockState(Enum):
    """What a block, or a key, is."""

    WHOLE = "whole"
    """Named, and there in its size."""
    MISSING = "missing"
    """Named, alive, and not there."""
    WRONG_SIZE = "wrong size"
    DEAD = "dead"
    """Its last extent went; the sweeper takes it."""
    IN_FLIGHT = "in flight"
    """A live session wrote it, and may still name it."""
    UNNAMED = "unnamed"
    """Left by a session that has ended; the sweeper takes it."""
    ORPHAN = "orphan"
    """Left by a session that is forgotten or was never known."""
    STRAY = "stray"
    """A copy of a block that lives, where its set does not name it."""
    STRANGE = "strange"
    """The key is no block's."""


_SESSION_MOST = (1 << 63) - 1  # what SQLite has room for; a backend may list keys of any session
_UNNAMED_STATES = frozenset(
    {BlockState.IN_FLIGHT, BlockState.UNNAMED, BlockState.ORPHAN, BlockState.STRAY, BlockState.STRANGE}
)


class InventoryItem(NamedTuple):
    state: BlockState
    key: str
    size: int
    """Bytes, as listed; of a missing one, as named."""
    named_size: int
    """0 for what the journal does not name."""


class _Row(NamedTuple):
    id: bytes
    size: int
    died: int


class UnusableListing(backend_errors.Corrupted):
    """A backend's listing is wrong, out of order, too slow, or has more keys than can be explained."""


@dataclass(frozen=True)
class ListingLimits:
    """What a backend's listing may take."""

    unnamed_most: int = UNNAMED_MOST
    timing: Timing = field(default_factory=Timing)


DEFAULT_LIMITS = ListingLimits()


async def take_inventory(
    store: Tables, place: int, backend: Backend, limits: ListingLimits = DEFAULT_LIMITS
) -> AsyncIterator[InventoryItem]:
    """Every block that the journal says *backend* (its id is *place*) holds, and every key that it does hold.

    Raises `UnusableListing`, and what the backend raises."""
    unnamed = 0
    async for item in _walk(store, place, backend, limits.timing):
        unnamed += item.state in _UNNAMED_STATES
        if unnamed > limits.unnamed_most:
            raise UnusableListing(
                f"its listing was given up at {item.key!r}: it has more than {limits.unnamed_most} keys that the "
                "journal does not name. If there may be so many, raise --unnamed-max",
                backend=backend.name,
            )
        yield item


async def _walk(store: Tables, place: int, backend: Backend, timing: Timing) -> AsyncIterator[InventoryItem]:
    sets = sets_containing(store, place)
    rows = _rows(store, sets)
    row = next(rows, None)
    async for listed in _lines(backend, timing):
        block = block_id_of(listed.key)
        while row is not None and block_path(row.id) < listed.key:
            if (item := await _absent(store, backend, sets, row)) is not None:
                yield item
            row = next(rows, None)
        if block is None:
            yield InventoryItem(BlockState.STRANGE, listed.key, listed.size, 0)
        elif row is not None and row.id == block:
            yield _both(row, listed)
            row = next(rows, None)
        else:
            yield _unnamed(store, sets, block, listed)
    while row is not None:
        if (item := await _absent(store, backend, sets, row)) is not None:
            yield item
        row = next(rows, None)


async def _lines(backend: Backend, timing: Timing) -> AsyncIterator[Listed]:
    """What *backend* lists, as long as that goes on in order and at a bearable speed. Only time that the backend takes
    counts; a key that does not come is not waited for any longer than that."""
    clock, waited, count, last = timing.clock, 0.0, 0, ""
    async with aclosing(backend.list()) as lines:  # type: ignore[type-var] # every backend's is a generator
        while True:
            asked = clock.monotonic()
            allowed = timing.inventory.thousand_keys_seconds * (1 + (count + 1) / 1_000)
            try:
                async with asyncio.timeout(max(0.0, allowed - waited)):
                    line = await anext(lines, None)
            except TimeoutError as error:
                message = f"its listing was given up behind {last!r}: {count} keys took more than {allowed:.0f} s"
                raise UnusableListing(message + backend_errors.remarks(error), backend=backend.name) from None
            except backend_errors.Corrupted as error:
                raise UnusableListing(error.message, backend=backend.name) from error
            if line is None:
                return
            waited, count = waited + clock.monotonic() - asked, count + 1
            if waited > allowed:
                message = f"its listing was given up at {line.key!r}: {count} keys took {waited:.0f} s"
                raise UnusableListing(message, backend=backend.name)
            if line.key <= last:
                raise UnusableListing(f"its listing has {line.key!r} behind {last!r}", backend=backend.name)
            last = line.key
            yield line


def sets_containing(store: TableReader, place: int) -> list[int]:
    """The ids of the interned sets that the backend is one of."""
    return [
        set_id for members, set_id in store.query("SELECT members, id FROM backend_set") if place in unpack(members)
    ]


def _rows(store: Tables, sets: list[int]) -> Iterator[_Row]:
    """The rows of blocks in these sets, in the order of their ids, a slice at a time."""
    after = b""
    marks = ", ".join("?" * len(sets))
    while True:
        rows = store.query(
            f"SELECT id, size, died FROM block WHERE id > ? AND backends IN ({marks}) ORDER BY id LIMIT {ROWS}",
            (after, *sets),
        )
        if not rows:
            return
        yield from map(_Row._make, rows)
        after = rows[-1][0]


def _both(row: _Row, listed: Listed) -> InventoryItem:
    state = BlockState.DEAD if row.died else BlockState.WHOLE if row.size == listed.size else BlockState.WRONG_SIZE
    return InventoryItem(state, listed.key, listed.size, row.size)


def _again(store: Tables, sets: list[int], block: bytes) -> _Row | None:
    rows = store.query("SELECT id, size, died, backends FROM block WHERE id = ?", (block,))
    return _Row._make(rows[0][:3]) if rows and rows[0][3] in sets else None


async def _absent(store: Tables, backend: Backend, sets: list[int], row: _Row) -> InventoryItem | None:
    """What is to be said of a row whose key was not listed."""
    key = block_path(row.id)
    try:
        size = (await backend.stat(key)).size  # stored behind the listing's back
    except backend_errors.NotFound:
        now = _again(store, sets, row.id)
        return None if now is None or now.died else InventoryItem(BlockState.MISSING, key, now.size, now.size)
    return _both(row, Listed(key, size))


def _unnamed(store: Tables, sets: list[int], block: bytes, listed: Listed) -> InventoryItem:
    """What is to be said of a key without a row."""
    row = _again(store, sets, block)
    if row is not None:
        return _both(row, listed)
    states = {
        SessionState.LIVE: BlockState.IN_FLIGHT,
        SessionState.ENDED: BlockState.UNNAMED,
        SessionState.SWEPT: BlockState.UNNAMED,
    }
    session = session_of(block)
    known = store.query("SELECT state FROM session WHERE id = ?", (session,)) if session <= _SESSION_MOST else []
    state = states[known[0][0]] if known else BlockState.ORPHAN
    named = store.query("SELECT size, died FROM block WHERE id = ?", (block,))
    if named and state is not BlockState.IN_FLIGHT:  # elsewhere: somebody makes this copy, or lets go of it
        state = BlockState.DEAD if named[0][1] else BlockState.STRAY
    return InventoryItem(state, listed.key, listed.size, named[0][0] if named else 0)
