"""Reading: plain bytes of extents, ahead of the client where that helps.

A small range that the page cache holds is read and opened at once, on the loop (`read_now`). A long one is read in
pieces the same way; where they are not at hand, a block's worth is fetched, and the next ones while the client drains.

Rule of the budget: reading never waits for it. Without bytes to charge there is no read-ahead and pieces are small.

A read in flight survives overwrite, delete, sweep and compaction. Whoever reads holds a token of the journal from
before it looked the extents up until the last byte: whatever kills a block meanwhile has a higher number, and the
sweeper takes only blocks that died below every number that is held. Compaction moves extents by killing their old
block, so the same holds. Only a read that outlived its token's greatest age can find a block gone; then the extent is
looked up once more, in case it moved.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from backends.base import Buffer
from gateway.blocks.budget import Budget
from gateway.blocks.copies import Copies, Fetched
from gateway.blocks.values import Want
from gateway.crypto.sealing import FRAME_PLAIN, sealed_length

PIECE_BYTES = 512 << 10
"""So many plain bytes are opened and handed on at once: about 0.1 ms. Twice as many were no faster."""
SMALL_PIECE_BYTES = 128 << 10
"""As `PIECE_BYTES`, while the budget has nothing left."""


class Reader:
    """What a process reads with. For one event loop."""

    def __init__(self, copies: Copies, budget: Budget, *, blocks_ahead: int = 2) -> None:
        """*blocks_ahead*: how many of the next blocks are fetched while one is being drained."""
        self._copies = copies
        self._budget = budget
        self._blocks_ahead = blocks_ahead

    def read_now(self, wants: Sequence[Want]) -> Buffer | None:
        """All plain bytes of *wants*, if they are at hand without waiting. Meant for what is small: it takes its time
        on the loop, about 0.2 ms for each MiB."""
        found: list[Buffer] = []
        for want in wants:
            plain = self._copies.read_now(want, want.start, want.length)
            if plain is None:
                return None
            found.append(plain)
        return found[0] if len(found) == 1 else b"".join(found)

    async def read(self, wants: Iterable[Want]) -> AsyncIterator[Buffer]:
        """The plain bytes of *wants*, in order, in pieces of at most `PIECE_BYTES`. *wants* is consumed as the reading
        gets there. Close it (`aclose`) if it is not read to its end.

        Raises `Damaged` when every copy of a block is lost, `Unavailable` when one may come back."""
        reading = _Reading(self._copies, self._budget, self._blocks_ahead, iter(wants))
        try:
            while (piece := await reading.next()) is not None:
                yield piece
        finally:
            reading.close()


class _Fetch:
    """A block's worth being fetched, and what it holds of the budget."""

    def __init__(self, want: Want, charged: int, task: asyncio.Task[Fetched | None] | None) -> None:
        self.want = want
        self.charged = charged
        self.task = task
        self._fetched: Fetched | None = None

    async def arrived(self) -> Fetched | None:
        """What was fetched, None if nothing is or can be."""
        if self.task is not None:
            self._fetched = await self.task
            self.task = None
        return self._fetched


class _Reading:
    """One read on its way."""

    def __init__(self, copies: Copies, budget: Budget, blocks_ahead: int, wants: Iterator[Want]) -> None:
        self._copies = copies
        self._budget = budget
        self._blocks_ahead = blocks_ahead
        self._wants = wants
        self._now: _Fetch | None = None  # what is being drained
        self._ahead: deque[_Fetch] = deque()
        self._at = 0  # the next plain byte, inside the extent
        self._piece_charged = 0

    async def next(self) -> Buffer | None:
        """The next piece, None behind the last."""
        self._budget.give(self._piece_charged)
        self._piece_charged = 0
        current = self._current()
        if current is None:
            return None
        fetched = await current.arrived()
        if fetched is None:
            if (plain := self._at_hand(current.want)) is not None:
                return self._step(plain)
            self._fetch_rest(current)
            self._look_ahead()
            fetched = await current.arrived()
        length = self._length(current.want, PIECE_BYTES if fetched else SMALL_PIECE_BYTES)
        if fetched is None:
            return self._step(await self._copies.read(current.want, self._at, length))
        self._look_ahead()
        return self._step(await self._copies.open(fetched, self._at, length))

    def close(self) -> None:
        """Let go of everything."""
        self._budget.give(self._piece_charged)
        self._piece_charged = 0
        for fetch in (self._now, *self._ahead):
            if fetch is not None:
                self._drop(fetch)
        self._now = None
        self._ahead.clear()

    def _drop(self, fetch: _Fetch) -> None:
        if fetch.task is not None:
            fetch.task.cancel()
        self._budget.give(fetch.charged)
        fetch.charged = 0

    def _current(self) -> _Fetch | None:
        """The stretch that the next byte is in."""
        while self._now is None or self._at == self._now.want.start + self._now.want.length:
            if self._now is not None:
                self._drop(self._now)
            self._now = self._ahead.popleft() if self._ahead else self._upcoming()
            if self._now is None:
                return None
            self._at = self._now.want.start
        return self._now

    def _upcoming(self) -> _Fetch | None:
        want = next(self._wants, None)
        return None if want is None else _Fetch(want, 0, None)

    def _at_hand(self, want: Want) -> Buffer | None:
        length = self._length(want, PIECE_BYTES)
        if length > SMALL_PIECE_BYTES:
            if self._budget.take_now(length):
                self._piece_charged = length
            else:
                length = self._length(want, SMALL_PIECE_BYTES)
        return self._copies.read_now(want, self._at, length)

    def _length(self, want: Want, most: int) -> int:
        """How many bytes to take next: up to the end of a frame, so that none is opened twice."""
        upto = (self._at // FRAME_PLAIN * FRAME_PLAIN) + most
        return min(upto, want.start + want.length) - self._at

    def _step(self, plain: Buffer) -> Buffer:
        self._at += len(plain)
        return plain

    def _fetch_rest(self, fetch: _Fetch) -> None:
        """Fetch the rest of the stretch, if the budget has room for it."""
        start = self._at if fetch is self._now else fetch.want.start
        length = fetch.want.start + fetch.want.length - start
        charge = sealed_length(length) + FRAME_PLAIN
        self._budget.give(fetch.charged)
        fetch.charged = 0
        if self._budget.take_now(charge):
            fetch.charged = charge
            fetch.task = asyncio.create_task(self._copies.fetch(fetch.want, start, length))

    def _look_ahead(self) -> None:
        """While one block is drained, the next ones are on their way."""
        while len(self._ahead) < self._blocks_ahead and (upcoming := self._upcoming()) is not None:
            self._ahead.append(upcoming)
            self._fetch_rest(upcoming)
