"""Commands of the work on copies do something only where all is as it was read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import InvalidArgument
from gateway.journal.apply.work import unpack_ids
from gateway.journal.tables import WorkState
from gateway.reconcile.commands import (
    AdvancePlan,
    Begin,
    BeginWork,
    ClearCopies,
    Drop,
    DropCopies,
    Fail,
    FailWork,
    Finish,
    FinishWork,
    KeepOld,
    KeepOldCopies,
    LoseBackend,
    SetBlockHolders,
    SetHolders,
    SuspectCopy,
)
from tests.reconcile.shores import Shores


class One(Shores):
    """One block, on `b0`, with a row of work."""

    async def fill(self) -> None:
        await self.put(b"k", b"x" * 1000)
        ((self.block, self.before),) = self.store.query("SELECT id, backends FROM block")

    async def begin(self, *on: int) -> Any:
        (begun,) = await self.journal.send(BeginWork((Begin(self.block, self.before, self.named(on)),)))
        return begun

    async def settle(self, *members: int, done: bool = True, was: tuple[int, ...] = (0,)) -> Any:  # type: ignore[override]
        item = SetHolders(self.block, self.before, self.named(was), self.named(members), done)
        (settled,) = await self.journal.send(SetBlockHolders((item,)))
        return settled

    async def finish(self, *strays: int) -> Any:
        ((before,),) = self.store.query("SELECT backends FROM block")
        (finished,) = await self.journal.send(FinishWork((Finish(self.block, before, self.named(strays)),)))
        return finished

    async def suspect(self, place: int) -> Any:
        return await self.journal.send(SuspectCopy(self.block, self.ids[place], "damaged"))

    def named(self, places: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.ids[each] for each in places)

    def strays(self) -> list[tuple[int, ...]]:
        """Of each row."""
        rows = self.work_rows("strays")
        return [tuple(self.ids.index(each) for each in unpack_ids(packed)) for (packed,) in rows]


@pytest.fixture
async def site(tmp_path: Path) -> Any:
    made = One(tmp_path)
    await made.fill()
    yield made
    made.close()


async def test_copies_that_were_begun_and_settled_leave_no_row(site: One) -> None:
    assert await site.begin(1)
    assert site.strays() == [(1,)]
    assert await site.settle(0, 1)
    assert site.held() == [(0, 1)]
    assert site.work_rows() == []


async def test_one_that_is_not_done_keeps_its_row(site: One) -> None:
    assert await site.settle(0, 1, done=False)
    assert site.held() == [(0, 1)]
    assert site.strays() == [()]


async def test_where_a_copy_was_begun_and_not_named_bytes_may_lie_from_then_on(site: One) -> None:
    assert await site.begin(1)
    assert await site.begin(2)
    assert site.strays() == [(1, 2)]
    assert await site.settle(0, 1)
    assert site.strays() == [(2,)]


async def test_who_held_it_and_does_not_any_more_is_a_stray_from_then_on(site: One) -> None:
    assert await site.settle(1)
    assert site.held() == [(1,)]
    assert site.strays() == [(0,)]


async def test_copies_that_are_known_already_are_begun_without_a_record(site: One) -> None:
    assert await site.begin(1)
    head = site.store.head()
    assert await site.begin(1)
    assert site.store.head() == head


async def test_a_block_whose_set_changed_since_it_was_read_is_left_alone(site: One) -> None:
    assert await site.settle(0, 1, done=False)
    head = site.store.head()
    assert not await site.begin(2)
    assert not await site.settle(2)
    (finished,) = await site.journal.send(FinishWork((Finish(site.block, site.before, ()),)))
    assert not finished
    assert site.store.head() == head


async def test_a_block_that_died_or_has_no_row_is_left_alone(site: One) -> None:
    await site.delete(b"k")
    await site.release_at_once()
    assert not await site.begin(1)
    assert not await site.settle(1)
    assert not await site.finish()
    assert not await site.suspect(0)


async def test_what_is_done_has_no_row_to_work_on(site: One) -> None:
    assert await site.finish()
    assert site.work_rows() == []
    assert not await site.begin(1)
    assert not await site.settle(1)
    assert not await site.finish()
    assert not await site.journal.send(ClearCopies(site.block, ()))
    assert await site.journal.send(FailWork((Fail(site.block, 1, 0, 1, "late"),))) == 0
    assert site.work_rows() == []


async def test_a_suspected_copy_keeps_the_row_until_it_is_cleared(site: One) -> None:
    assert await site.suspect(0)
    assert not await site.suspect(0)
    assert await site.settle(0, 1)
    assert len(site.work_rows()) == 1
    assert not await site.finish()
    assert await site.journal.send(ClearCopies(site.block, (site.ids[0],)))
    assert await site.finish()


async def test_strays_that_came_since_they_were_looked_at_keep_the_row(site: One) -> None:
    assert await site.begin(1)
    assert not await site.finish()
    assert not await site.finish(2)
    assert await site.finish(1)


async def test_a_block_is_never_named_as_held_by_nobody(site: One) -> None:
    with pytest.raises(InvalidArgument):
        await site.settle()
    assert site.held() == [(0,)]


async def test_what_failed_says_why_and_when_it_is_tried_again(site: One) -> None:
    assert await site.journal.send(FailWork((Fail(site.block, 7, WorkState.ASIDE, 3, "why"),))) == 1
    assert site.work_rows("state, attempts, word, due_ns") == [(WorkState.ASIDE, 3, "why", 7)]


async def test_a_lost_backend_is_lost_once_and_an_unknown_one_not_at_all(site: One) -> None:
    assert await site.journal.send(LoseBackend("b1")) == site.ids[1]
    head = site.store.head()
    assert await site.journal.send(LoseBackend("b1")) == site.ids[1]
    assert site.store.head() == head
    with pytest.raises(InvalidArgument, match="there is no backend 'b9'"):
        await site.journal.send(LoseBackend("b9"))


# ---- old copies -----------------------------------------------------------------------------------------------------


class Moved(One):
    """The block lies on `b0` and on `b1`, where it should be."""

    async def fill(self) -> None:
        await super().fill()
        assert await self.settle(0, 1, done=False)
        ((self.block, self.before),) = self.store.query("SELECT id, backends FROM block")

    async def hold(self, placed_ns: int, due_ns: int) -> Any:
        (held,) = await self.journal.send(KeepOldCopies((KeepOld(self.block, self.before, placed_ns, due_ns),)))
        return held

    async def drop(self, *members: int, placed_ns: int) -> Any:
        item = Drop(self.block, self.before, self.named((0, 1)), self.named(members), placed_ns)
        (dropped,) = await self.journal.send(DropCopies((item,)))
        return dropped


@pytest.fixture
async def moved(tmp_path: Path) -> Any:
    made = Moved(tmp_path)
    await made.fill()
    yield made
    made.close()


async def test_old_copies_are_dropped_only_after_the_wait_that_was_read(moved: Moved) -> None:
    assert not await moved.drop(1, placed_ns=0), "nobody has noted that the new copy was confirmed"
    assert await moved.hold(7, 70)
    assert moved.work_rows("placed_ns, due_ns") == [(7, 70)]
    assert not await moved.drop(1, placed_ns=6)
    assert await moved.drop(1, placed_ns=7)
    assert moved.held() == [(1,)]
    assert moved.strays() == [(0,)]
    assert moved.work_rows("placed_ns, due_ns") == [(7, 70)], "the bytes are deleted after the same wait"


async def test_a_suspected_copy_ends_the_wait_and_keeps_the_old_copies(moved: Moved) -> None:
    assert await moved.hold(7, 70)
    assert await moved.suspect(1)
    assert moved.work_rows("placed_ns") == [(0,)]
    assert not await moved.drop(1, placed_ns=7)
    assert not await moved.hold(8, 80)
    assert moved.held() == [(0, 1)]


async def test_another_set_of_copies_ends_the_wait(moved: Moved) -> None:
    assert await moved.hold(7, 70)
    assert await moved.settle(0, 1, 2, done=False, was=(0, 1))
    assert moved.work_rows("placed_ns") == [(0,)]
    assert not await moved.drop(1, placed_ns=7)


async def test_a_drop_adds_no_backend_and_leaves_one(moved: Moved) -> None:
    assert await moved.hold(7, 70)
    for members in ((), (1, 2)):
        with pytest.raises(InvalidArgument):
            await moved.drop(*members, placed_ns=7)
    assert moved.held() == [(0, 1)]


# ---- the plan -----------------------------------------------------------------------------------------------------


@pytest.fixture
def plan(site: One) -> Iterator[Any]:
    async def advance(before: bytes, after: bytes, blocks: tuple[bytes, ...] = (), fingerprint: bytes = b"f") -> Any:
        return await site.journal.send(AdvancePlan(fingerprint, before, after, 0, 0, blocks, 5))

    return advance


async def test_a_plan_goes_on_only_from_where_it_was_read(site: One, plan: Any) -> None:
    assert await site.finish()
    assert not await plan(b"b", b"c", (site.block,)), "there is no plan yet"
    assert await plan(b"", b"b")
    assert not await plan(b"a", b"c", (site.block,)), "somebody else went on"
    assert not await plan(b"b", b"c", (site.block,), b"other"), "something else is to be now"
    assert site.work_rows() == []
    assert site.store.query("SELECT after FROM plan") == [(b"b",)]
    assert await plan(b"b", b"c", (site.block,))
    assert site.work_rows("due_ns") == [(5,)]


async def test_what_died_or_is_gone_is_not_noted(site: One, plan: Any) -> None:
    assert await site.finish()
    await site.delete(b"k")
    await site.release_at_once()
    assert await plan(b"", b"b", (site.block, b"n" * 24))
    assert site.work_rows() == []


async def test_what_waits_for_later_is_looked_at_sooner_and_never_later(site: One, plan: Any) -> None:
    await site.journal.send(FailWork((Fail(site.block, 100, WorkState.WAITING, 1, "why"),)))
    assert await plan(b"", b"b", (site.block,))
    assert site.work_rows("due_ns, attempts") == [(5, 1)]
    await site.journal.send(FailWork((Fail(site.block, 3, WorkState.WAITING, 1, "why"),)))
    assert await plan(b"", b"b", (site.block,))
    assert site.work_rows("due_ns") == [(3,)]
