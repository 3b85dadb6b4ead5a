"""Copies of a block: asking one after the other until one answers what was sealed.

What comes back is verified before anybody sees it, so an absent, torn, swapped or rotten copy costs only the way to
the next one. Each such step is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from backends import errors as backend_errors
from backends.base import Backend, Buffer
from gateway import errors
from gateway.blocks import counting
from gateway.blocks.values import BlockFacts, FactsOf, ReadOrder, Want, block_key
from gateway.crypto.sealing import FRAME_PLAIN, FRAME_SEALED, TAG_BYTES, BlockKeys, frames_of, sealed_span
from gateway.journal.packed import Extent

_log = logging.getLogger(__name__)

ExtentAt = Callable[[int, int], Extent | None]
"""Where the extent of (run, which of its extents) lies by now; None if the run is gone."""


class Fetched(NamedTuple):
    """Sealed bytes of a copy, not verified yet."""

    want: Want
    facts: BlockFacts
    sealed: memoryview
    first: int
    """Which of the extent's frames stands first in them."""
    backend: Backend


class Copies:
    """Reads stretches of extents from whichever copy answers."""

    def __init__(self, facts: FactsOf, order: ReadOrder, keys: BlockKeys, extent_at: ExtentAt) -> None:
        self._facts = facts
        self._order = order
        self._keys = keys
        self._extent_at = extent_at

    def read_now(self, want: Want, start: int, length: int) -> Buffer | None:
        """*length* plain bytes from *start* on, inside the extent, if they are at hand without waiting."""
        extent = want.extent
        facts = want.facts or self._facts(extent.block)
        if facts is None:
            return None
        key = block_key(extent.block)
        one = length == extent.length <= FRAME_PLAIN  # as most small objects are: all of one frame
        span = None if one else sealed_span(extent.offset, extent.length, start, length)
        for backend in self._order(facts):
            if span is None:
                sealed = backend.get_now(key, extent.offset, length + TAG_BYTES)
            else:
                sealed = backend.get_now(key, span.start, span.length)
            if sealed is not None:
                try:
                    if span is None:
                        plain = self._keys.opener(facts.ring_key, extent.block).open_one(sealed, length, extent.frame)
                    else:
                        plain = self._open(want, facts, memoryview(sealed), span.first, start, length)
                except errors.Damaged:
                    return None  # `read` meets it again, says so, and goes on to the next copy
                counting.OPENED.add(1, counting.AT_HAND)
                return plain
        return None

    async def fetch(self, want: Want, start: int, length: int) -> Fetched | None:
        """The sealed bytes of a stretch from the first copy that answers at all; None if none does."""
        facts = self._facts(want.extent.block)
        if facts is None:
            return None
        span = sealed_span(want.extent.offset, want.extent.length, start, length)
        for backend in self._order(facts):
            try:
                sealed = await backend.get(block_key(want.extent.block), span.start, span.length)
            except backend_errors.BackendError as error:
                counting.FAILED.add()
                _log.warning("a copy does not answer: %s", error)
            else:
                return Fetched(want, facts, memoryview(sealed), span.first, backend)
        return None

    async def open(self, fetched: Fetched, start: int, length: int) -> memoryview:
        """Plain bytes of what was fetched, or, where it is not what was sealed, of another copy."""
        want, facts, sealed, first, backend = fetched
        try:
            plain = self._open(want, facts, sealed, first, start, length)
        except errors.Damaged as error:
            counting.FAILED.add()
            _log.warning("backend %r: %s", backend.name, error)
        else:
            counting.OPENED.add(1, counting.FETCHED)
            return plain
        return await self.read(want, start, length, suspect=backend)

    async def read(self, want: Want, start: int, length: int, suspect: Backend | None = None) -> memoryview:
        """*length* plain bytes from *start* on, inside the extent, from whichever copy has them; *suspect* is asked
        last. Raises `Damaged` if every copy is lost, `Unavailable` if one may still have them."""
        failures: list[Exception] = []
        found = await self._from_copies(want, start, length, suspect, failures)
        if found is None and (moved := self._moved(want)) is not None:
            found = await self._from_copies(moved, start, length, None, failures)
        if found is not None:
            return found
        what = f"block {want.extent.block.hex()} cannot be read"
        reasons = "; ".join(map(str, failures)) or "the journal does not name it"
        lost = backend_errors.NotFound, backend_errors.Damaged, errors.Damaged
        if all(isinstance(failure, lost) for failure in failures):
            raise errors.Damaged(f"{what}: {reasons}")
        raise errors.Unavailable(f"{what}: {reasons}")

    async def _from_copies(
        self, want: Want, start: int, length: int, suspect: Backend | None, failures: list[Exception]
    ) -> memoryview | None:
        facts = self._facts(want.extent.block)
        if facts is None:
            return None
        span = sealed_span(want.extent.offset, want.extent.length, start, length)
        for backend in sorted(self._order(facts), key=lambda each: each is suspect):
            try:
                sealed = await backend.get(block_key(want.extent.block), span.start, span.length)
                plain = self._open(want, facts, memoryview(sealed), span.first, start, length)
            except (backend_errors.BackendError, errors.Damaged) as error:
                counting.FAILED.add()
                _log.warning("backend %r: %s", backend.name, error)
                failures.append(error)
            else:
                counting.OPENED.add(1, counting.FETCHED)
                return plain
        return None

    def _moved(self, want: Want) -> Want | None:
        extent = self._extent_at(want.run, want.nth) if want.run else None
        if extent is None or extent == want.extent or extent.length != want.extent.length:
            return None
        return want._replace(extent=extent, facts=None)

    def _open(
        self, want: Want, facts: BlockFacts, sealed: memoryview, first: int, start: int, length: int
    ) -> memoryview:
        """Verify and open the frames that hold the stretch, out of *sealed*, which begins with the *first*-th."""
        extent = want.extent
        begins = start // FRAME_PLAIN
        ends = frames_of(start + length)
        opener = self._keys.opener(facts.ring_key, extent.block)
        frames = sealed[(begins - first) * FRAME_SEALED : (ends - first) * FRAME_SEALED]
        plain = opener.open(frames, extent.length, extent.frame, begins, ends - begins)
        skip = start - begins * FRAME_PLAIN
        return plain[skip : skip + length]
