"""Blocks that the journal names beside blocks that a backend holds: one walk over both, in the order of their keys.

Both sides are sorted alike (a key sorts as its id), so memory does not grow with the site. The site is alive: where
the two differ, the row and the value are looked at once more before anything is said.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from enum import Enum
from typing import NamedTuple

from backends import errors as backend_errors
from backends.base import Backend, Listed
from gateway.blocks.lookup import Reads
from gateway.blocks.values import block_id, block_key, session_of
from gateway.blocks.working import Tables
from gateway.journal.packed import unpack
from gateway.journal.tables import SessionState

ROWS = 1_000


class State(Enum):
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


class Item(NamedTuple):
    state: State
    key: str
    size: int
    """Bytes, as listed; of a missing one, as named."""
    named_size: int
    """0 for what the journal does not name."""


class _Row(NamedTuple):
    id: bytes
    size: int
    died: int


async def take_inventory(store: Tables, place: int, backend: Backend) -> AsyncIterator[Item]:
    """Every block that the journal says *backend* (its id is *place*) holds, and every key that it does hold."""
    sets = sets_with(store, place)
    rows = _rows(store, sets)
    row = next(rows, None)
    async for listed in backend.list():
        block = block_id(listed.key)
        while row is not None and block_key(row.id) < listed.key:
            if (item := await _absent(store, backend, sets, row)) is not None:
                yield item
            row = next(rows, None)
        if block is None:
            yield Item(State.STRANGE, listed.key, listed.size, 0)
        elif row is not None and row.id == block:
            yield _both(row, listed)
            row = next(rows, None)
        else:
            yield _unnamed(store, sets, block, listed)
    while row is not None:
        if (item := await _absent(store, backend, sets, row)) is not None:
            yield item
        row = next(rows, None)


def sets_with(store: Reads, place: int) -> list[int]:
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


def _both(row: _Row, listed: Listed) -> Item:
    state = State.DEAD if row.died else State.WHOLE if row.size == listed.size else State.WRONG_SIZE
    return Item(state, listed.key, listed.size, row.size)


def _again(store: Tables, sets: list[int], block: bytes) -> _Row | None:
    rows = store.query("SELECT id, size, died, backends FROM block WHERE id = ?", (block,))
    return _Row._make(rows[0][:3]) if rows and rows[0][3] in sets else None


async def _absent(store: Tables, backend: Backend, sets: list[int], row: _Row) -> Item | None:
    """What is to be said of a row whose key was not listed."""
    key = block_key(row.id)
    try:
        size = (await backend.stat(key)).size  # stored behind the listing's back
    except backend_errors.NotFound:
        now = _again(store, sets, row.id)
        return None if now is None or now.died else Item(State.MISSING, key, now.size, now.size)
    return _both(row, Listed(key, size))


def _unnamed(store: Tables, sets: list[int], block: bytes, listed: Listed) -> Item:
    """What is to be said of a key without a row."""
    row = _again(store, sets, block)
    if row is not None:
        return _both(row, listed)
    states = {
        SessionState.LIVE: State.IN_FLIGHT,
        SessionState.ENDED: State.UNNAMED,
        SessionState.SWEPT: State.UNNAMED,
    }
    known = store.query("SELECT state FROM session WHERE id = ?", (session_of(block),))
    state = states[known[0][0]] if known else State.ORPHAN
    named = store.query("SELECT size, died FROM block WHERE id = ?", (block,))
    if named and state is not State.IN_FLIGHT:  # elsewhere: somebody makes this copy, or lets go of it
        state = State.DEAD if named[0][1] else State.STRAY
    return Item(state, listed.key, listed.size, named[0][0] if named else 0)
