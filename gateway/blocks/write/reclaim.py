"""Reclaiming memory from bodies that wait for their clients, while other bodies wait for memory.

A body that waits for memory holds none (`chunker.py`). A body that waits for its client holds the bytes that arrived of
its current block, for as long as the client likes: enough slow clients would keep everybody else from writing. So while
somebody waits for the budget, blocks that have been filling for some time are stored as they are. A fast client is not
affected, since its blocks are full by then; and without waiters nothing is reclaimed.

Storing a block early seals up to 1 MiB of it on the event loop, so at most one block is reclaimed in a turn of the
loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Protocol

from gateway.blocks.budget import Budget

_log = logging.getLogger(__name__)


class Reclaimable(Protocol):
    """A body that holds bytes of a budget."""

    def reclaim(self, begun_before: float) -> int:
        """Store the current block early if its first byte came before *begun_before* (the event loop's clock) and the
        body waits for its client. Returns how many bytes that gives back to the budget."""


class Reclaimer:
    """Watches one budget, and reclaims bytes while somebody waits for it. For one event loop."""

    def __init__(self, budget: Budget, fill_seconds: float) -> None:
        """*fill_seconds*: how long a block may fill before it is reclaimed."""
        self._budget = budget
        self._fill_seconds = fill_seconds
        self._bodies: dict[Reclaimable, None] = {}  # in the order in which they came
        self._round: Iterator[Reclaimable] = iter(())
        self._missing = 0  # bytes to reclaim in this round
        self._timer: asyncio.Handle | None = None
        budget.on_wait = self._on_wait

    def add(self, body: Reclaimable) -> None:
        """Reclaim from *body* until it is removed."""
        self._bodies[body] = None

    def remove(self, body: Reclaimable) -> None:
        """*body* holds no bytes any more."""
        self._bodies.pop(body, None)

    def _on_wait(self) -> None:
        if self._timer is None:
            self._start_round()

    def _start_round(self) -> None:
        """Reclaim the bytes that are waited for now, from the oldest body on. Rounds repeat until nobody waits."""
        self._round, self._missing = iter(list(self._bodies)), self._budget.waiting_bytes
        self._reclaim_next()

    def _reclaim_next(self) -> None:
        """Reclaim from the next body that has bytes to give; go on with the others in the loop's next turn."""
        loop = asyncio.get_running_loop()
        begun_before = loop.time() - self._fill_seconds
        while self._missing > 0 and (body := next(self._round, None)) is not None:
            reclaimed = self._reclaim(body, begun_before)
            if reclaimed:
                self._missing -= reclaimed
                self._timer = loop.call_soon(self._reclaim_next)
                return
        waits = bool(self._budget.waiting_bytes)
        self._timer = loop.call_later(self._fill_seconds / 4, self._start_round) if waits else None

    def _reclaim(self, body: Reclaimable, begun_before: float) -> int:
        """Reclaim from one body. Its errors are logged, and the other bodies are tried all the same."""
        if body not in self._bodies:
            return 0
        try:
            return body.reclaim(begun_before)
        except Exception:  # noqa: BLE001 (logged, and the other bodies are tried)
            _log.exception("the bytes of a body could not be reclaimed")
            return 0
