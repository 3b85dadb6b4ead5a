"""What a reader says of bad copies reaches the journal, also from a reader that ends at once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from gateway.journal.client import Journal
from gateway.site.storage.suspect_reporter import SuspectReporter
from gateway.timing import Timing, parse_timing

BLOCK = b"b" * 24


class Slow:
    """A journal that answers when it is let."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.heard: list[Any] = []
        self.ended = 0

    async def send(self, command: Any) -> bool:
        try:
            await self.may_answer.wait()
            self.heard.append(command)
        finally:
            self.ended += 1
        return True


async def test_closing_waits_for_what_is_on_its_way() -> None:
    journal = Slow()
    tell = SuspectReporter(cast("Journal", journal), Timing())
    tell(BLOCK, 7, "absent")
    asyncio.get_running_loop().call_later(0.05, journal.may_answer.set)
    await tell.close()
    assert [(each.block, each.backend, each.word) for each in journal.heard] == [(BLOCK, 7, "absent")]


async def test_closing_leaves_nothing_behind_where_nobody_answers() -> None:
    journal = Slow()
    tell = SuspectReporter(cast("Journal", journal), parse_timing("backends.report_close_seconds=0.01"))
    tell(BLOCK, 7, "absent")
    tell(BLOCK, 8, "damaged")
    await asyncio.sleep(0)
    await tell.close()
    assert (journal.heard, journal.ended) == ([], 2)
