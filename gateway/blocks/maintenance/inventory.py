"""The inventory of a backend: the blocks that the journal names there, compared with the keys that it lists.

Both sides are walked together in the order of their keys (a key sorts as its block id does), so memory does not grow
with the site. The site may be in use: where the two sides differ, the row and the value are looked up once more before
an item is yielded.

A backend may be broken or hostile, and list keys without end. So the walk ends with `UnusableListing` once it has met
more keys that the journal does not name than `ListingLimits` allows, or if the listing is too slow or out of order.
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
"""Rows that one query reads."""
UNNAMED_MOST = 1_000_000
"""How many keys that the journal does not name one listing may have before it counts as endless. There are some: blocks
of sessions that are live or not swept yet, copies that are being made, and what a restored site no longer names."""


class BlockState(Enum):
    """What an inventory says about a block on one backend, or about a key there."""

    WHOLE = "whole"
    """Named, and present with its size."""
    MISSING = "missing"
    """Named and alive, but not present."""
    WRONG_SIZE = "wrong size"
    """Named and alive, but present with another size."""
    DEAD = "dead"
    """Named, but no extent in it is alive; the sweeper will delete it."""
    IN_FLIGHT = "in flight"
    """Unnamed, and written by a live session, which may still name it."""
    UNNAMED = "unnamed"
    """Unnamed, and written by a session that has ended; the sweeper will delete it."""
    ORPHAN = "orphan"
    """Unnamed, and written by a session that the journal has forgotten or never knew."""
    STRAY = "stray"
    """A copy of a living block, on a backend that is not in its set."""
    STRANGE = "strange"
    """The key is not a block's."""


_SESSION_MAX = (1 << 63) - 1  # SQLite's greatest integer; a backend may list keys of greater session ids
_UNNAMED_STATES = frozenset(
    {BlockState.IN_FLIGHT, BlockState.UNNAMED, BlockState.ORPHAN, BlockState.STRAY, BlockState.STRANGE}
)


class InventoryItem(NamedTuple):
    """A block, or a key, on one backend."""

    state: BlockState
    key: str
    size: int
    """Bytes as listed; those that the journal names if the block is missing."""
    named_size: int
    """Bytes that the journal names; 0 if it does not name the block."""


class _Row(NamedTuple):
    id: bytes
    size: int
    died: int


class UnusableListing(backend_errors.Corrupted):
    """A backend's listing is damaged, out of order, too slow, or has more keys than can be explained."""


@dataclass(frozen=True)
class ListingLimits:
    """What one listing may cost."""

    unnamed_most: int = UNNAMED_MOST
    """Keys that the journal does not name."""
    timing: Timing = field(default_factory=Timing)


DEFAULT_LIMITS = ListingLimits()


async def take_inventory(
    store: Tables, backend_id: int, backend: Backend, limits: ListingLimits = DEFAULT_LIMITS
) -> AsyncIterator[InventoryItem]:
    """Yield every block that the journal names on *backend*, and every key that it lists, in the order of the keys.

    Raises `UnusableListing`, and the backend's errors."""
    unnamed = 0
    async for item in _walk(store, backend_id, backend, limits.timing):
        unnamed += item.state in _UNNAMED_STATES
        if unnamed > limits.unnamed_most:
            raise UnusableListing(
                f"its listing was given up at {item.key!r}: it has more than {limits.unnamed_most} keys that the "
                "journal does not name. If there may be so many, raise --unnamed-max",
                backend=backend.name,
            )
        yield item


async def _walk(store: Tables, backend_id: int, backend: Backend, timing: Timing) -> AsyncIterator[InventoryItem]:
    """Merge the journal's rows and the backend's listing."""
    sets = sets_containing(store, backend_id)
    rows = _rows(store, sets)
    row = next(rows, None)
    async for listed in _list(backend, timing):
        block_id = block_id_of(listed.key)
        while row is not None and block_path(row.id) < listed.key:
            if (item := await _unlisted_item(store, backend, sets, row)) is not None:
                yield item
            row = next(rows, None)
        if block_id is None:
            yield InventoryItem(BlockState.STRANGE, listed.key, listed.size, 0)
        elif row is not None and row.id == block_id:
            yield _named_item(row, listed)
            row = next(rows, None)
        else:
            yield _unnamed_item(store, sets, block_id, listed)
    while row is not None:
        if (item := await _unlisted_item(store, backend, sets, row)) is not None:
            yield item
        row = next(rows, None)


async def _list(backend: Backend, timing: Timing) -> AsyncIterator[Listed]:
    """List *backend*. Raises `UnusableListing` if the listing is out of order, or too slow.

    Only the time that the backend takes counts, not the caller's. The limit also ends the wait for a single key."""
    clock, waited, count, last = timing.clock, 0.0, 0, ""
    async with aclosing(backend.list()) as listing:  # type: ignore[type-var] # every backend's is a generator
        while True:
            began = clock.monotonic()
            allowed = timing.inventory.thousand_keys_seconds * (1 + (count + 1) / 1_000)
            try:
                async with asyncio.timeout(max(0.0, allowed - waited)):
                    listed = await anext(listing, None)
            except TimeoutError as error:
                message = f"its listing was given up after {last!r}: {count} keys took more than {allowed:.0f} s"
                raise UnusableListing(message + backend_errors.notes_suffix(error), backend=backend.name) from None
            except backend_errors.Corrupted as error:
                raise UnusableListing(error.message, backend=backend.name) from error
            if listed is None:
                return
            waited, count = waited + clock.monotonic() - began, count + 1
            if waited > allowed:
                message = f"its listing was given up at {listed.key!r}: {count} keys took {waited:.0f} s"
                raise UnusableListing(message, backend=backend.name)
            if listed.key <= last:
                raise UnusableListing(f"its listing has {listed.key!r} after {last!r}", backend=backend.name)
            last = listed.key
            yield listed


def sets_containing(store: TableReader, backend_id: int) -> list[int]:
    """Return the ids of the interned sets that the backend is a member of."""
    return [
        set_id
        for members, set_id in store.query("SELECT members, id FROM backend_set")
        if backend_id in unpack(members)
    ]


def _rows(store: Tables, sets: list[int]) -> Iterator[_Row]:
    """Yield the rows of the blocks that are held by these sets, in the order of their ids, a slice at a time."""
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


def _row_now(store: Tables, sets: list[int], block_id: bytes) -> _Row | None:
    """Look a block's row up once more; None if it is deleted, or no set of *sets* holds the block."""
    rows = store.query("SELECT id, size, died, backends FROM block WHERE id = ?", (block_id,))
    return _Row._make(rows[0][:3]) if rows and rows[0][3] in sets else None


def _named_item(row: _Row, listed: Listed) -> InventoryItem:
    """Return the item of a block that has a row and is listed."""
    present = BlockState.WHOLE if row.size == listed.size else BlockState.WRONG_SIZE
    state = BlockState.DEAD if row.died else present
    return InventoryItem(state, listed.key, listed.size, row.size)


async def _unlisted_item(store: Tables, backend: Backend, sets: list[int], row: _Row) -> InventoryItem | None:
    """Return the item of a block that has a row and was not listed; None if it is not missing after all."""
    key = block_path(row.id)
    try:
        size = (await backend.stat(key)).size  # stored after the listing had passed its key
    except backend_errors.NotFound:
        now = _row_now(store, sets, row.id)
        return None if now is None or now.died else InventoryItem(BlockState.MISSING, key, now.size, now.size)
    return _named_item(row, Listed(key, size))


def _unnamed_item(store: Tables, sets: list[int], block_id: bytes, listed: Listed) -> InventoryItem:
    """Return the item of a block that was listed and had no row on this backend when the rows were read."""
    row = _row_now(store, sets, block_id)
    if row is not None:
        return _named_item(row, listed)
    states = {
        SessionState.LIVE: BlockState.IN_FLIGHT,
        SessionState.ENDED: BlockState.UNNAMED,
        SessionState.SWEPT: BlockState.UNNAMED,
    }
    session = session_of(block_id)
    sessions = store.query("SELECT state FROM session WHERE id = ?", (session,)) if session <= _SESSION_MAX else []
    state = states[sessions[0][0]] if sessions else BlockState.ORPHAN
    elsewhere = store.query("SELECT size, died FROM block WHERE id = ?", (block_id,))
    if elsewhere and state is not BlockState.IN_FLIGHT:  # this copy is being made, or waits to be deleted
        state = BlockState.DEAD if elsewhere[0][1] else BlockState.STRAY
    return InventoryItem(state, listed.key, listed.size, elsewhere[0][0] if elsewhere else 0)
