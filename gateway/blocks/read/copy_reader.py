"""Reading ranges of extents from whichever copy of the block is good.

All bytes are verified before a caller sees them. So an absent, torn, swapped, rotten or slow copy costs only the time
until the next copy is read. Each such failure is logged, and a bad copy is reported for repair.

The caller holds the journal's horizon, so each copy that the looked-up set names stays until the last byte is read: a
copy is dropped by a record first, and its bytes are deleted only when no reader's horizon is below that record. So
reading the rest of an object from another copy is as safe as having begun with that one.
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
"""Returns the extent of (run, number in the run) as the journal has it now; None if the run is deleted."""


class Fetched(NamedTuple):
    """Sealed bytes of a copy, not verified yet."""

    facts: BlockFacts
    sealed: memoryview
    first_frame: int
    """The number, in its extent, of the frame that `sealed` begins with."""
    copy: Target


class FetchOutcome(NamedTuple):
    """How a fetch ended."""

    fetched: Fetched | None
    """None if no copy could be read."""
    failures: tuple[CopyFailure, ...]


class CopyReader:
    """Reads ranges of extents. For one event loop.

    The methods take a *read_range*, and *start* and *length* of the part of it to read, as plain bytes of the
    extent."""

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
        """*routes*: what this process has measured of its backends. *report* receives bad copies."""
        self._facts = facts
        self._copies_of = copies_of
        self._keys = keys
        self._extent_at = extent_at
        self._routes = routes or Routes(timing=timing.routes)
        self._clock = timing.clock.monotonic
        self._hedged = HedgedReader(self._routes, self._clock)
        self._reporter = BadCopyReporter(report, timing)
        self._fetches: SharedFetches[FetchOutcome] = SharedFetches(lambda outcome: outcome.fetched is not None)

    def with_facts(self, read_range: ReadRange) -> ReadRange:
        """Return *read_range* with its block's facts, if the journal names the block."""
        return read_range if read_range.facts else read_range._replace(facts=self._facts(read_range.extent.block))

    def read_now(self, read_range: ReadRange, start: int, length: int) -> Buffer | None:
        """Return the plain bytes if a copy has them at hand, without waiting; otherwise None."""
        extent = read_range.extent
        facts = read_range.facts or self._facts(extent.block)
        if facts is None:
            return None
        key = block_path(extent.block)
        is_whole_frame = length == extent.length <= FRAME_PLAIN  # as most small objects are
        span = None if is_whole_frame else sealed_span(extent.offset, extent.length, start, length)
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
                        fetched = Fetched(facts, memoryview(sealed), span.first, copy)
                        plain = self._open(read_range, fetched, start, length)
                except errors.Corrupted as error:
                    # Reported here, since `read` may find that another copy is faster, and never read this one.
                    self._record_damaged(extent.block, copy, error)
                    continue
                metrics.OPENED.add(1, metrics.AT_HAND)
                return plain
        return None

    def fetch(self, read_range: ReadRange, start: int, length: int, budget: Budget) -> FetchHandle[FetchOutcome] | None:
        """Start to fetch the sealed bytes from the first copy that answers, or join such a fetch.

        A fetch is charged to *budget* by the reader that starts it. Returns None if the budget does not have that many
        bytes now, or the journal does not name the block."""
        facts = self._facts(read_range.extent.block)
        if facts is None:
            return None
        sealed_range = _sealed_range(read_range, start, length)
        charge = sealed_length(length) + FRAME_PLAIN
        return self._join_fetch(sealed_range, facts, self._copies_of(facts), None, budget, charge)

    async def open(
        self, handle: FetchHandle[FetchOutcome], read_range: ReadRange, start: int, length: int
    ) -> memoryview:
        """Return the plain bytes of what *handle* fetched, or those of another copy if the fetched ones are damaged.

        Raises as `read`."""
        fetched = handle.value.fetched
        assert fetched is not None, "no copy could be read"
        try:
            return self._verified(read_range, fetched, handle, start, length)
        except errors.Corrupted:
            return await self.read(read_range, start, length, suspect=fetched.copy)

    async def read(self, read_range: ReadRange, start: int, length: int, suspect: Target | None = None) -> memoryview:
        """Return the plain bytes from whichever copy has them; *suspect* is tried last.

        If no copy has them, and the extent has been moved to another block meanwhile, that block is read. Raises
        `Corrupted` if every copy is lost, and `Unavailable` if one may still have the bytes."""
        failures: list[Exception] = []
        plain = await self._read_copies(read_range, start, length, suspect, failures)
        if plain is None and (moved := self._moved(read_range)) is not None:
            plain = await self._read_copies(moved, start, length, None, failures)
        if plain is not None:
            return plain
        what = f"block {read_range.extent.block.hex()} cannot be read"
        reasons = "; ".join(map(str, failures)) or "the journal does not name it"
        lost = backend_errors.NotFound, backend_errors.Corrupted, errors.Corrupted
        if all(isinstance(failure, lost) for failure in failures):
            raise errors.Corrupted(f"{what}: {reasons}")
        raise errors.Unavailable(f"{what}: {reasons}")

    # ---- fetching ------------------------------------------------------------------------------------------------

    async def _read_copies(
        self, read_range: ReadRange, start: int, length: int, suspect: Target | None, failures: list[Exception]
    ) -> memoryview | None:
        """Return the plain bytes of the first good copy; None if there is none. No copy is read twice.

        The errors of bad copies are appended to *failures*."""
        facts = self._facts(read_range.extent.block)
        if facts is None:
            return None
        untried = list(self._copies_of(facts))
        while untried:
            handle = self._join_fetch(_sealed_range(read_range, start, length), facts, untried, suspect)
            assert handle is not None, "nothing is charged"
            try:
                fetched, failed = await handle.result()
                failures += [failure.error for failure in failed]
                if fetched is None:
                    return None
                try:
                    return self._verified(read_range, fetched, handle, start, length)
                except errors.Corrupted as error:
                    failures.append(error)
                    tried = {fetched.copy.id, *(failure.copy.id for failure in failed)}
                    untried = [copy for copy in untried if copy.id not in tried]
            finally:
                handle.release()
        return None

    def _join_fetch(
        self,
        sealed_range: SealedRange,
        facts: BlockFacts,
        copies: Sequence[Target],
        suspect: Target | None,
        budget: Budget | None = None,
        charge: int = 0,
    ) -> FetchHandle[FetchOutcome] | None:
        """Start or join the fetch of a range from *copies*, *suspect* last. Returns None if *budget* is short."""
        key = (sealed_range, tuple(copy.id for copy in copies), suspect and suspect.id)
        handle = self._fetches.join(key, lambda: self._fetch(sealed_range, facts, copies, suspect), budget, charge)
        if handle is not None and handle.is_joined:
            metrics.JOINED.add()
        return handle

    async def _fetch(
        self, sealed_range: SealedRange, facts: BlockFacts, copies: Sequence[Target], suspect: Target | None
    ) -> FetchOutcome:
        failures: list[CopyFailure] = []
        if len(copies) > 1:
            copies = sorted(self._ordered(copies, sealed_range.length), key=lambda copy: copy == suspect)
        result = await self._hedged.read(copies, sealed_range, failures)
        for copy, error in failures:
            if isinstance(error, backend_errors.NotFound):
                self._report(sealed_range.block, copy, ABSENT)
            elif isinstance(error, backend_errors.Corrupted):
                self._report(sealed_range.block, copy, DAMAGED)
        if result is None:
            return FetchOutcome(None, tuple(failures))
        fetched = Fetched(facts, memoryview(result.sealed), sealed_range.first_frame, result.copy)
        return FetchOutcome(fetched, tuple(failures))

    def _ordered(self, copies: Sequence[Target], size: int) -> list[Target]:
        """Order *copies* by what this process has measured, the best first."""
        by_id = {copy.id: copy for copy in copies}
        return [by_id[each] for each in self._routes.order(by_id, size, self._clock())]

    def _moved(self, read_range: ReadRange) -> ReadRange | None:
        """Return the same range of the extent that its run has now; None if that is the same extent, or none."""
        extent = self._extent_at(read_range.run, read_range.nth) if read_range.run else None
        if extent is None or extent == read_range.extent or extent.length != read_range.extent.length:
            return None
        return read_range._replace(extent=extent, facts=None)

    # ---- verifying -----------------------------------------------------------------------------------------------

    def _verified(
        self, read_range: ReadRange, fetched: Fetched, handle: FetchHandle[FetchOutcome], start: int, length: int
    ) -> memoryview:
        """Return the plain bytes of what was fetched. Raises `Corrupted`, after reporting the copy."""
        try:
            plain = self._open(read_range, fetched, start, length)
        except errors.Corrupted as error:
            handle.invalidate()
            self._record_damaged(read_range.extent.block, fetched.copy, error)
            raise
        metrics.OPENED.add(1, metrics.FETCHED)
        return plain

    def _open(self, read_range: ReadRange, fetched: Fetched, start: int, length: int) -> memoryview:
        """Verify and open the frames that hold the bytes. Raises `Corrupted`."""
        extent = read_range.extent
        facts, sealed, first_frame, _ = fetched
        begins = start // FRAME_PLAIN
        ends = frames_of(start + length)
        opener = self._keys.opener(facts.ring_key, extent.block)
        frames = sealed[(begins - first_frame) * FRAME_SEALED : (ends - first_frame) * FRAME_SEALED]
        plain = opener.open(frames, extent.length, extent.frame, begins, ends - begins)
        skip = start - begins * FRAME_PLAIN
        return plain[skip : skip + length]

    def _record_damaged(self, block_id: bytes, copy: Target, error: errors.Corrupted) -> None:
        metrics.FAILED.add()
        _log.warning("backend %r: %s", copy.backend.name, error)
        self._report(block_id, copy, DAMAGED)

    def _report(self, block_id: bytes, copy: Target, fault: str) -> None:
        """Report a bad copy, if the journal still names it."""
        facts = self._facts(block_id)
        if facts is not None and any(copy.id == each.id for each in self._copies_of(facts)):
            self._reporter.report(block_id, copy.id, fault)


def _sealed_range(read_range: ReadRange, start: int, length: int) -> SealedRange:
    """Return the range of the frames that hold *length* plain bytes from *start* of the extent."""
    span = sealed_span(read_range.extent.offset, read_range.extent.length, start, length)
    return SealedRange(read_range.extent.block, span.start, span.length, span.first)
