"""Rewrites: extents move to a new pack only once the new pack was kept for a while where it should be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from backends import errors as backend_errors
from backends.base import Buffer, Stat
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway.blocks.fsck.findings import FsckReport
from gateway.blocks.fsck.table_check import check_tables
from gateway.blocks.maintenance.compactor import Compactor
from gateway.blocks.types import WriteContext, block_id_of
from gateway.blocks.write.writer import StoredRun
from gateway.errors import Unavailable
from gateway.reconcile import commands as reconcile
from tests.blocks.site import Site
from tests.clocks import manual_timing

WAIT_SECONDS = 3_600.0
DATA = bytes(range(256)) * 4


class Packed(Site):
    """Two backends; one pack, of whose ten objects two live; a wait of an hour, by a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        timing, self.clock = manual_timing()
        self.plans = [FaultPlan(), FaultPlan()]
        self.inner = [Memory("b0"), Memory("b1")]
        super().__init__(folder, *map(Faulty, self.inner, self.plans), timing=timing)
        self.recheck_seconds = WAIT_SECONDS

    async def fill(self) -> None:
        await asyncio.gather(*(self.put(b"%d" % n, DATA * (n + 1)) for n in range(10)))
        self.old = {key for key, _ in self.inner[0]._values.items()}
        for n in range(8):
            await self.delete(b"%d" % n)

    async def later(self, seconds: float) -> None:
        """Advance the clock by *seconds*, and let the workers do what is due then."""
        self.clock.advance(seconds)
        await self.work()

    def restart(self) -> None:
        """Start a new keeper, without what the last one had in memory."""
        self.compactor = Compactor(
            self.store,
            self.worker_journal,
            self.lookup,
            self.reader,
            self.new_writer(self.worker_journal),
            lambda _, policy, wanted: self.rewrite_context(policy, wanted),
            self.wanted,
            timing=self.timing,
        )
        self.workers[self.workers.index(next(each for each in self.workers if isinstance(each, Compactor)))] = (
            self.compactor
        )

    def rewrite_context(self, policy: int, wanted: frozenset[int]) -> WriteContext:
        return self.write_context(policy)

    def values(self, place: int) -> dict[str, bytes]:
        return self.inner[place]._values

    @property
    def new(self) -> set[str]:
        """Return the keys of the new packs."""
        return {key for place in (0, 1) for key in self.values(place)} - self.old

    async def is_whole(self) -> bool:
        return [await self.get(b"%d" % n) for n in (8, 9)] == [DATA * 9, DATA * 10]

    def findings(self) -> dict[str, int]:
        report = FsckReport()
        check_tables(self.path, report, lambda done, total: None)
        return {kind: count for kind, count in report.kinds.items() if kind != "block-names"}  # no ring key has a row


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Packed]:
    made = Packed(tmp_path)
    await made.fill()
    await made.work()
    yield made
    made.close()


async def test_the_old_pack_stays_and_is_read_until_the_wait_is_over(site: Packed) -> None:
    await site.later(WAIT_SECONDS - 60)
    assert site.compactor.moved == 0
    assert len(site.new) == 1
    assert site.values(0).keys() == site.values(1).keys() == site.old | site.new
    assert site.findings() == {}
    for key in site.new:  # nobody reads them
        site.values(0)[key] = site.values(0)[key][::-1]
        assert await site.is_whole()
        site.values(0)[key] = site.values(0)[key][::-1]
    await site.later(120)
    assert site.compactor.moved == 2
    assert site.values(0).keys() == site.values(1).keys() == site.new
    assert await site.is_whole()
    assert site.rows("rewrite") == 0
    assert site.findings() == {}
    await site.later(2 * WAIT_SECONDS)
    assert len(site.new) == 1, "it is not written anew once more"


async def test_a_restart_neither_skips_the_wait_nor_begins_it_again(site: Packed) -> None:
    await site.later(WAIT_SECONDS - 60)
    site.end(site.worker_journal)
    site.worker_journal.session = site.client().session
    site.clients.append(site.worker_journal)
    site.restart()
    await site.work()
    assert site.compactor.moved == 0
    assert len(site.new) == 1, "it is not written twice"
    await site.later(120)
    assert site.compactor.moved == 2
    assert await site.is_whole()


def lost(values: dict[str, bytes], key: str) -> None:
    del values[key]


def cut_short(values: dict[str, bytes], key: str) -> None:
    values[key] = values[key][:-1]


def damaged(values: dict[str, bytes], key: str) -> None:
    values[key] = values[key][:-1] + bytes([values[key][-1] ^ 1])


@pytest.mark.parametrize(
    ("place", "harm"), [(0, lost), (0, cut_short), (0, damaged), (1, lost), (1, cut_short)]
)  # of several backends one is read
async def test_a_new_pack_that_is_lost_during_the_wait_costs_nothing(
    site: Packed, place: int, harm: Callable[[dict[str, bytes], str], None]
) -> None:
    (new,) = site.new
    harm(site.values(place), new)
    await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 0
    assert site.values(0).keys() == site.values(1).keys() == site.old, "the new one goes, and the old one stays"
    assert await site.is_whole()
    assert site.findings() == {}
    await site.later(120)
    assert len(site.new) == 1, "it is tried again"
    await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 2
    assert await site.is_whole()


async def test_a_backend_that_states_another_md5_is_read_back(site: Packed) -> None:
    (new,) = site.new
    damaged(site.values(1), new)

    async def stat(key: str) -> Stat:
        return Stat(len(site.values(1)[key]), "00" * 16)

    site.inner[1].stat = stat  # type: ignore[method-assign]
    await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 0
    assert await site.is_whole()


async def test_a_backend_that_cannot_be_asked_is_asked_later(site: Packed) -> None:
    site.plans[1].add(Fault(FaultKind.ERROR, "stat", error=backend_errors.Unavailable))
    await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 0
    assert site.rows("rewrite") == 1
    site.plans[1].clear()
    await site.later(120)
    assert site.compactor.moved == 2
    assert await site.is_whole()


async def test_a_suspected_copy_of_a_new_pack_makes_the_wait_begin_again(site: Packed) -> None:
    (new,) = site.new
    block, place = block_id_of(new), list(site.backends)[1]
    assert block is not None
    await site.later(WAIT_SECONDS - 60)
    await site.journal.send(reconcile.SuspectCopy(block, place, "absent"))
    await site.later(120)
    assert site.compactor.moved == 0
    await site.journal.send(reconcile.ClearCopies(block, (place,)))
    ((set_id,),) = site.store.query("SELECT backends FROM block WHERE id = ?", (block,))
    assert await site.journal.send(reconcile.FinishWork((reconcile.Finish(block, set_id, ()),))) == (True,)
    await site.later(60)
    await site.later(WAIT_SECONDS - 60)
    assert site.compactor.moved == 0
    await site.later(120)
    assert site.compactor.moved == 2


async def test_what_is_deleted_during_the_wait_does_not_move_and_counts_as_dead_in_the_new_pack(site: Packed) -> None:
    await site.delete(b"9")
    await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 1
    assert await site.get(b"8") == DATA * 9
    ((plain, live),) = site.store.query("SELECT plain, live FROM block WHERE died = 0 AND members > 0")
    assert (plain, live) == (len(DATA) * 19, len(DATA) * 9)
    await site.delete(b"8")
    await site.later(WAIT_SECONDS + 60)
    await site.later(60)
    assert site.values(0) == site.values(1) == {}
    assert site.findings() == {}


async def test_a_new_pack_whose_objects_were_all_deleted_is_deleted(site: Packed) -> None:
    for key in (b"8", b"9"):
        await site.delete(key)
    await site.later(WAIT_SECONDS + 60)
    await site.later(60)
    assert site.values(0) == site.values(1) == {}
    assert site.rows("rewrite") == site.rows("block") == 0


async def test_what_was_stored_beside_a_failed_write_is_deleted_and_holds_no_horizon(tmp_path: Path) -> None:
    site = Packed(tmp_path)
    await site.fill()
    while await site.releaser.step():
        pass
    store = site.compactor._writer.store_packed

    async def fail_at_one(write_context: WriteContext, data: Buffer) -> StoredRun:
        if len(data) == 10 * len(DATA):
            raise Unavailable("no answer")
        return await store(write_context, data)

    site.compactor._writer.store_packed = fail_at_one  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await site.compactor.step()
    await site.compactor._writer.close()
    assert site.worker_journal.held == []
    assert site.new == set()
    site.close()
