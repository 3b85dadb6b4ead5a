"""Garbage: what waits to be released, what is dead, and what no row names. `survey` counts it, `collect` deletes it.

The workers delete all of it by themselves, except orphans: blocks of sessions that the journal does not know, such as a
restored site finds. Those are deleted only when an operator asks for it. While another copy of this journal may still
be in use (`gateway/journal/server/server.py`), that copy may know these sessions, so their blocks stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from backends import errors as backend_errors
from backends.base import Backend
from gateway.blocks.commands.block_copies import NoteStrays
from gateway.blocks.maintenance.fork_grace import in_fork_grace
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
from gateway.journal.site_clock import SiteClock, clock_reader
from gateway.timing import Timing

PROGRESS_EVERY = 1_000
"""Blocks between two calls of the progress."""
HELD_BACK_TRIES = 8
"""How often `collect` waits for readers that hold work back."""
GARBAGE = (BlockState.DEAD, BlockState.UNNAMED, BlockState.ORPHAN, BlockState.STRAY)


@dataclass(frozen=True)
class Waste:
    """The garbage on all backends."""

    freed: int
    """Files, parts and uploads that wait to be released. Blocks that only they refer to are not counted below."""
    blocks: Mapping[BlockState, int]
    """How many copies are in each state of `GARBAGE`; and how many are in flight, which stay."""
    bytes: Mapping[BlockState, int]
    """Their sealed bytes."""
    sparse_blocks: int
    """Packs that the compactor will rewrite."""
    sparse_bytes: int
    """The plain bytes that this will free."""
    unchecked: Mapping[str, str] = field(default_factory=dict)
    """Backends that could not be listed to the end, and why. Their copies are not counted."""


async def survey(
    store: Tables,
    backends: Mapping[int, Backend],
    progress: Progress = no_progress,
    limits: ListingLimits = DEFAULT_LIMITS,
) -> Waste:
    """Count the garbage, and change nothing. *limits*: of each backend's listing."""
    return await _survey(store, backends, progress, limits, {})


async def _survey(
    store: Tables,
    backends: Mapping[int, Backend],
    progress: Progress,
    limits: ListingLimits,
    unchecked: Mapping[str, str],
) -> Waste:
    """Count the garbage on the backends that are not in *unchecked*."""
    blocks: Counter[BlockState] = Counter()
    sizes: Counter[BlockState] = Counter()

    async def count(backend_id: int, item: InventoryItem) -> None:
        if item.state in GARBAGE or item.state is BlockState.IN_FLIGHT:
            blocks[item.state] += 1
            sizes[item.state] += item.size

    checked = {backend_id: backend for backend_id, backend in backends.items() if backend.name not in unchecked}
    failed = await _each_item(store, checked, count, progress, limits)
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
    """Call *handle* with the id of each backend and each item of its inventory.

    Returns the names of the backends for which that failed, and why; the others are handled all the same."""
    failed: dict[str, str] = {}
    done = 0
    for backend_id, backend in backends.items():
        try:
            async for item in take_inventory(store, backend_id, backend, limits):
                await handle(backend_id, item)
                done += 1
                if done % PROGRESS_EVERY == 0:
                    progress(f"blocks on {backend.name}", done, 0)
        except backend_errors.BackendError as error:
            failed[backend.name] = str(error)
    return failed


async def collect(
    store: Tables,
    journal: WorkerJournal,
    backends: Mapping[int, Backend],
    workers: Iterable[Worker],
    timing: Timing,
    progress: Progress = no_progress,
    *,
    stamp_fences: Callable[[], Awaitable[None]] | None = None,
    limits: ListingLimits = DEFAULT_LIMITS,
) -> Waste:
    """Let *workers* do what they find to do now, and delete orphans. Returns the garbage that is left.

    Strays that the journal does not know are noted for the keeper, which may be making these copies at this moment.
    What somebody may still read stays; readers that have finished get a moment to raise their horizon. *stamp_fences*
    stamps the backends with the journal's position, which deletions wait for."""
    await _run_workers(list(workers), timing, progress, stamp_fences)
    keep_orphans = in_fork_grace(store, SiteClock(store.query, clock_reader(timing.clock)).now_ns())

    async def handle(backend_id: int, item: InventoryItem) -> None:
        if item.state is BlockState.ORPHAN:
            if not keep_orphans:
                await backends[backend_id].delete(item.key)
        elif item.state is BlockState.STRAY and (block_id := block_id_of(item.key)) is not None:
            await journal.send(NoteStrays(((block_id, backend_id),)))

    failed = await _each_item(store, backends, handle, progress, limits)
    return await _survey(store, backends, progress, limits, failed)


async def _run_workers(
    workers: list[Worker], timing: Timing, progress: Progress, stamp_fences: Callable[[], Awaitable[None]] | None
) -> None:
    """Step *workers* until none of them has more to do. While one is held back, pause and repeat, up to
    `HELD_BACK_TRIES` times."""
    steps = 0
    for _ in range(HELD_BACK_TRIES):
        while any([await worker.step() for worker in workers]):
            steps += 1
            progress("steps", steps, 0)
        if not any(worker.held_back for worker in workers):
            break
        await timing.clock.sleep(timing.workers.held_back_seconds)
        if stamp_fences is not None:
            await stamp_fences()
