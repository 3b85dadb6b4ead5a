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

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from backends.base import Buffer
from gateway.blocks.budget import Budget
from gateway.blocks.read.copy_reader import Arrived, CopyReader
from gateway.blocks.read.shared_fetch import FetchHandle
from gateway.blocks.types import ReadRange
from gateway.crypto.sealing import FRAME_PLAIN

PIECE_BYTES = 512 << 10
"""So many plain bytes are opened and handed on at once: about 0.1 ms. Twice as many were no faster."""
SMALL_PIECE_BYTES = 128 << 10
"""As `PIECE_BYTES`, while the budget has nothing left."""


class Reader:
    """What a process reads with. For one event loop."""

    def __init__(self, copies: CopyReader, budget: Budget, *, blocks_ahead: int = 2) -> None:
        """*blocks_ahead*: how many of the next blocks are fetched while one is being drained."""
        self._copies = copies
        self._budget = budget
        self._blocks_ahead = blocks_ahead

    def read_now(self, wants: Sequence[ReadRange]) -> Buffer | None:
        """All plain bytes of *wants*, if they are at hand without waiting. Meant for what is small: it takes its time
        on the loop, about 0.2 ms for each MiB."""
        found: list[Buffer] = []
        for want in wants:
            plain = self._copies.read_now(want, want.start, want.length)
            if plain is None:
                return None
            found.append(plain)
        return found[0] if len(found) == 1 else b"".join(found)

    async def read(self, wants: Iterable[ReadRange]) -> AsyncIterator[Buffer]:
        """The plain bytes of *wants*, in order, in pieces of at most `PIECE_BYTES`. *wants* is consumed as the reading
        gets there. Close it (`aclose`) if it is not read to its end.

        Raises `Corrupted` when every copy of a block is lost, `Unavailable` when one may come back."""
        reading = _Reading(self._copies, self._budget, self._blocks_ahead, iter(wants))
        try:
            while (piece := await reading.next()) is not None:
                yield piece
        finally:
            reading.close()


class _Fetch:
    """A stretch to read, and its place on the fetch that brings it, where there is one."""

    def __init__(self, want: ReadRange) -> None:
        self.want = want
        self._ticket: FetchHandle[Arrived] | None = None

    async def arrived(self) -> FetchHandle[Arrived] | None:
        """Where it can be opened from; None if nothing was fetched or could be."""
        ticket = self._ticket
        if ticket is None or (await ticket.result()).fetched is None:
            return None
        return ticket

    def begin(self, ticket: FetchHandle[Arrived] | None) -> None:
        """It is fetched by that."""
        self.leave()
        self._ticket = ticket

    def leave(self) -> None:
        """It is not needed any more."""
        if self._ticket is not None:
            self._ticket.leave()
            self._ticket = None


class _Reading:
    """One read on its way."""

    def __init__(self, copies: CopyReader, budget: Budget, blocks_ahead: int, wants: Iterator[ReadRange]) -> None:
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
        self._give_piece()
        current = self._current()
        if current is None:
            return None
        ticket = await current.arrived()
        if ticket is None:
            if (plain := self._at_hand(current)) is not None:
                return self._step(plain)
            self._fetch_rest(current)
            self._look_ahead()
            ticket = await current.arrived()
        if ticket is None:
            length = self._length(current.want, SMALL_PIECE_BYTES)
            return self._step(await self._copies.read(current.want, self._at, length))
        # the charge for a fetch covers a piece of whoever began it
        length = self._charged_length(current.want) if ticket.joined else self._length(current.want, PIECE_BYTES)
        self._look_ahead()
        return self._step(await self._copies.open(ticket, current.want, self._at, length))

    def close(self) -> None:
        """Let go of everything."""
        self._give_piece()
        for fetch in (self._now, *self._ahead):
            if fetch is not None:
                fetch.leave()
        self._now = None
        self._ahead.clear()

    def _current(self) -> _Fetch | None:
        """The stretch that the next byte is in."""
        while self._now is None or self._at == self._now.want.start + self._now.want.length:
            if self._now is not None:
                self._now.leave()
            self._now = self._ahead.popleft() if self._ahead else self._upcoming()
            if self._now is None:
                return None
            self._at = self._now.want.start
        return self._now

    def _upcoming(self) -> _Fetch | None:
        want = next(self._wants, None)
        return None if want is None else _Fetch(want)

    def _at_hand(self, fetch: _Fetch) -> Buffer | None:
        # the horizon holds for what was looked up once, so a block's facts are not asked for again with each piece
        want = fetch.want = self._copies.with_facts(fetch.want)
        plain = self._copies.read_now(want, self._at, self._charged_length(want))
        if plain is None:
            self._give_piece()
        return plain

    def _charged_length(self, want: ReadRange) -> int:
        """How many bytes to take next, which are charged until the next piece; few where that is not to be had."""
        length = self._length(want, PIECE_BYTES)
        if length > SMALL_PIECE_BYTES:
            if self._budget.acquire_now(length):
                self._piece_charged = length
            else:
                length = self._length(want, SMALL_PIECE_BYTES)
        return length

    def _give_piece(self) -> None:
        self._budget.release(self._piece_charged)
        self._piece_charged = 0

    def _length(self, want: ReadRange, most: int) -> int:
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
        fetch.leave()
        fetch.begin(self._copies.join(fetch.want, start, length, self._budget))

    def _look_ahead(self) -> None:
        """While one block is drained, the next ones are on their way."""
        while len(self._ahead) < self._blocks_ahead and (upcoming := self._upcoming()) is not None:
            self._ahead.append(upcoming)
            self._fetch_rest(upcoming)
