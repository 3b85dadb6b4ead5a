"""Bytes that are held for a slow client, asked back while others wait for some.

A body that waits for bytes holds none (`cutting`). One that waits for its client holds what came of its block so far,
and may do so for as long as the client likes: enough of them, and nobody else gets a byte. So while somebody waits,
blocks that have been filling for a good while are sent off as they are. A fast client never sees it: its block is full
by then, and without waiters nobody is asked.

Sending a block off seals what it holds, up to a MiB of it, so one block goes a turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Protocol

from gateway.blocks.budget import Budget

_log = logging.getLogger(__name__)


class Reclaimable(Protocol):
    """A body on its way."""

    def let_go(self, begun_before: float) -> int:
        """Send off the block if its first byte came earlier than *begun_before* (the loop's clock) and the body waits
        for its client. Answers how many bytes come back."""


class Reclaimer:
    """Watches one budget, and asks while somebody waits there. For one event loop."""

    def __init__(self, budget: Budget, patience_seconds: float) -> None:
        self._budget = budget
        self._patience = patience_seconds
        self._holders: dict[Reclaimable, None] = {}
        self._round: Iterator[Reclaimable] = iter(())
        self._wanted = 0
        self._timer: asyncio.Handle | None = None
        budget.on_wait = self._watch

    def join(self, holder: Reclaimable) -> None:
        """*holder* may be asked, until it leaves."""
        self._holders[holder] = None

    def leave(self, holder: Reclaimable) -> None:
        """*holder* holds nothing any more."""
        self._holders.pop(holder, None)

    def _watch(self) -> None:
        if self._timer is None:
            self._begin()

    def _begin(self) -> None:
        """Ask for what is waited for now, the oldest first; and again after a while, until nobody waits."""
        self._round, self._wanted = iter(list(self._holders)), self._budget.waiting_bytes
        self._ask()

    def _ask(self) -> None:
        """Go on until somebody lets go of something; with the rest in the loop's next turn."""
        loop = asyncio.get_running_loop()
        before = loop.time() - self._patience
        while self._wanted > 0 and (holder := next(self._round, None)) is not None:
            given = self._let_go(holder, before)
            if given:
                self._wanted -= given
                self._timer = loop.call_soon(self._ask)
                return
        self._timer = loop.call_later(self._patience / 4, self._begin) if self._budget.waiting_bytes else None

    def _let_go(self, holder: Reclaimable, before: float) -> int:
        """What is wrong with one of them is no reason to ask the others no more."""
        if holder not in self._holders:
            return 0
        try:
            return holder.let_go(before)
        except Exception:  # noqa: BLE001 (it is logged, and the others are asked)
            _log.exception("a body could not let go of its bytes")
            return 0
