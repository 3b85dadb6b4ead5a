"""Reading plain bytes of extents, and reading ahead where that helps.

**Theory of operation.** A read yields pieces. For each piece it takes the first of these ways that works:

1. The rest of the current extent has been fetched, or is being fetched: the piece is opened out of that.
2. A copy has the bytes at hand (as in the page cache): the piece is read and opened at once, on the event loop.
3. The rest of the extent is fetched, at most a block, and the next extents are fetched while the client takes this one.
4. Without bytes of the budget, a small piece is read from the copies, with nothing ahead.

**The rule of the budget.** Reading never waits for the budget. If the budget has no bytes to charge, there is no
read-ahead, and pieces are small.

**Why a read survives overwriting, deletion, sweeping and compaction.** The caller keeps a `ReadHorizon` open from
before it looked the extents up until the last byte. A record that kills a block meanwhile has a higher number, and the
sweeper deletes only blocks that died at or below every open horizon. Compaction moves extents by killing their old
block, so the same holds. Only a read that outlives its session can find its block deleted; then `CopyReader` looks the
extent up once more, in case it has moved."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from backends.base import Buffer
from gateway.blocks.budget import Budget
from gateway.blocks.read.copy_reader import CopyReader, FetchOutcome
from gateway.blocks.read.shared_fetch import FetchHandle
from gateway.blocks.types import ReadRange
from gateway.crypto.sealing import FRAME_PLAIN

PIECE_BYTES = 512 << 10
"""Plain bytes that are opened and yielded at once: about 0.1 ms. Twice as many were no faster."""
SMALL_PIECE_BYTES = 128 << 10
"""The same while the budget has no bytes left. Pieces up to this size are not charged."""


class Reader:
    """Reads blocks for one process. For one event loop."""

    def __init__(self, copies: CopyReader, budget: Budget, *, blocks_ahead: int = 2) -> None:
        """*blocks_ahead*: how many of the next blocks are fetched while one is being yielded."""
        self._copies = copies
        self._budget = budget
        self._blocks_ahead = blocks_ahead

    def read_now(self, ranges: Sequence[ReadRange]) -> Buffer | None:
        """Return all plain bytes of *ranges* if copies have them at hand, without waiting; otherwise None.

        For small ranges: it runs on the event loop, for about 0.2 ms per MiB."""
        pieces: list[Buffer] = []
        for read_range in ranges:
            plain = self._copies.read_now(read_range, read_range.start, read_range.length)
            if plain is None:
                return None
            pieces.append(plain)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read(self, ranges: Iterable[ReadRange]) -> AsyncIterator[Buffer]:
        """Yield the plain bytes of *ranges* in order, in pieces of at most `PIECE_BYTES`.

        *ranges* is consumed as the read gets there. The caller closes the iterator (`aclose`) if it does not read to
        the end. Raises `Corrupted` if every copy of a block is lost, and `Unavailable` if one may come back."""
        reading = _Reading(self._copies, self._budget, self._blocks_ahead, iter(ranges))
        try:
            while (piece := await reading.next()) is not None:
                yield piece
        finally:
            reading.close()


class _Step:
    """One range of a read, and the handle of its fetch, if there is one."""

    def __init__(self, read_range: ReadRange) -> None:
        self.range = read_range
        self._handle: FetchHandle[FetchOutcome] | None = None

    async def fetched(self) -> FetchHandle[FetchOutcome] | None:
        """Wait for the fetch. Returns its handle; None if nothing is fetched, or no copy could be read."""
        handle = self._handle
        if handle is None or (await handle.result()).fetched is None:
            return None
        return handle

    def set_handle(self, handle: FetchHandle[FetchOutcome] | None) -> None:
        """Replace the fetch by that of *handle*."""
        self.release()
        self._handle = handle

    def release(self) -> None:
        """Release the fetch."""
        if self._handle is not None:
            self._handle.release()
            self._handle = None


class _Reading:
    """The state of one read."""

    def __init__(self, copies: CopyReader, budget: Budget, blocks_ahead: int, ranges: Iterator[ReadRange]) -> None:
        self._copies = copies
        self._budget = budget
        self._blocks_ahead = blocks_ahead
        self._ranges = ranges
        self._current: _Step | None = None
        self._ahead: deque[_Step] = deque()
        self._at = 0  # the next plain byte of the current extent
        self._piece_charged = 0

    async def next(self) -> Buffer | None:
        """Return the next piece; None after the last one."""
        self._release_piece()
        current = self._current_step()
        if current is None:
            return None
        handle = await current.fetched()
        if handle is None:
            if (plain := self._read_now(current)) is not None:
                return self._advance(plain)
            self._fetch_rest(current)
            self._look_ahead()
            handle = await current.fetched()
        if handle is None:
            length = self._piece_length(current.range, SMALL_PIECE_BYTES)
            return self._advance(await self._copies.read(current.range, self._at, length))
        # The charge of a fetch includes one piece, but only for the reader that started it.
        if handle.is_joined:
            length = self._charged_length(current.range)
        else:
            length = self._piece_length(current.range, PIECE_BYTES)
        self._look_ahead()
        return self._advance(await self._copies.open(handle, current.range, self._at, length))

    def close(self) -> None:
        """Release all fetches and charges."""
        self._release_piece()
        for step in (self._current, *self._ahead):
            if step is not None:
                step.release()
        self._current = None
        self._ahead.clear()

    def _current_step(self) -> _Step | None:
        """Return the step that the next byte is in; None after the last byte."""
        while self._current is None or self._at == self._current.range.start + self._current.range.length:
            if self._current is not None:
                self._current.release()
            self._current = self._ahead.popleft() if self._ahead else self._upcoming()
            if self._current is None:
                return None
            self._at = self._current.range.start
        return self._current

    def _upcoming(self) -> _Step | None:
        read_range = next(self._ranges, None)
        return None if read_range is None else _Step(read_range)

    def _advance(self, plain: Buffer) -> Buffer:
        self._at += len(plain)
        return plain

    # ---- the size of a piece ------------------------------------------------------------------------------------

    def _read_now(self, step: _Step) -> Buffer | None:
        # While the horizon is held, a block's facts stay valid; so they are looked up once, not for each piece.
        read_range = step.range = self._copies.with_facts(step.range)
        plain = self._copies.read_now(read_range, self._at, self._charged_length(read_range))
        if plain is None:
            self._release_piece()
        return plain

    def _charged_length(self, read_range: ReadRange) -> int:
        """Return the length of the next piece, and charge it until the piece after that; short if that fails."""
        length = self._piece_length(read_range, PIECE_BYTES)
        if length > SMALL_PIECE_BYTES:
            if self._budget.acquire_now(length):
                self._piece_charged = length
            else:
                length = self._piece_length(read_range, SMALL_PIECE_BYTES)
        return length

    def _release_piece(self) -> None:
        self._budget.release(self._piece_charged)
        self._piece_charged = 0

    def _piece_length(self, read_range: ReadRange, most: int) -> int:
        """Return the length of the next piece: up to the end of a frame, so that no frame is opened twice."""
        upto = (self._at // FRAME_PLAIN * FRAME_PLAIN) + most
        return min(upto, read_range.start + read_range.length) - self._at

    # ---- fetching -----------------------------------------------------------------------------------------------

    def _fetch_rest(self, step: _Step) -> None:
        """Fetch the rest of the step's range, if the budget allows it."""
        start = self._at if step is self._current else step.range.start
        length = step.range.start + step.range.length - start
        step.release()
        step.set_handle(self._copies.fetch(step.range, start, length, self._budget))

    def _look_ahead(self) -> None:
        """Start to fetch the next ranges, up to `blocks_ahead` of them."""
        while len(self._ahead) < self._blocks_ahead and (upcoming := self._upcoming()) is not None:
            self._ahead.append(upcoming)
            self._fetch_rest(upcoming)
