"""The site's own clock: it goes forward with time, whatever the wall clock says."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.journal.client import Journal
from gateway.journal.paths import JournalPaths
from gateway.journal.server.batch import STEP_NS, BatchTimes
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.server.server import CommitterSettings, Server
from gateway.journal.session_commands import COMMANDS, FoundSite, OpenSession
from gateway.journal.site_clock import OFF_MOST_NS, STORE_INTERVAL_NS, ClockReadings, CommitterClock, SiteClock
from gateway.journal.sqlite.store import SqliteStore
from gateway.timing import Clock, Timing
from tests.clocks import AheadClock

HOUR = 3600 * 10**9
YEARS = 10 * 365 * 24 * HOUR
NOON = 1_800_000_000 * 10**9


class Machine:
    """A machine whose clocks are told what they say."""

    def __init__(self) -> None:
        self.wall_ns, self.boots, self.boot_ns = NOON, 1, 5 * HOUR

    def __call__(self) -> ClockReadings:
        return ClockReadings(self.wall_ns, f"boot {self.boots}", self.boot_ns)

    def wait(self, nanoseconds: int) -> None:
        self.wall_ns += nanoseconds
        self.boot_ns += nanoseconds

    def start_again(self, off_ns: int) -> None:
        self.wall_ns += off_ns
        self.boots, self.boot_ns = self.boots + 1, 0


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "journal.db")
    yield opened
    opened.close()


def test_the_clock_goes_on_while_the_machine_runs_wherever_its_wall_clock_is_put(
    store: SqliteStore, machine: Machine
) -> None:
    kept = CommitterClock(store, machine)
    assert kept.now_ns() == NOON
    for put in (YEARS, -2 * YEARS, YEARS):
        machine.wall_ns += put
        machine.wait(HOUR)
    assert kept.now_ns() == SiteClock(store.query, machine).now_ns() == NOON + 3 * HOUR
    assert CommitterClock(store, machine).now_ns() == NOON + 3 * HOUR, "a committer that takes over goes on with it"


def test_time_while_the_machine_was_off_counts_for_a_day_at_most_and_never_back(
    store: SqliteStore, machine: Machine
) -> None:
    CommitterClock(store, machine)
    machine.start_again(2 * HOUR)
    assert CommitterClock(store, machine).now_ns() == NOON + 2 * HOUR
    machine.wall_ns += YEARS
    machine.start_again(HOUR)
    jumped = NOON + 2 * HOUR + OFF_MOST_NS
    assert [CommitterClock(store, machine).now_ns() for _ in range(3)] == [jumped] * 3, "once, not for each committer"
    machine.start_again(HOUR)
    assert CommitterClock(store, machine).now_ns() == jumped + HOUR
    machine.wall_ns -= YEARS
    machine.start_again(HOUR)
    assert CommitterClock(store, machine).now_ns() == jumped + HOUR


def test_where_the_clock_stands_is_written_down_every_so_often(store: SqliteStore, machine: Machine) -> None:
    kept = CommitterClock(store, machine)
    written = []
    for _ in range(4):
        machine.wait(STORE_INTERVAL_NS // 2)
        kept.store_if_due()
        written += [row[0] for row in store.query("SELECT site_ns FROM clock")]
    assert written == [NOON, NOON + STORE_INTERVAL_NS, NOON + STORE_INTERVAL_NS, NOON + 2 * STORE_INTERVAL_NS]
    assert kept.now_ns() == NOON + 2 * STORE_INTERVAL_NS


@pytest.mark.parametrize(("ahead", "begins"), [(0, 0), (2 * HOUR, 2 * HOUR), (YEARS, OFF_MOST_NS), (-YEARS, -YEARS)])
def test_in_an_older_journal_the_clock_begins_with_the_wall_clock_unless_that_is_far_ahead(
    store: SqliteStore, machine: Machine, ahead: int, begins: int
) -> None:
    InlineCommitter(store, COMMANDS).run(FoundSite("ab" * 16, "here"))
    (last_ns,) = store.query("SELECT at_ns FROM head")[0]
    machine.wall_ns = last_ns + ahead
    assert SiteClock(store.query, machine).now_ns() == CommitterClock(store, machine).now_ns() == last_ns + begins


def test_times_that_people_see_follow_the_wall_clock_back_and_those_of_batches_do_not() -> None:
    assert BatchTimes.of(NOON, NOON - HOUR, 7) == (NOON, NOON, 7)
    assert BatchTimes.of(NOON, NOON + STEP_NS // 2, 7) == (NOON + STEP_NS // 2 + 1, NOON + STEP_NS // 2 + 1, 7)
    assert BatchTimes.of(NOON, NOON + YEARS, 7) == (NOON, NOON + YEARS + 1, 7)


@asynccontextmanager
async def committing(folder: Path, clock: Clock) -> AsyncIterator[Journal]:
    """A committer in this process, and a client of it, both with *clock*."""
    paths, stop, timing = JournalPaths(folder), asyncio.Event(), Timing(clock=clock)
    store = SqliteStore(paths.database)
    InlineCommitter(store, COMMANDS).run(FoundSite("ab" * 16, "here"))
    running = asyncio.create_task(
        Server(store, {}, paths, CommitterSettings(reserve_bytes=1 << 16, timing=timing)).run(stop)
    )
    journal = await Journal.open(folder, "cli", timing)
    try:
        yield journal
    finally:
        await journal.close()
        stop.set()
        await running
        store.close()


@pytest.mark.parametrize("by_ns", [YEARS, -YEARS])
async def test_pins_of_backups_outlive_a_wall_clock_that_is_put_elsewhere(tmp_path: Path, by_ns: int) -> None:
    clock = AheadClock()
    async with committing(tmp_path, clock) as journal:
        await journal.pin("first", 1, clock.wall_ns() + HOUR)
        for _ in range(3):
            await journal.send(OpenSession("more"))
        clock.ahead_seconds = by_ns / 1e9
        assert await journal.horizons() == 1
        await journal.pin("second", 2, clock.wall_ns() + HOUR)
        await journal.pin("over", 3, clock.wall_ns() - 1)
        assert await journal.horizons() == 1
        clock.ahead_seconds = 0.0
        assert await journal.horizons() == 1
        with sqlite3.connect(tmp_path / "journal.db") as base:
            until = dict(base.execute("SELECT id, until_ns FROM pin"))
        base.close()
        assert until.keys() == {"first", "second", "over"}
        assert abs(until["first"] - until["second"]) < HOUR < until["second"] - until["over"] + HOUR // 2
