"""Bytes that are held for a slow client, asked back while others wait for some.

A body that waits for bytes holds none (`cutting`). One that waits for its client holds what came of its block so far,
and may do so for as long as the client likes: enough of them, and nobody else gets a byte. So while somebody waits,
blocks that have been filling for a good while are sent off as they are. A fast client never sees it: its block is full
by then, and without waiters nobody is asked.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from gateway.blocks.budget import Budget


class Holder(Protocol):
    """A body on its way."""

    def let_go(self, begun_before: float) -> int:
        """Send off the block if its first byte came earlier than *begun_before* (the loop's clock) and the body waits
        for its client. Answers how many bytes come back."""


class Pressure:
    """Watches one budget, and asks while somebody waits there. For one event loop."""

    def __init__(self, budget: Budget, patience_seconds: float) -> None:
        self._budget = budget
        self._patience = patience_seconds
        self._holders: dict[Holder, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        budget.on_wait = self._watch

    def join(self, holder: Holder) -> None:
        """*holder* may be asked, until it leaves."""
        self._holders[holder] = None

    def leave(self, holder: Holder) -> None:
        """*holder* holds nothing any more."""
        self._holders.pop(holder, None)

    def _watch(self) -> None:
        if self._timer is None:
            self._ask()

    def _ask(self) -> None:
        """Ask the oldest first, for no more than is waited for; and again after a while, until nobody waits."""
        loop = asyncio.get_running_loop()
        wanted = self._budget.wanted
        for holder in list(self._holders):
            if wanted <= 0:
                break
            wanted -= holder.let_go(loop.time() - self._patience)
        self._timer = loop.call_later(self._patience / 4, self._again) if self._budget.wanted else None

    def _again(self) -> None:
        self._timer = None
        self._ask()
