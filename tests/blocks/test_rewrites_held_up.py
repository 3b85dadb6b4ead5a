"""Rewrites that a backend holds up: it is left alone, others go on, and what has moved already is mended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backends import errors as backend_errors
from backends.testing.faulty import Fault, FaultKind
from gateway.blocks.commands.rewrite import MoveRewritten
from gateway.blocks.maintenance import compactor, rewrites
from gateway.blocks.maintenance.rewrites import PendingRewrite, full_groups
from gateway.blocks.types import Target, Targets, WriteContext, block_id_of
from gateway.errors import Unavailable
from gateway.journal.apply.work import unpack_ids
from gateway.placement.commands import NameBackendSet
from gateway.reconcile import commands as reconcile
from tests.blocks.test_rewrites import DATA, WAIT_SECONDS, Packed, lost

BOTH, FIRST = 2, 1
REST_SECONDS = 60.0


class Apart(Packed):
    """What is written goes to both backends, or to the first alone; it is written anew where it is."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ids = tuple(self.backends)
        self.sets = {count: self.committer.run(NameBackendSet(self.ids[:count])) for count in (FIRST, BOTH)}
        self.count = BOTH
        self.restart()

    def write_context(self, policy: int = 0) -> WriteContext:
        count = getattr(self, "count", BOTH)
        copies = tuple(Target(self.backends[each], each) for each in list(self.backends)[:count])
        set_id = self.sets[count] if hasattr(self, "sets") else self.set_id
        return WriteContext(self.keys[self.active], Targets(policy or self.policy, set_id, copies))

    def rewrite_context(self, policy: int, wanted: frozenset[int]) -> WriteContext:
        self.count = len(wanted)
        return self.write_context(policy)

    async def pack(self, name: bytes, count: int) -> None:
        """A pack on so many of the backends, half of which is deleted."""
        self.count = count
        await asyncio.gather(*(self.put(name + b"%d" % n, DATA * (n + 1)) for n in range(10)))
        for n in range(8):
            await self.delete(name + b"%d" % n)

    async def is_whole(self, name: bytes = b"") -> bool:
        return [await self.get(name + b"%d" % n) for n in (8, 9)] == [DATA * 9, DATA * 10]

    def suspected(self) -> list[tuple[int, ...]]:
        return [unpack_ids(packed) for (packed,) in self.store.query("SELECT suspects FROM work")]

    def away(self, verb: str, place: int = 1) -> None:
        self.plans[place].add(Fault(FaultKind.ERROR, verb, error=backend_errors.Unavailable))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Apart]:
    made = Apart(tmp_path)
    yield made
    made.close()


# ---- what has moved in part ----------------------------------------------------------------------------------------


async def test_a_copy_that_vanished_when_some_extents_had_moved_there_is_made_again(
    site: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrites, "MOVES", 1)
    await site.fill()
    await site.work()
    (new,) = site.new
    send = site.worker_journal.send

    async def killed_behind_the_first_move(command: Any) -> Any:
        answer = await send(command)
        if isinstance(command, MoveRewritten):
            raise KeyboardInterrupt
        return answer

    site.worker_journal.send = killed_behind_the_first_move  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        await site.later(WAIT_SECONDS + 60)
    site.worker_journal.send = send  # type: ignore[method-assign]
    site.restart()
    lost(site.values(1), new)
    await site.work()
    assert site.rows("rewrite") == 0
    assert site.suspected() == [(site.ids[1],)], "the mover makes it again"
    assert await site.is_whole()
    assert site.findings() == {}


async def test_a_rewrite_goes_on_when_its_move_was_interrupted(site: Apart) -> None:
    await site.fill()
    await site.work()
    (new,) = site.new
    block = block_id_of(new)
    assert block is not None
    send = site.worker_journal.send

    async def suspect_first(command: Any) -> Any:
        if isinstance(command, MoveRewritten):
            site.worker_journal.send = send  # type: ignore[method-assign]
            await send(reconcile.SuspectCopy(block, site.ids[1], "absent"))
        return await send(command)

    site.worker_journal.send = suspect_first  # type: ignore[method-assign]
    await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 0
    assert site.store.query("SELECT block FROM rewrite") == [(block,)], "it waits, and is not given up"
    await send(reconcile.ClearCopies(block, (site.ids[1],)))
    for _ in range(2):
        await site.later(WAIT_SECONDS + 60)
    assert (site.compactor.moved, site.rows("rewrite")) == (2, 0)


async def test_a_new_pack_without_a_good_copy_is_given_up(site: Apart) -> None:
    await site.fill()
    await site.work()
    (new,) = site.new
    block = block_id_of(new)
    assert block is not None
    for place in site.ids:
        await site.journal.send(reconcile.SuspectCopy(block, place, "absent"))
    await site.later(10)
    assert site.rows("rewrite") == 0
    assert await site.is_whole()


# ---- a place that does not answer ----------------------------------------------------------------------------------


async def test_a_backend_that_does_not_answer_is_asked_once_and_then_left_alone(site: Apart) -> None:
    for name in (b"a", b"b", b"c"):
        await site.pack(name, BOTH)
        await site.work()
    await site.pack(b"d", FIRST)
    await site.work()
    assert site.rows("rewrite") == 4
    site.away("stat")
    await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 2, "what needs the other place alone has moved"
    assert len(site.plans[1].struck) == 1
    await site.later(REST_SECONDS - 10)
    assert len(site.plans[1].struck) == 1
    await site.later(20)
    assert len(site.plans[1].struck) == 2
    await site.later(2 * REST_SECONDS - 10)
    assert len(site.plans[1].struck) == 2, "it is left alone for longer each time"
    site.plans[1].clear()
    await site.later(20)
    assert (site.compactor.moved, site.rows("rewrite")) == (8, 0)
    for name in (b"a", b"b", b"c", b"d"):
        assert await site.is_whole(name)


async def test_both_backends_are_asked_at_once(site: Apart) -> None:
    await site.pack(b"a", BOTH)
    await site.work()
    together = asyncio.Barrier(2)
    for place in site.inner:

        async def stat(key: str, stat: Any = place.stat) -> Any:
            await asyncio.wait_for(together.wait(), 60)
            return await stat(key)

        place.stat = stat  # type: ignore[method-assign]
    await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 2


async def test_rewrites_that_wait_for_a_backend_leave_places_to_others(
    site: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrites, "REWRITES_MAX", 4)
    site.away("stat")
    for name in (b"a", b"b", b"c"):
        await site.pack(name, BOTH)
        await site.work()
    assert site.rows("rewrite") == 2
    await site.pack(b"d", FIRST)
    await site.work()
    assert site.rows("rewrite") == 3
    site.restart()
    await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 2
    site.plans[1].clear()
    for _ in range(3):
        await site.later(WAIT_SECONDS + 60)
    assert (site.compactor.moved, site.rows("rewrite")) == (8, 0)


def test_of_one_group_as_many_rewrites_are_pending_as_places_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrites, "REWRITES_MAX", 8)
    waiting: list[PendingRewrite] = []
    for group in ((1, 1), (1, 2), (2, 2), (2, 3)):
        while group not in full_groups(waiting) and len(waiting) < 8:
            waiting.append(PendingRewrite((), group))
    assert [[each.group for each in waiting].count(group) for group in ((1, 1), (1, 2), (2, 2), (2, 3))] == [4, 2, 1, 1]


@pytest.mark.parametrize("verb", ["put", "get"])
async def test_packs_that_cannot_be_rewritten_delay_no_others(site: Apart, verb: str) -> None:
    await site.pack(b"a", BOTH)
    site.count = FIRST
    await asyncio.gather(*(site.put(b"b%d" % n, DATA * (n + 1)) for n in range(10)))
    for n in range(7):  # more lives in it, so it is not the first
        await site.delete(b"b%d" % n)
    while await site.releaser.step():
        pass
    site.away(verb)
    if verb == "get":
        for key in site.values(1):
            site.plans[0].add(Fault(FaultKind.ERROR, verb, key=key, error=backend_errors.Unavailable))
    with pytest.raises(Unavailable):
        await site.work()
    await site.work()
    assert site.rows("rewrite") == 1
    for plan in site.plans:
        plan.clear()
    await site.later(REST_SECONDS)
    assert site.rows("rewrite") == 2
    for _ in range(2):
        await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 5


async def test_candidates_are_read_in_slices_while_many_packs_wait(
    site: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactor, "SLICE", 2)
    read: list[int] = []
    query = site.store.query

    def counted(statement: str, *values: Any) -> list[Any]:
        rows = query(statement, *values)
        if "live * 5 < plain * 4" in statement:
            read.append(len(rows))
        return rows

    monkeypatch.setattr(site.store, "query", counted)
    for count in range(1, 6):
        await site.pack(b"%d-" % count, BOTH)
        await site.work()
        assert site.rows("rewrite") == count
    assert max(read) == 2
    await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 10


async def test_any_number_of_groups_may_be_left_alone_while_others_are_rewritten(site: Apart) -> None:
    """SQLite takes no expression that is more than 1,000 levels deep (https://www.sqlite.org/limits.html)."""
    resting = site.compactor._rewrites.group_backoff
    for number in range(2_000):
        resting.record_failure((number + 1_000, number), "a backend is away")
    await site.pack(b"a", BOTH)
    resting.record_failure((site.policy, site.sets[BOTH]), "a backend is away")
    await site.work()
    assert site.rows("rewrite") == 0, "these packs rest, too"
    await site.pack(b"b", FIRST)
    await site.work()
    assert site.rows("rewrite") == 1
