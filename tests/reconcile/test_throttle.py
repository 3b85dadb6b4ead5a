"""Copies give way to those who answer clients, and not for long."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.testing.memory import Memory
from gateway.reconcile.throttle import (
    ALL,
    HURRIED_SHARE,
    LEAST_SHARE,
    SLICE,
    THROTTLED,
    WAITED_PER_RUN,
    WAITED_SHARE,
    BackgroundThrottle,
    CpuContention,
    scheduler_times,
    share_of,
)
from gateway.timing import Timing
from tests.blocks.gated_backends import Silent
from tests.clocks import ManualClock, manual_timing
from tests.reconcile.shores import Shores

MS = 1_000_000
THROTTLE = Timing().throttle
DATA = b"a few bytes"


class Machine:
    """What the kernel tells of a thread, and the time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.told: tuple[int, int] | None = (5 * MS, 900 * MS)
        self.looks = 0
        self.crowd = CpuContention(Timing(clock=self.clock), self.scheduled)

    def scheduled(self) -> tuple[int, int] | None:
        self.looks += 1
        return self.told

    def passes(self, ran_ms: int, waited_ms: int, seconds: float = THROTTLE.look_seconds) -> bool:
        """So much later: whether somebody is in the way."""
        assert self.told is not None
        self.told = self.told[0] + ran_ms * MS, self.told[1] + waited_ms * MS
        self.clock.advance(seconds)
        return self.crowd.is_contended()


def test_somebody_is_in_the_way_where_this_thread_waits_longer_than_it_runs() -> None:
    machine = Machine()
    assert not machine.crowd.is_contended(), "what it waited for before it was looked at says nothing"
    assert not machine.passes(100, 100)
    assert not machine.passes(100, int(100 * WAITED_PER_RUN))
    assert machine.passes(100, int(100 * WAITED_PER_RUN) + 1)


def test_nobody_is_in_the_way_any_more_once_that_has_lasted() -> None:
    machine = Machine()
    machine.crowd.is_contended()
    assert machine.passes(1, 50)
    for _ in range(int(THROTTLE.calm_seconds / THROTTLE.look_seconds) - 1):
        assert machine.passes(10, 1)
    assert not machine.passes(10, 1)
    assert machine.passes(1, 50)


def test_the_kernel_is_not_asked_more_often_than_it_can_say_something_new() -> None:
    machine = Machine()
    machine.crowd.is_contended()
    for _ in range(8):
        assert not machine.passes(0, 50, THROTTLE.look_seconds / 16)
    assert machine.looks == 1
    assert machine.passes(0, 50)
    assert machine.looks == 2


def test_where_the_kernel_does_not_say_nobody_is_in_the_way() -> None:
    machine = Machine()
    machine.told = None
    for _ in range(3):
        machine.clock.advance(10.0)
        assert not machine.crowd.is_contended()


def test_the_kernel_tells_how_long_a_thread_waited_for_its_processor() -> None:
    told()
    (processor, *_) = os.sched_getaffinity(0)
    found: list[tuple[int, int]] = []

    def run() -> None:
        os.sched_setaffinity(0, {processor})  # of this thread alone
        found.append(told())
        until = time.monotonic() + 60
        while (
            any(now < then + 50 * MS for then, now in zip(found[0], told(), strict=True)) and time.monotonic() < until
        ):
            sum(range(10_000))
        found.append(told())

    burn = f"import os\nos.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", burn]) as other:
        try:
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        finally:
            other.kill()
    (ran, waited), (ran_then, waited_then) = found
    assert ran_then - ran >= 50 * MS
    assert waited_then - waited >= 50 * MS


def told() -> tuple[int, int]:
    found = scheduler_times()
    if found is None:
        pytest.skip("this kernel does not tell how long a thread waited for a processor")
    return found


def share(age_seconds: float, within_seconds: float) -> float:
    return share_of(age_seconds, within_seconds, THROTTLE.wait_most_seconds)


AGES = st.floats(0, 1_000)
PROMISES = st.floats(0.001, 31 * 86_400)


@given(AGES, AGES, PROMISES)
def test_the_older_the_oldest_copy_the_larger_its_share_of_the_time_and_half_its_promise_is_never_missed(
    one: float, other: float, within: float
) -> None:
    younger, older = sorted((one, other))
    assert share(younger, within) <= share(older, within)
    assert share(max(THROTTLE.wait_most_seconds, within * HURRIED_SHARE), within) == 1.0
    assert share(min(THROTTLE.wait_most_seconds, within * WAITED_SHARE), within) >= LEAST_SHARE


@given(AGES, PROMISES, st.booleans())
def test_no_copy_is_begun_within_a_share_of_its_promise_while_somebody_is_in_the_way_and_any_where_nobody_is(
    age: float, within: float, crowded: bool
) -> None:
    now_ns = 10**18
    allowed = BackgroundThrottle(lambda: crowded, Timing())(now_ns, now_ns - int(age * 1e9), within)
    if allowed < ALL:
        assert crowded
        assert age <= max(THROTTLE.wait_most_seconds, within * HURRIED_SHARE)
        assert (allowed == 0) == (age < min(THROTTLE.wait_most_seconds, within * WAITED_SHARE))
    elif crowded:
        assert age >= within * HURRIED_SHARE - 1e-6


def test_where_nothing_is_due_nothing_waits() -> None:
    assert BackgroundThrottle(lambda: True, Timing())(10**18, None, 900.0) == ALL


def test_behind_a_slice_of_copies_there_is_a_rest_in_proportion_to_it() -> None:
    (timing, clock), crowded = manual_timing(), True
    throttle = BackgroundThrottle(lambda: crowded, timing)

    def asked(age_seconds: float = 15.0) -> int:
        return throttle(10**18, 10**18 - int(age_seconds * 1e9), 900.0)

    assert asked() == SLICE
    clock.now = 0.25
    assert asked() == 0
    clock.now = 0.25 / LEAST_SHARE - 0.01
    assert asked() == 0
    clock.now = 0.25 / LEAST_SHARE + 0.01
    assert asked() == SLICE
    clock.now += 100.0
    assert asked() == 0, "a slice that took long"
    clock.now += THROTTLE.rest_most_seconds
    assert asked() == SLICE
    clock.now += 0.25
    assert asked(449.0) == 0, "there is a short rest"
    clock.now += 0.01
    assert asked(449.0) == SLICE
    assert asked(450.0) == ALL
    crowded = False
    assert asked() == ALL


# ---- the mover ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Shores]:
    shores = Shores(tmp_path)
    shores.keep("b0", "b1")
    await shores.plan()
    yield shores
    shores.close()


async def copies(site: Shores) -> int:
    return len(await site.stored(1))


async def test_copies_wait_while_somebody_is_in_the_way_and_are_made_at_once_when_nobody_is(site: Shores) -> None:
    crowded = True
    mover = site.new_mover(throttle=BackgroundThrottle(lambda: crowded, Timing()))
    await site.put(b"a", DATA)
    assert not await mover.step()
    assert (await copies(site), mover.held_back) == (0, True)
    assert THROTTLED.values[()] == 1
    crowded = False
    await site.move(mover)
    assert (await copies(site), mover.held_back) == (1, False)
    assert THROTTLED.values[()] == 0
    crowded = True
    await site.put(b"b", DATA)
    await site.move(mover)
    assert await copies(site) == 1


async def test_copies_that_have_waited_long_enough_are_made_whoever_is_in_the_way_and_the_others_with_them(
    site: Shores,
) -> None:
    mover = site.new_mover(throttle=BackgroundThrottle(lambda: True, Timing()))
    promise(site, 0.1 / WAITED_SHARE)
    began = time.monotonic()
    await site.put(b"old", DATA)
    while not await mover.step():
        assert await copies(site) == 0
        time.sleep(0.01)
        await site.put(b"young %d" % time.monotonic_ns(), DATA)
    assert time.monotonic() - began >= 0.1
    while mover._under_way:
        await mover.step()
    assert 1 < await copies(site) == site.rows("block")


async def test_no_more_copies_are_made_at_a_time_than_may_be(site: Shores) -> None:
    may = 2
    mover = site.new_mover(throttle=lambda *_: may)
    for n in range(5):
        await site.put(b"%d" % n, DATA)
    found: list[int] = []
    for _ in range(3):
        while await mover.step() and mover._under_way:
            pass
        found.append(await copies(site))
    assert found == [2, 4, 5]
    await site.put(b"later", DATA)
    may = 0
    assert not await mover.step()
    assert (await copies(site), mover.held_back) == (5, True)


def promise(site: Shores, seconds: float) -> None:
    policies = {name: replace(each, within_seconds=seconds) for name, each in site.topology.policies.items()}
    site.topology = replace(site.topology, policies=policies)


async def test_what_comes_while_others_are_copied_gives_way_anew(site: Shores) -> None:
    answers = iter([ALL, 0])
    mover = site.new_mover(throttle=lambda *_: next(answers))
    await site.put(b"a", DATA)
    assert await mover.step()
    assert await copies(site) == 1
    await site.put(b"b", DATA)
    assert not await mover.step()
    assert await copies(site) == 1


async def test_clients_who_write_on_and_on_do_not_keep_the_mover_from_ever_giving_way(tmp_path: Path) -> None:
    slow = Silent("b1", answered=1)
    site = Shores(tmp_path, Memory("b0"), slow)
    try:
        site.keep("b0", "b1")
        await site.plan()
        asked: list[int | None] = []

        def throttle(_now_ns: int, oldest_ns: int | None, _within_seconds: float) -> int:
            asked.append(oldest_ns)
            return 0 if len(asked) > 1 else ALL

        mover = site.new_mover(throttle=throttle)
        await site.put(b"a", DATA)
        await site.put(b"b", DATA)
        assert await mover.step()
        assert await copies(site) == 1
        await site.put(b"c", DATA)
        ending = asyncio.create_task(mover.step())
        await asyncio.sleep(0)
        slow.answers.set()
        assert await ending
        assert await copies(site) == 2
        assert not await mover.step()
        assert (len(asked), asked[1] is not None) == (2, True)
    finally:
        site.close()


@pytest.mark.parametrize("mine", [60.0, 600.0])
async def test_the_shortest_promise_counts(site: Shores, mine: float) -> None:
    seen: list[float] = []

    def note(_now_ns: int, _oldest_ns: int | None, within_seconds: float) -> int:
        seen.append(within_seconds)
        return 0

    promise(site, 600.0)
    policies = dict(site.topology.policies)
    site.topology = replace(site.topology, policies={**policies, "all": replace(policies["all"], within_seconds=mine)})
    await site.new_mover(throttle=note).step()
    assert seen == [min(600.0, mine)]
