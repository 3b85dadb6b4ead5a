"""What could go: what waits to be taken apart, what is dead, what nobody names. `survey` says so, `collect` does it.

The workers do all of it by themselves, but for orphans of sessions that nobody knows (such as a restored site finds):
those go only when somebody asks. While another copy of this journal may go on (`gateway/journal/server/server.py`),
sessions that nobody knows here may be known there: so long their blocks stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from backends import errors as backend_errors
from backends.base import Backend
from gateway.blocks.commands import NoteStrays
from gateway.blocks.maintenance.inventory import (
    DEFAULT_LIMITS,
    BlockState,
    InventoryItem,
    ListingLimits,
    take_inventory,
)
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Progress, Tables, WorkerJournal, no_progress
from gateway.blocks.types import block_id_of
from gateway.journal.site_clock import SiteClock, moments
from gateway.journal.whereabouts import FORK_PIN
from gateway.timing import Clock, Timing

TOLD_EVERY = 1_000
HELD_BACK_TRIES = 8
GOES = (BlockState.DEAD, BlockState.UNNAMED, BlockState.ORPHAN, BlockState.STRAY)


@dataclass(frozen=True)
class Waste:
    """What could go, over all backends."""

    freed: int
    """Files, parts and uploads that wait to be taken apart; the blocks behind them are not counted below."""
    blocks: Mapping[BlockState, int]
    """How many copies are dead, unnamed, orphans; and in flight, which stay."""
    bytes: Mapping[BlockState, int]
    """Sealed bytes of the same."""
    sparse_blocks: int
    """Packs that are to be written anew, and"""
    sparse_bytes: int
    """the plain bytes that this would free."""
    unchecked: Mapping[str, str] = field(default_factory=dict)
    """Backends that could not be looked at to the end, and why; what lies there is not counted."""


async def survey(
    store: Tables,
    backends: Mapping[int, Backend],
    progress: Progress = no_progress,
    limits: ListingLimits = DEFAULT_LIMITS,
) -> Waste:
    """Look at everything and change nothing. *limits*: of each backend's listing."""
    return await _survey(store, backends, progress, limits, {})


async def _survey(
    store: Tables,
    backends: Mapping[int, Backend],
    progress: Progress,
    limits: ListingLimits,
    unchecked: Mapping[str, str],
) -> Waste:
    """The same without the backends that are named in *unchecked*."""
    blocks: Counter[BlockState] = Counter()
    sizes: Counter[BlockState] = Counter()

    async def count(place: int, item: InventoryItem) -> None:
        if item.state in GOES or item.state is BlockState.IN_FLIGHT:
            blocks[item.state] += 1
            sizes[item.state] += item.size

    left = {place: backend for place, backend in backends.items() if backend.name not in unchecked}
    failed = await _each_item(store, left, count, progress, limits)
    ((freed,),) = store.query("SELECT (SELECT count(*) FROM freed) + (SELECT coalesce(sum(uploads), 0) FROM gone)")
    ((sparse, dead),) = store.query(
        "SELECT count(*), coalesce(sum(plain - live), 0) FROM block WHERE died = 0 AND live * 5 < plain * 4"
    )
    return Waste(freed, blocks, sizes, sparse, dead, {**unchecked, **failed})


async def _each_item(
    store: Tables,
    backends: Mapping[int, Backend],
    handle: Callable[[int, InventoryItem], Awaitable[None]],
    progress: Progress,
    limits: ListingLimits,
) -> dict[str, str]:
    """Call *handle* with each item of each backend's inventory. Returns the backends with which that failed, and why;
    the others are walked all the same."""
    failed: dict[str, str] = {}
    done = 0
    for place, backend in backends.items():
        try:
            async for item in take_inventory(store, place, backend, limits):
                await handle(place, item)
                done += 1
                if done % TOLD_EVERY == 0:
                    progress(f"blocks on {backend.name}", done, 0)
        except backend_errors.BackendError as error:
            failed[backend.name] = str(error)
    return failed


def in_fork_grace(store: Tables, clock: Clock) -> bool:
    """Whether the grace of a start that may be a copy's, or of a takeover, has not passed yet."""
    pinned = "SELECT 1 FROM pin WHERE substr(id, 1, ?) = ? AND until_ns > ? LIMIT 1"
    now_ns = SiteClock(store.query, moments(clock)).now_ns()
    return bool(store.query(pinned, (len(FORK_PIN), FORK_PIN, now_ns)))


async def collect(
    store: Tables,
    journal: WorkerJournal,
    backends: Mapping[int, Backend],
    workers: Iterable[Worker],
    timing: Timing,
    progress: Progress = no_progress,
    *,
    refresh: Callable[[], Awaitable[None]] | None = None,
    limits: ListingLimits = DEFAULT_LIMITS,
) -> Waste:
    """Let *workers* do what they find to do now, delete orphans, and answer what is left. Strays are left to the
    keeper, who may be making them this moment; it hears of those that it did not know. What somebody may still read
    stays; a moment is given to readers who are done, and have yet to say so. *refresh*: stamps the backends with how
    far the journal has come, which deletions wait for."""
    workers = list(workers)
    steps = 0
    for _ in range(HELD_BACK_TRIES):
        while any([await worker.step() for worker in workers]):
            steps += 1
            progress("steps", steps, 0)
        if not any(worker.held_back for worker in workers):
            break
        await timing.clock.sleep(timing.workers.held_back_seconds)
        if refresh is not None:
            await refresh()
    spared = in_fork_grace(store, timing.clock)

    async def let_go(place: int, item: InventoryItem) -> None:
        if item.state is BlockState.ORPHAN:
            if not spared:
                await backends[place].delete(item.key)
        elif item.state is BlockState.STRAY and (block := block_id_of(item.key)) is not None:
            await journal.send(NoteStrays(((block, place),)))

    failed = await _each_item(store, backends, let_go, progress, limits)
    return await _survey(store, backends, progress, limits, failed)
