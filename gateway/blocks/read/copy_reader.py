"""Copies of a block: asking one after the other until one answers what was sealed.

What comes back is verified before anybody sees it, so an absent, torn, swapped, rotten or slow copy costs only the way
to the next one. Each such step is logged, and a copy that is no good is reported to whoever repairs.

Who reads holds the journal's horizon, and so every copy that the looked-up set names stays until the last byte is out:
whatever drops one says so in the journal first, and takes the bytes only behind all readers. So going over to another
copy in the middle of an object is as safe as having begun with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from backends import errors as backend_errors
from backends.base import Buffer
from gateway import errors
from gateway.blocks import metrics
from gateway.blocks.budget import Budget
from gateway.blocks.read.bad_copies import BadCopyReporter
from gateway.blocks.read.hedged_read import CopyFailure, HedgedReader, SealedRange
from gateway.blocks.read.shared_fetch import FetchHandle, SharedFetches
from gateway.blocks.types import (
    ABSENT,
    DAMAGED,
    BlockFacts,
    CopiesOf,
    FactsOf,
    ReadRange,
    ReportBadCopy,
    Target,
    block_path,
)
from gateway.crypto.sealing import (
    FRAME_PLAIN,
    FRAME_SEALED,
    TAG_BYTES,
    BlockKeys,
    frames_of,
    sealed_length,
    sealed_span,
)
from gateway.journal.columns import Extent
from gateway.placement.routes import Routes
from gateway.timing import Timing

_log = logging.getLogger(__name__)

ExtentAt = Callable[[int, int], Extent | None]
"""Where the extent of (run, which of its extents) lies by now; None if the run is gone."""


class Fetched(NamedTuple):
    """Sealed bytes of a copy, not verified yet."""

    facts: BlockFacts
    sealed: memoryview
    first: int
    """Which of the extent's frames stands first in them."""
    copy: Target


class Arrived(NamedTuple):
    """What became of a fetch."""

    fetched: Fetched | None
    failures: tuple[CopyFailure, ...]
    """The copies that did not answer."""


class CopyReader:
    """Reads stretches of extents from whichever copy answers."""

    def __init__(
        self,
        facts: FactsOf,
        copies_of: CopiesOf,
        keys: BlockKeys,
        extent_at: ExtentAt,
        *,
        routes: Routes | None = None,
        report: ReportBadCopy | None = None,
        timing: Timing,
    ) -> None:
        """*routes*: what this process knows of the ways to the backends. *report*: who repairs copies."""
        self._facts = facts
        self._copies_of = copies_of
        self._keys = keys
        self._extent_at = extent_at
        self._routes = routes or Routes(timing=timing.routes)
        self._clock = timing.clock.monotonic
        self._asking = HedgedReader(self._routes, self._clock)
        self._reports = BadCopyReporter(report, timing)
        self._flights: SharedFetches[Arrived] = SharedFetches(lambda arrived: arrived.fetched is not None)

    def with_facts(self, want: ReadRange) -> ReadRange:
        """*want* with its block's facts, where the journal names it."""
        return want if want.facts else want._replace(facts=self._facts(want.extent.block))

    def read_now(self, want: ReadRange, start: int, length: int) -> Buffer | None:
        """*length* plain bytes from *start* on, inside the extent, if they are at hand without waiting."""
        extent = want.extent
        facts = want.facts or self._facts(extent.block)
        if facts is None:
            return None
        key = block_path(extent.block)
        one = length == extent.length <= FRAME_PLAIN  # as most small objects are: all of one frame
        span = None if one else sealed_span(extent.offset, extent.length, start, length)
        for copy in self._copies_of(facts):
            backend = copy.backend
            if span is None:
                sealed = backend.get_now(key, extent.offset, length + TAG_BYTES)
            else:
                sealed = backend.get_now(key, span.start, span.length)
            if sealed is not None:
                try:
                    if span is None:
                        plain = self._keys.opener(facts.ring_key, extent.block).open_one(sealed, length, extent.frame)
                    else:
                        plain = self._open(want, Fetched(facts, memoryview(sealed), span.first, copy), start, length)
                except errors.Corrupted as error:
                    # said here: `read` may find another copy faster, and never meet this one
                    self._damaged(extent.block, copy, error)
                    continue
                metrics.OPENED.add(1, metrics.AT_HAND)
                return plain
        return None

    def join(self, want: ReadRange, start: int, length: int, budget: Budget) -> FetchHandle[Arrived] | None:
        """A place on the fetch of a stretch, from the first copy that answers at all. None if *budget* has no room, or
        the journal does not name the block.

        Whoever asks for the same stretch meanwhile shares it; it is charged once."""
        facts = self._facts(want.extent.block)
        if facts is None:
            return None
        stretch = _stretch(want, start, length)
        return self._share(stretch, facts, self._copies_of(facts), None, budget, sealed_length(length) + FRAME_PLAIN)

    async def open(self, ticket: FetchHandle[Arrived], want: ReadRange, start: int, length: int) -> memoryview:
        """Plain bytes of what was fetched, or, where it is not what was sealed, of another copy. Raises as `read`."""
        fetched = ticket.brought.fetched
        assert fetched is not None, "there is nothing to open"
        try:
            return self._verified(want, fetched, ticket, start, length)
        except errors.Corrupted:
            return await self.read(want, start, length, suspect=fetched.copy)

    async def read(self, want: ReadRange, start: int, length: int, suspect: Target | None = None) -> memoryview:
        """*length* plain bytes from *start* on, inside the extent, from whichever copy has them; *suspect* is asked
        last. Raises `Corrupted` if every copy is lost, `Unavailable` if one may still have them."""
        failures: list[Exception] = []
        found = await self._from_copies(want, start, length, suspect, failures)
        if found is None and (moved := self._moved(want)) is not None:
            found = await self._from_copies(moved, start, length, None, failures)
        if found is not None:
            return found
        what = f"block {want.extent.block.hex()} cannot be read"
        reasons = "; ".join(map(str, failures)) or "the journal does not name it"
        lost = backend_errors.NotFound, backend_errors.Corrupted, errors.Corrupted
        if all(isinstance(failure, lost) for failure in failures):
            raise errors.Corrupted(f"{what}: {reasons}")
        raise errors.Unavailable(f"{what}: {reasons}")

    # ---- fetching ------------------------------------------------------------------------------------------------

    async def _from_copies(
        self, want: ReadRange, start: int, length: int, suspect: Target | None, failures: list[Exception]
    ) -> memoryview | None:
        """From the first copy that answers what was sealed; no copy is asked twice."""
        facts = self._facts(want.extent.block)
        if facts is None:
            return None
        left = list(self._copies_of(facts))
        while left:
            ticket = self._share(_stretch(want, start, length), facts, left, suspect)
            assert ticket is not None, "nothing is charged"
            try:
                fetched, failed = await ticket.result()
                failures += [failure.error for failure in failed]
                if fetched is None:
                    return None
                try:
                    return self._verified(want, fetched, ticket, start, length)
                except errors.Corrupted as error:
                    failures.append(error)
                    asked = {fetched.copy.id, *(failure.copy.id for failure in failed)}
                    left = [copy for copy in left if copy.id not in asked]
            finally:
                ticket.leave()
        return None

    def _share(
        self,
        stretch: SealedRange,
        facts: BlockFacts,
        copies: Sequence[Target],
        suspect: Target | None,
        budget: Budget | None = None,
        charge: int = 0,
    ) -> FetchHandle[Arrived] | None:
        """A place on the fetch of *stretch* from *copies*, *suspect* last. None if *budget* has no room for it."""
        key = (stretch, tuple(copy.id for copy in copies), suspect and suspect.id)
        ticket = self._flights.join(key, lambda: self._fetch(stretch, facts, copies, suspect), budget, charge)
        if ticket is not None and ticket.joined:
            metrics.JOINED.add()
        return ticket

    async def _fetch(
        self, stretch: SealedRange, facts: BlockFacts, copies: Sequence[Target], suspect: Target | None
    ) -> Arrived:
        failed: list[CopyFailure] = []
        if len(copies) > 1:
            copies = sorted(self._ordered(copies, stretch.length), key=lambda copy: copy == suspect)
        found = await self._asking.first(copies, stretch, failed)
        for copy, error in failed:
            if isinstance(error, backend_errors.NotFound):
                self._bad(stretch.block, copy, ABSENT)
            elif isinstance(error, backend_errors.Corrupted):
                self._bad(stretch.block, copy, DAMAGED)
        if found is None:
            return Arrived(None, tuple(failed))
        return Arrived(Fetched(facts, memoryview(found[1]), stretch.first, found[0]), tuple(failed))

    def _ordered(self, copies: Sequence[Target], size: int) -> list[Target]:
        """Best first, as it was measured."""
        by_id = {copy.id: copy for copy in copies}
        return [by_id[each] for each in self._routes.order(by_id, size, self._clock())]

    def _verified(
        self, want: ReadRange, fetched: Fetched, ticket: FetchHandle[Arrived], start: int, length: int
    ) -> memoryview:
        """Plain bytes of what was fetched. Raises `Corrupted`, and says so to whom it concerns."""
        try:
            plain = self._open(want, fetched, start, length)
        except errors.Corrupted as error:
            ticket.refuse()
            self._damaged(want.extent.block, fetched.copy, error)
            raise
        metrics.OPENED.add(1, metrics.FETCHED)
        return plain

    def _damaged(self, block: bytes, copy: Target, error: errors.Corrupted) -> None:
        metrics.FAILED.add()
        _log.warning("backend %r: %s", copy.backend.name, error)
        self._bad(block, copy, DAMAGED)

    def _bad(self, block: bytes, copy: Target, word: str) -> None:
        """Report a copy, if it is one that the journal still names."""
        facts = self._facts(block)
        if facts is not None and any(copy.id == each.id for each in self._copies_of(facts)):
            self._reports.tell(block, copy.id, word)

    def _moved(self, want: ReadRange) -> ReadRange | None:
        extent = self._extent_at(want.run, want.nth) if want.run else None
        if extent is None or extent == want.extent or extent.length != want.extent.length:
            return None
        return want._replace(extent=extent, facts=None)

    def _open(self, want: ReadRange, fetched: Fetched, start: int, length: int) -> memoryview:
        """Verify and open the frames that hold the stretch, out of what was fetched. Raises `Corrupted`."""
        extent = want.extent
        facts, sealed, first, _ = fetched
        begins = start // FRAME_PLAIN
        ends = frames_of(start + length)
        opener = self._keys.opener(facts.ring_key, extent.block)
        frames = sealed[(begins - first) * FRAME_SEALED : (ends - first) * FRAME_SEALED]
        plain = opener.open(frames, extent.length, extent.frame, begins, ends - begins)
        skip = start - begins * FRAME_PLAIN
        return plain[skip : skip + length]


def _stretch(want: ReadRange, start: int, length: int) -> SealedRange:
    """The frames that hold so many plain bytes from *start* on, inside the extent."""
    span = sealed_span(want.extent.offset, want.extent.length, start, length)
    return SealedRange(want.extent.block, span.start, span.length, span.first)
