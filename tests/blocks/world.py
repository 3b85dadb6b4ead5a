"""Backends, keys, a writer and a reader for the tests of blocks, without a journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager

from backends.base import Backend, Buffer
from backends.testing.memory import Memory
from gateway.blocks.budget import Budget
from gateway.blocks.digests import Digests
from gateway.blocks.read.copy_reader import CopyReader
from gateway.blocks.read.read_plan import plan_run
from gateway.blocks.read.reader import Reader
from gateway.blocks.types import BlockFacts, Target, Targets, WriteContext
from gateway.blocks.write.writer import StoredRun, Writer
from gateway.crypto.ring import ActiveKey, new_ring_key
from gateway.crypto.sealing import ENCRYPTED, BlockKeys
from gateway.journal.columns import Extent
from gateway.timing import Timing

SESSION = 7
SET = 3


async def chunks(data: Buffer, size: int) -> AsyncIterator[Buffer]:
    """Yield *data* in chunks of *size* bytes."""
    for at in range(0, len(data), size):
        yield data[at : at + size]


class World:
    """What writing and reading need. Dictionaries stand for the tables of the journal."""

    def __init__(
        self,
        *places: Backend,
        budget_bytes: int = 96 << 20,
        mode: int = ENCRYPTED,
        timing: Timing | None = None,
        **options: float,
    ) -> None:
        self.timing = timing or Timing()
        self.places = places or (Memory(),)
        self.keys: dict[int, ActiveKey] = {5: new_ring_key(5, mode)}
        self.facts: dict[bytes, BlockFacts] = {}
        self.runs: dict[int, list[Extent]] = {}
        self.tokens = 0
        self.session = SESSION
        self.budget = Budget(budget_bytes)
        self.reading = Budget(64 << 20)
        self.writer = Writer(lambda: self.session, self.reading_now, self.budget, timing=self.timing, **options)  # type: ignore[arg-type]
        self.order = [Target(place, number) for number, place in enumerate(self.places, 1)]
        opened = BlockKeys(lambda key_id: (self.keys[key_id].key, self.keys[key_id].mode))
        self.copies = CopyReader(self.facts.get, lambda _: self.order, opened, self.extent_at, timing=self.timing)
        self.reader = Reader(self.copies, self.reading)

    @contextmanager
    def reading_now(self) -> Iterator[None]:
        self.tokens += 1
        yield
        self.tokens -= 1

    def extent_at(self, run: int, nth: int) -> Extent | None:
        extents = self.runs.get(run)
        return extents[nth] if extents else None

    def write_context(self, key: int = 5, policy: int = 1) -> WriteContext:
        copies = tuple(Target(place, number) for number, place in enumerate(self.places, 1))
        return WriteContext(self.keys[key], Targets(policy, SET, copies))

    async def put(self, data: Buffer, chunk: int = 65_536, digests: Digests | None = None) -> StoredRun:
        """Store *data*, and name it."""
        stored = await self.writer.store(self.write_context(), chunks(data, chunk), len(data), digests or Digests())
        self.name(stored)
        return stored

    def name(self, stored: StoredRun, run: int = 0) -> None:
        """Do what a command would do: record the blocks' facts, and the extents of *run*."""
        for block in stored.blocks:
            self.facts[block.id] = BlockFacts(block.ring_key, block.size, block.backends)
        if run:
            self.runs[run] = list(stored.extents)
        self.writer.mark_named(stored)

    async def get(self, extents: Iterable[Extent], start: int = 0, length: int | None = None, run: int = 0) -> bytes:
        extents = list(extents)
        if length is None:
            length = sum(extent.length for extent in extents) - start
        return b"".join([bytes(piece) async for piece in self.reader.read(plan_run(run, extents, start, length))])

    async def keys_stored(self, place: int = 0) -> list[str]:
        return [listed.key async for listed in self.places[place].list()]
