"""Random histories: commands of every room, drawn from what the tables hold, run in batches over a store."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from gateway.crypto import ring_key_commands
from gateway.identity import users
from gateway.journal import session_commands as site
from gateway.journal.codec import RECORD_CODEC
from gateway.journal.columns import Extent
from gateway.journal.records.bytes import NewBlock
from gateway.journal.server.batch import BatchRunner, CommandResult, Job
from gateway.journal.server.row_cache import RowCache
from gateway.journal.store import Store
from gateway.journal.tables import (
    BACKEND,
    BACKEND_SET,
    BUCKET,
    DIR,
    ENTRY,
    FILE,
    USER,
    Table,
)
from gateway.namespace.commands import buckets
from gateway.placement import commands as placement
from gateway.site.commands import COMMANDS
from tests.journal.memory_store import MemoryStore
from tests.journal.steps import ACCOUNTS, BUCKETS, LEFT, MIB, STEPS

EVERY = {**site.COMMANDS, **COMMANDS}


class History:
    """A random history of one site. The possible steps are in `steps.py`."""

    def __init__(self, store: Store, seed: int, cache_rows: int = 200_000) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.cache = RowCache(store, cache_rows)
        self.runner = BatchRunner(self.cache, EVERY, store.head())
        self.shown = MemoryStore()
        """The same tables, to draw from."""
        self.at_ns = 1_700_000_000 * 10**9
        self.drawn = 0
        self.refused = 0
        self.session = 0
        self.key_id = 0
        """The last that was drawn for a ring key."""
        self.tags: set[int] = set()
        self.number = 0
        for command in [
            site.FoundSite("ab" * 16, "here", feature=0),
            users.AddTenant("default"),
            *(users.AddUser(name, "default", False, f"AK{name}", b"s", "m1") for name in ACCOUNTS),
            *(placement.NameBackend(name) for name in ("one", "two")),
            placement.NameBackendSet((1,)),
            placement.NameBackendSet((1, 2)),
            placement.NamePolicy("default"),
            site.OpenSession("worker"),
        ]:
            self.session = self.batch([command], session=0)[0].value
        for name in BUCKETS[:2]:
            self.batch([self.make_bucket(name)])

    # --- running ------------------------------------------------------------------------------------------------------

    def batch(self, commands: list[Any], session: int | None = None) -> list[CommandResult]:
        """One batch, durable."""
        self.at_ns += self.random.randrange(10**9)
        asks = self.session if session is None else session
        jobs = []
        for slot, command in enumerate(commands):
            self.number += 1
            jobs.append(Job(asks, slot, self.number, command, 0, None))
        prepared = self.runner.prepare(jobs, self.at_ns)
        self.store.write(prepared.batch)
        self.shown.write(prepared.batch)
        self.runner.mark_durable(prepared)
        if prepared.batch.journal is not None:
            self.tags |= {type(each).TAG for each in RECORD_CODEC.unpack(prepared.batch.journal.records)}
        for answer in prepared.results:
            if answer.error is not None:
                assert "failed" not in str(answer.error), answer
                self.refused += 1
            elif isinstance(answer.job.command, ring_key_commands.DrawRingKeyId):
                self.key_id = answer.value
        return sorted(prepared.results, key=lambda answer: answer.job.slot)

    def run(self, batches: int) -> None:
        """So many batches of whatever comes up."""
        steps = list(STEPS.values())
        for _ in range(batches):
            drawn = [step(self) for step in self.random.choices(steps, k=self.random.choice([1, 1, 2, 5, 12]))]
            self.batch([command for command in drawn if command is not None])

    # --- drawing ------------------------------------------------------------------------------------------------------

    def pick(self, table: Table[Any], fits: Callable[[Any], bool] = lambda row: True) -> Any:
        rows = [row for row in self.shown.dump(table) if fits(row)]
        return self.random.choice(rows) if rows else None

    def bucket(self) -> Any:
        return self.pick(BUCKET, lambda row: row.name != LEFT)

    def stored(self, size: int) -> tuple[tuple[Extent, ...], tuple[NewBlock, ...]]:
        """Extents of so many bytes in new blocks of this session; now and then a pack that others lie in too."""
        blocks, placed = [], []
        while size > 0:
            if not self.random.randrange(3):
                self.drawn += 1
            block = self.session.to_bytes(8, "big") + self.drawn.to_bytes(16, "big")
            length = min(size, 8 * MIB)
            placed.append(Extent(block, 64, 0, length))
            if all(block != each.id for each in blocks):
                due = self.at_ns if self.random.randrange(2) else 0
                strays = (self.pick(BACKEND).id,) if due and self.random.randrange(2) else ()
                blocks.append(NewBlock(block, 1, 2 * length, 7, self.pick(BACKEND_SET).id, due, strays))
            size -= length
        return tuple(placed), tuple(blocks)

    def etag(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    def make_bucket(self, name: str) -> Any:
        user = self.pick(USER)
        return user and buckets.MakeBucket(name, user.id, user.name, user.tenant, "here", 1)

    def directory(self, bucket: Any) -> Any:
        return self.pick(DIR, lambda row: row.bucket == bucket.name)

    def file(self, bucket: Any) -> Any:
        entry = self.pick(ENTRY, lambda row: row.node and not row.name.endswith(b"/"))
        return entry and self.pick(FILE, lambda row: row.id == entry.node)

    def named(self, bucket: Any) -> Any:
        """An entry of this bucket."""
        inside = {row.id for row in self.shown.dump(DIR) if row.bucket == bucket.name}
        return self.pick(ENTRY, lambda row: row.parent in inside)
