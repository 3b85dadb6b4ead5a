"""The check of the inventories of all backends: each block that the journal names is present with its size, and there
is nothing else.

A backend that cannot be reached is one finding, whatever the journal names there. Nothing is known about these blocks;
that is not the same as knowing that they are damaged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from backends import errors as backend_errors
from backends.base import Backend
from gateway.blocks.fsck.findings import FsckReport, Severity
from gateway.blocks.fsck.unreachable import Unreachable
from gateway.blocks.maintenance.inventory import (
    BlockState,
    InventoryItem,
    ListingLimits,
    UnusableListing,
    sets_containing,
    take_inventory,
)
from gateway.blocks.protocols import Progress, Tables
from gateway.blocks.types import ABSENT, DAMAGED, block_id_of

PROGRESS_EVERY = 1_000
"""Blocks between two calls of the progress."""

_FINDINGS = {
    BlockState.MISSING: (Severity.WRONG, "block-missing", "the journal names it, and the backend does not have it"),
    BlockState.WRONG_SIZE: (Severity.WRONG, "block-size", "it has {0.size} bytes, and was stored with {0.named_size}"),
    BlockState.UNNAMED: (Severity.WASTE, "block-unnamed", "its session ended without naming its {0.size} bytes"),
    BlockState.STRAY: (Severity.WASTE, "block-stray", "the block is held by other backends, and no work is under way"),
    BlockState.ORPHAN: (Severity.WASTE, "block-orphan", "no row names its {0.size} bytes, and its session is unknown"),
    BlockState.STRANGE: (Severity.WASTE, "key-strange", "it is not a block's key, and has {0.size} bytes"),
}
"""The findings of states: (severity, kind, sentence). The other states are as they should be."""
_TO_MEND = {BlockState.MISSING: ABSENT, BlockState.WRONG_SIZE: DAMAGED}

Mend = Callable[[bytes, int, str], Awaitable[object]]
"""Receives a block id, the id of a backend that should hold the block, and what its copy there is: `ABSENT` or
`DAMAGED`."""


class InventoryChecker:
    """Takes the inventory of all backends."""

    def __init__(
        self,
        store: Tables,
        backends: Mapping[int, Backend],
        report: FsckReport,
        mend: Mend | None,
        limits: ListingLimits,
        *,
        is_quick: bool,
    ) -> None:
        """*is_quick*: blocks are not read afterwards."""
        self._store = store
        self._backends = backends
        self._report = report
        self._mend = mend
        self._limits = limits
        self._is_quick = is_quick
        self._last_checked = b""  # the last block of the backend that is being checked

    async def check(self, progress: Progress) -> dict[int, Unreachable]:
        """Check all backends. Returns those that could not be reached, by id."""
        self._check_sets()
        unreachable: dict[int, Unreachable] = {}
        for backend_id, backend in list(self._backends.items()):
            self._last_checked = b""
            try:
                await self._check_backend(backend_id, backend, progress)
            except UnusableListing as error:  # its blocks can be read all the same
                self._report_unusable(backend_id, backend.name, str(error))
            except backend_errors.BackendError as error:
                after = self._last_checked if self._is_quick else b""
                unreachable[backend_id] = Unreachable(str(error), self._count_named(backend_id, after))
        return unreachable

    def report_unreachable(self, unreachable: Mapping[int, Unreachable]) -> None:
        """Add one finding for each of these backends."""
        for backend_id, each in unreachable.items():
            self._report.unchecked += each.blocks
            self._report.add(
                Severity.UNCHECKED,
                "backend-unreachable",
                self._backends[backend_id].name,
                f"unreachable backend: {each.blocks} blocks could not be checked: {each.why}",
            )

    def _check_sets(self) -> None:
        """Check that every backend that holds blocks is among those of the check, unless it is lost."""
        for name, backend_id, is_lost in self._store.query("SELECT name, id, lost FROM backend"):
            if backend_id not in self._backends and not is_lost:
                sets = sets_containing(self._store, backend_id)
                marks = ", ".join("?" * len(sets))
                statement = f"SELECT 1 FROM block WHERE backends IN ({marks}) AND died = 0 LIMIT 1"
                if self._store.query(statement, tuple(sets)):
                    what = "it holds blocks, and the config does not name it"
                    self._report.add(Severity.WRONG, "backend-absent", name, what)

    async def _check_backend(self, backend_id: int, backend: Backend, progress: Progress) -> None:
        done = 0
        async for item in take_inventory(self._store, backend_id, backend, self._limits):
            block_id = block_id_of(item.key)
            if item.state is not BlockState.STRAY or not self._has_work(block_id):
                self._add_item(item, backend.name)
            self._last_checked = block_id or self._last_checked
            if self._mend is not None and item.state in _TO_MEND and block_id is not None:
                await self._mend(block_id, backend_id, _TO_MEND[item.state])
                self._report.to_mend.add((block_id, backend_id))
            done += 1
            if done % PROGRESS_EVERY == 0:
                progress(f"blocks on {backend.name}", done, 0)
        progress(f"blocks on {backend.name}", done, done)

    def _add_item(self, item: InventoryItem, backend_name: str) -> None:
        """Count one item of the inventory, and add its finding."""
        self._report.counted["blocks"] += 1
        self._report.counted["bytes"] += item.size
        if item.state is BlockState.IN_FLIGHT:
            self._report.counted["in_flight"] += 1
        if item.state in _FINDINGS:
            severity, kind, sentence = _FINDINGS[item.state]
            self._report.add(severity, kind, f"{item.key} on {backend_name}", sentence.format(item))

    def _has_work(self, block_id: bytes | None) -> bool:
        """Return whether the mover makes or deletes copies of the block."""
        return bool(self._store.query("SELECT 1 FROM work WHERE block = ? AND strays <> x''", (block_id,)))

    def _count_named(self, backend_id: int, after: bytes) -> int:
        """Return how many living blocks the journal names on the backend, with ids greater than *after*."""
        sets = sets_containing(self._store, backend_id)
        marks = ", ".join("?" * len(sets))
        statement = f"SELECT count(*) FROM block WHERE id > ? AND backends IN ({marks}) AND died = 0"
        ((count,),) = self._store.query(statement, (after, *sets))
        return int(count)

    def _report_unusable(self, backend_id: int, name: str, why: str) -> None:
        """Add one finding for a listing that was given up."""
        blocks = self._count_named(backend_id, self._last_checked)
        self._report.unchecked += blocks if self._is_quick else 0
        what = f"{blocks} blocks could not be looked for in its listing: {why}"
        self._report.add(Severity.UNCHECKED, "listing-unusable", name, what)
