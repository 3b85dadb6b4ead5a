"""The check of a site: its tables against themselves, and against the bytes on every backend.

Quick: every record of the journal is what was written (`fsck_journal`), every count is counted anew (`fsck_tables`),
every named block exists in its size on each of its backends (`inventory`). With `read`, every copy of every block is
read, its checksum compared, and every frame of what lives in it opened: what a client would read, each copy for itself.
With `replay`, all tables are compared with a replay of the journal.

Whoever mends copies is told, if that is asked for, which ones are absent or damaged.

A backend that cannot be reached is one finding, whatever lies there: nothing is known of those blocks, which is
something else than knowing that they are damaged.

The site may be in use. What is found wrong is looked at once more before it is reported, since a block may have died
meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from backends import errors as backend_errors
from backends.base import Backend
from gateway import errors
from gateway.blocks.fsck.findings import FsckReport, Severity
from gateway.blocks.fsck.journal_check import check_journal
from gateway.blocks.fsck.table_check import check_tables
from gateway.blocks.maintenance.inventory import (
    DEFAULT_LIMITS,
    BlockState,
    InventoryItem,
    ListingLimits,
    UnusableListing,
    sets_containing,
    take_inventory,
)
from gateway.blocks.protocols import Progress, Tables, no_progress
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.types import ABSENT, DAMAGED, block_id_of, block_path
from gateway.blocks.verify import verify_copy
from gateway.crypto.sealing import BlockKeys

TOLD_EVERY = 1_000
"""Blocks between two words on the progress."""
READ_AT_ONCE = 4
UNREACHABLE_AFTER = 8
"""So many copies in a row could not be read: their backend is not asked again."""

_SAYS = {
    BlockState.MISSING: (Severity.WRONG, "block-missing", "the journal names it, and it is not there"),
    BlockState.WRONG_SIZE: (Severity.WRONG, "block-size", "it has {0.size} bytes, and was stored with {0.named_size}"),
    BlockState.UNNAMED: (Severity.WASTE, "block-unnamed", "its session has ended without naming its {0.size} bytes"),
    BlockState.STRAY: (Severity.WASTE, "block-stray", "the block lies elsewhere, and nobody makes or drops this copy"),
    BlockState.ORPHAN: (
        Severity.WASTE,
        "block-orphan",
        "nobody names its {0.size} bytes, and nobody knows its session",
    ),
    BlockState.STRANGE: (Severity.WASTE, "key-strange", "it is no block's key, and has {0.size} bytes"),
}
"""What is said of each state; the others are as they should be."""
_TO_MEND = {BlockState.MISSING: ABSENT, BlockState.WRONG_SIZE: DAMAGED}

Mend = Callable[[bytes, int, str], Awaitable[object]]
"""Told a block, the id of a backend that should hold it, and what its copy there is: absent or damaged."""


async def check(
    path: Path,
    store: Tables,
    backends: Mapping[int, Backend],
    *,
    read: BlockKeys | None = None,
    replay: bool = False,
    mend: Mend | None = None,
    progress: Progress = no_progress,
    limits: ListingLimits = DEFAULT_LIMITS,
) -> FsckReport:
    """Check the site whose tables lie at *path* and are read through *store*. *backends*: all of the site's, by id.
    *read*: the keys to open every frame with; None for the quick check. *replay*: compare the tables with a replay of
    the journal. *mend* is told of each copy that is no good. *limits*: of each backend's listing."""
    report = FsckReport()
    await _in_thread(lambda told: check_journal(path, report, told, replay=replay), progress)
    await _in_thread(lambda told: check_tables(path, report, partial(told, "tables")), progress)
    _check_sets(store, backends, report)
    unreachable: dict[int, Unreachable] = {}
    for place, backend in list(backends.items()):
        checked = Checked()
        try:
            await _check_places(store, place, backend, report, mend, progress, checked, limits)
        except UnusableListing as error:  # its blocks can be read all the same
            _tell_unusable(
                backend.name, str(error), _named_behind(store, place, checked.until), read is not None, report
            )
        except backend_errors.BackendError as error:
            after = checked.until if read is None else b""
            unreachable[place] = Unreachable(str(error), _named_behind(store, place, after))
    if read is not None:
        await _Frames(store, backends, read, report, mend, unreachable).check(progress)
    for place, each in unreachable.items():
        _tell_unreachable(backends[place].name, each, report)
    return report


async def _in_thread(check: Callable[[Progress], None], progress: Progress) -> None:
    """Run *check* in a thread, and hand on what it tells. Once this is cancelled, the check ends when it next tells."""
    loop = asyncio.get_running_loop()
    cancelled = threading.Event()

    def told(what: str, done: int, total: int) -> None:
        if cancelled.is_set():
            raise asyncio.CancelledError
        loop.call_soon_threadsafe(progress, what, done, total)

    try:
        await asyncio.to_thread(check, told)
    finally:
        cancelled.set()


@dataclass
class Checked:
    """How far the inventory of a backend has come."""

    until: bytes = b""
    """The last block that was looked at."""


@dataclass
class Unreachable:
    """A backend that could not be asked for some of its blocks."""

    why: str
    blocks: int = 0
    """How many of those that the journal names there."""
    in_a_row: int = UNREACHABLE_AFTER
    """How many were asked for in vain, one after the other."""

    @property
    def given_up(self) -> bool:
        """It is not asked again."""
        return self.in_a_row >= UNREACHABLE_AFTER


def _named_behind(store: Tables, place: int, after: bytes) -> int:
    """How many live blocks the journal names on the backend, behind *after*."""
    sets = sets_containing(store, place)
    marks = ", ".join("?" * len(sets))
    rows = store.query(
        f"SELECT count(*) FROM block WHERE id > ? AND backends IN ({marks}) AND died = 0", (after, *sets)
    )
    return int(rows[0][0])


def _tell_unreachable(name: str, found: Unreachable, report: FsckReport) -> None:
    """One finding for all blocks of a backend: that nothing is known of them says nothing against them."""
    report.unchecked += found.blocks
    report.add(
        Severity.UNCHECKED,
        "backend-unreachable",
        name,
        f"unreachable backend: {found.blocks} blocks could not be checked: {found.why}",
    )


def _tell_unusable(name: str, why: str, behind: int, read: bool, report: FsckReport) -> None:
    """One finding for a listing that was given up; *behind*: so many blocks that the journal names come after that."""
    report.unchecked += 0 if read else behind
    what = f"{behind} blocks could not be looked for in its listing: {why}"
    report.add(Severity.UNCHECKED, "listing-unusable", name, what)


def _check_sets(store: Tables, backends: Mapping[int, Backend], report: FsckReport) -> None:
    """Whether every backend that holds blocks is there to be looked at, but for those that are lost."""
    for name, place, lost in store.query("SELECT name, id, lost FROM backend"):
        if place not in backends and not lost:
            sets = sets_containing(store, place)
            marks = ", ".join("?" * len(sets))
            if store.query(f"SELECT 1 FROM block WHERE backends IN ({marks}) AND died = 0 LIMIT 1", tuple(sets)):
                report.add(Severity.WRONG, "backend-absent", name, "blocks lie there, and the config does not name it")


async def _check_places(
    store: Tables,
    place: int,
    backend: Backend,
    report: FsckReport,
    mend: Mend | None,
    progress: Progress,
    checked: Checked,
    limits: ListingLimits,
) -> None:
    done = 0
    async for item in take_inventory(store, place, backend, limits):
        if item.state is not BlockState.STRAY or not _worked_on(store, item.key):
            _judge(item, backend.name, report)
        block = block_id_of(item.key)
        checked.until = block or checked.until
        if mend is not None and item.state in _TO_MEND and block is not None:
            await mend(block, place, _TO_MEND[item.state])
            report.to_mend.add((block, place))
        done += 1
        if done % TOLD_EVERY == 0:
            progress(f"blocks on {backend.name}", done, 0)
    progress(f"blocks on {backend.name}", done, done)


def _worked_on(store: Tables, key: str) -> bool:
    """Whether somebody makes or drops copies of that block."""
    return bool(store.query("SELECT 1 FROM work WHERE block = ? AND strays <> x''", (block_id_of(key),)))


def _judge(item: InventoryItem, backend: str, report: FsckReport) -> None:
    report.counted["blocks"] += 1
    report.counted["bytes"] += item.size
    if item.state is BlockState.IN_FLIGHT:
        report.counted["in_flight"] += 1
    if item.state in _SAYS:
        severity, kind, sentence = _SAYS[item.state]
        report.add(severity, kind, f"{item.key} on {backend}", sentence.format(item))


class _Frames:
    """Reads every copy of every block that lives."""

    def __init__(
        self,
        store: Tables,
        backends: Mapping[int, Backend],
        keys: BlockKeys,
        report: FsckReport,
        mend: Mend | None,
        unreachable: dict[int, Unreachable],
    ) -> None:
        """*unreachable*: backends that the inventory could not reach; others are added."""
        self._store = store
        self._backends = backends
        self._keys = keys
        self._report = report
        self._mend = mend
        self._unreachable = unreachable
        self._counted = frozenset(unreachable)
        self._lookup = Lookup(store, backends)
        self._slots = asyncio.Semaphore(READ_AT_ONCE)

    async def check(self, progress: Progress) -> None:
        (total,) = self._store.query("SELECT count(*) FROM block WHERE died = 0")[0]
        after, done = b"", 0
        while rows := self._store.query(
            "SELECT id, ring_key, crc32c, backends FROM block WHERE id > ? ORDER BY id LIMIT 64", (after,)
        ):
            await asyncio.gather(*(self._check_block(*row) for row in rows))
            after, done = rows[-1][0], done + len(rows)
            progress("frames", min(done, total), total)

    async def _check_block(self, block: bytes, ring_key: int, crc32c: int, set_id: int) -> None:
        for place in self._lookup.members(set_id):
            if place in self._counted:
                continue  # its blocks are counted already
            async with self._slots:
                try:
                    wrong = await self._look(block, ring_key, crc32c, place)
                except (backend_errors.NotFound, KeyError):
                    continue  # the inventory has said so
                except (backend_errors.Corrupted, errors.Corrupted) as error:
                    wrong = str(error)
                except backend_errors.BackendError as error:
                    self._could_not(place, error)
                    continue
            if wrong and self._lives(block):
                where = f"{block_path(block)} on {self._backends[place].name}"
                self._report.add(Severity.WRONG, "block-damaged", where, wrong)
                if self._mend is not None:
                    await self._mend(block, place, DAMAGED)
                    self._report.to_mend.add((block, place))

    def _could_not(self, place: int, error: backend_errors.BackendError) -> None:
        """A copy could not be read; says nothing against it."""
        found = self._unreachable.setdefault(place, Unreachable(str(error), in_a_row=0))
        found.blocks += 1
        found.in_a_row += 1

    async def _look(self, block: bytes, ring_key: int, crc32c: int, place: int) -> str:
        """What is wrong with this copy, nothing if it is whole. May raise it as well."""
        known = self._unreachable.get(place)
        if known is not None and known.given_up:
            raise backend_errors.Unavailable(known.why)
        sealed = await self._backends[place].get(block_path(block))
        if known is not None:
            known.in_a_row = 0
        self._report.counted["frames"] += await verify_copy(self._store, self._keys, block, ring_key, crc32c, sealed)
        return ""

    def _lives(self, block: bytes) -> bool:
        return bool(self._store.query("SELECT 1 FROM block WHERE id = ? AND died = 0", (block,)))
