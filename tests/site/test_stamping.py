"""What a process makes of the fence that a backend bears: what it deletes, when it stamps, when it sets it aside."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends import errors
from backends.base import LINEAGE_MAX, Marker, crc32c_of
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway.blocks.types import block_path
from gateway.crypto.sealing import new_block_id
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.session_commands import COMMANDS, DrawToken, FoundSite, OpenSession
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.site.admin.takeover import common_record
from gateway.site.storage.agreement import StampedElsewhere
from gateway.site.storage.fencing import Fencing, Relation, head
from gateway.site.storage.marker_guard import MarkerGuard
from gateway.timing import SystemClock, Timing, parse_timing

SITE = "ab" * 16
OWN, OTHER = 7, 8
"""Sessions."""


class History:
    """A journal, and a process that looks at backends for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sqlite = SqliteStore(path)
        self._committer = InlineCommitter(self._sqlite, COMMANDS)
        self._committer.run(FoundSite(SITE, "here"))
        self.rows = ReadStore(path)
        self.fencing = Fencing(self.rows, lambda: OWN, SystemClock(), stamps=True)

    def start(self, above: int = 0, over: tuple[str, ...] = ()) -> None:
        """A committer starts."""
        self._committer.run(DrawToken(secrets.token_hex(16), secrets.randbits(63), "", above, over))

    def grow(self) -> int:
        """A record more. Answers its number."""
        self._committer.run(OpenSession("x"))
        return self.number

    @property
    def number(self) -> int:
        return head(self.rows).number

    def copy(self, name: str) -> History:
        self._sqlite.shrink_wal()
        return History(Path(shutil.copy(self.path, self.path.with_name(name))))

    def close(self) -> None:
        self.rows.close()
        self._sqlite.close()


@pytest.fixture
def histories(tmp_path: Path) -> Iterator[list[History]]:
    made = [History(tmp_path / "journal.db")]
    yield made
    for each in made:
        each.close()


@pytest.fixture
def ours(histories: list[History]) -> History:
    histories[0].start()
    return histories[0]


@pytest.fixture
async def place() -> Memory:
    made = Memory("disk")
    await made.claim(Marker(SITE, 3, 1))
    return made


def over(place: Any, history: History, **options: Any) -> MarkerGuard:
    return MarkerGuard(place, 3, seconds=2.0, fencing=history.fencing, **{"timing": Timing()} | options)


async def block(place: Memory, session: int) -> str:
    key = block_path(new_block_id(session))
    await place.put(key, [b"x"], crc32c_of([b"x"]))
    return key


async def is_set_aside(backend: MarkerGuard, history: History) -> bool:
    """Whether *backend*, looked at now, takes nothing since another copy has stamped it."""
    await backend.check(history.rows)
    return isinstance(backend.elsewhere, StampedElsewhere) and "another copy of this site's folder" in backend.why


async def number_on(place: Memory) -> int:
    held = await place.marker()
    assert held is not None
    assert held.fence is not None
    return held.fence.number


async def test_nothing_is_deleted_on_a_place_that_was_not_stamped_but_what_this_process_wrote(
    ours: History, place: Memory
) -> None:
    backend = over(place, ours)
    others, own = await block(place, OTHER), await block(place, OWN)
    with pytest.raises(errors.Unavailable, match="nothing is deleted there until it has the token"):
        await backend.delete(others)
    with pytest.raises(errors.Unavailable):
        await backend.delete("no block")
    await backend.delete(own)
    assert [line.key async for line in backend.list()] == [others]
    await backend.check(ours.rows)
    await backend.delete(others)
    assert [line async for line in backend.list()] == []


async def test_a_process_that_stamps_nothing_deletes_where_another_one_stamped(ours: History, place: Memory) -> None:
    looks = MarkerGuard(
        place, 3, seconds=2.0, fencing=Fencing(ours.rows, lambda: 0, SystemClock(), stamps=False), timing=Timing()
    )
    await looks.check(ours.rows)
    assert not looks.covers(0)
    await over(place, ours).check(ours.rows)
    await looks.check(ours.rows)
    assert looks.covers(0)


async def test_the_next_start_deletes_nothing_before_it_has_stamped(ours: History, place: Memory) -> None:
    backend = over(place, ours)
    await backend.check(ours.rows)
    assert backend.covers(0)
    ours.start()
    assert not backend.covers(0)
    await backend.check(ours.rows)
    assert backend.covers(ours.number)


async def test_what_died_waits_until_the_place_says_how_far_the_journal_has_come(ours: History, place: Memory) -> None:
    backend = over(place, ours)
    await backend.check(ours.rows)
    died = ours.grow()
    await backend.check(ours.rows)
    assert await number_on(place) < died, "it was stamped a moment ago"
    assert not backend.covers(died)
    await backend.check(ours.rows)
    assert backend.covers(died)
    assert await number_on(place) == died


async def test_a_place_is_stamped_anew_as_the_journal_grows_and_not_otherwise(ours: History, place: Memory) -> None:
    plan = FaultPlan()
    backend = over(Faulty(place, plan), ours, timing=parse_timing("markers.stamp_seconds=0"))
    await backend.check(ours.rows)
    plan.add(Fault(FaultKind.ERROR, "claim"))
    await backend.check(ours.rows)
    assert plan.struck == [], "nothing was written"
    plan.clear()
    grown = ours.grow()
    await backend.check(ours.rows)
    assert await number_on(place) == grown


async def test_an_older_copy_sets_the_place_aside_and_the_one_that_is_ahead_goes_on(
    histories: list[History], ours: History, place: Memory
) -> None:
    histories.append(older := ours.copy("older.db"))
    backend = over(place, ours)
    ours.grow()
    await backend.check(ours.rows)
    older.start()
    for _ in range(3):  # also once it has as many records
        assert await is_set_aside(over(place, older), older)
        older.grow()
    await backend.check(ours.rows)
    assert backend.covers(0)


async def test_of_two_copies_that_are_alike_the_last_to_start_goes_on_and_the_other_writes_and_deletes_nothing(
    histories: list[History], ours: History, place: Memory
) -> None:
    backend = over(place, ours)
    await backend.check(ours.rows)
    histories.append(younger := ours.copy("younger.db"))
    younger.start()
    await over(place, younger).check(younger.rows)
    ours.grow()
    assert await is_set_aside(backend, ours)
    with pytest.raises(errors.Unavailable):
        await backend.put(block_path(new_block_id(OWN)), [b"x"], crc32c_of([b"x"]))
    with pytest.raises(errors.Unavailable):
        await backend.delete(await block(place, OTHER))


async def test_two_that_bear_one_token_are_told_apart_by_what_they_wrote(
    histories: list[History], ours: History, place: Memory
) -> None:
    """A machine was cloned while it ran: no committer has started since."""
    histories.append(twin := ours.copy("twin.db"))
    for each in (ours, twin):
        each.grow()
    await over(place, ours).check(ours.rows)
    assert await is_set_aside(over(place, twin), twin)


async def test_who_is_overtaken_between_looking_and_stamping_does_not_win(
    histories: list[History], ours: History, place: Memory
) -> None:
    histories.append(younger := ours.copy("younger.db"))
    younger.start()

    class Overtaken(Memory):
        async def claim(self, marker: Marker) -> None:
            await over(place, younger).check(younger.rows)
            await place.claim(marker)

        async def marker(self) -> Marker | None:
            return await place.marker()

    backend = over(Overtaken("disk"), ours)
    assert await is_set_aside(backend, ours)
    assert not backend.covers(0)


async def test_two_processes_of_one_site_that_stamp_at_once_both_find_it_stamped(
    ours: History, place: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    class Busy(Memory):
        async def claim(self, marker: Marker) -> None:
            await over(place, ours).check(ours.rows)
            await place.claim(marker)

        async def marker(self) -> Marker | None:
            return await place.marker()

    backend = over(Busy("disk"), ours)
    await backend.check(ours.rows)
    assert backend.covers(ours.number)
    assert caplog.records == []


async def test_a_place_that_cannot_be_stamped_keeps_everything_and_says_so_once(
    ours: History, place: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    backend = over(Faulty(place, FaultPlan([Fault(FaultKind.ERROR, "claim", error=errors.Denied)])), ours)
    for _ in range(3):
        await backend.check(ours.rows)
    assert len(caplog.records) == 1
    with pytest.raises(errors.Unavailable, match="claim fails, as planned"):
        await backend.delete(await block(place, OTHER))
    await backend.put(block_path(new_block_id(OTHER)), [b"x"], crc32c_of([b"x"]))


async def test_a_stamp_whose_answer_was_lost_is_found_by_looking(ours: History, place: Memory) -> None:
    plan = FaultPlan([Fault(FaultKind.ERROR_AFTER, "claim", times=1)])
    backend = over(Faulty(place, plan), ours)
    await backend.check(ours.rows)
    assert not backend.covers(0)
    await backend.check(ours.rows)
    assert backend.covers(0)
    assert backend.unstamped == ""


async def test_a_claim_that_an_operator_has_ended_is_replaced(
    histories: list[History], ours: History, place: Memory
) -> None:
    histories.append(younger := ours.copy("younger.db"))
    common = ours.number
    younger.start()
    younger.grow()
    await over(place, younger).check(younger.rows)
    ours.grow()
    held = await place.marker()
    assert held is not None
    assert held.fence is not None
    assert common_record(ours.rows, held.fence) == (common, True)
    ours.start(held.fence.counter, (held.fence.nonce,))
    assert ours.fencing.classify(held.fence) is Relation.EARLIER
    await over(place, ours).check(ours.rows)
    backend = over(place, younger)
    assert await is_set_aside(backend, younger)
    assert f"token {held.fence.counter + 1}" in backend.why
    other = await place.marker()
    assert other is not None
    assert other.fence is not None
    assert common_record(younger.rows, other.fence) == (common, True)


async def test_where_they_part_is_found_after_both_have_started_often(
    histories: list[History], ours: History, place: Memory
) -> None:
    for _ in range(3):
        ours.start()
    histories.append(younger := ours.copy("younger.db"))
    common = ours.number
    for _ in range(4):
        younger.start()  # a copy begins with that
        younger.grow()
        ours.grow()
        ours.start()
    for one, other in ((ours, younger), (younger, ours)):
        stamped = other.fencing.with_fence(Marker(SITE, 3, 1))
        assert stamped is not None
        assert stamped.fence is not None
        assert common_record(one.rows, stamped.fence) == (common, True)
    for _ in range(LINEAGE_MAX):
        younger.start()
        ours.start()
    stamped = younger.fencing.with_fence(Marker(SITE, 3, 1))
    assert stamped is not None
    assert stamped.fence is not None
    assert common_record(ours.rows, stamped.fence)[1] is False


async def test_a_journal_without_a_token_stamps_and_deletes_nothing(histories: list[History], place: Memory) -> None:
    """As one that an older version still serves."""
    backend = over(place, histories[0])
    await backend.check(histories[0].rows)
    assert (await place.marker()) == Marker(SITE, 3, 1)
    assert not backend.covers(0)
