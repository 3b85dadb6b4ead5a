"""A backend in trouble rests longer each time, and no longer than it takes to see that it is well."""

from __future__ import annotations

import pytest

from gateway.placement.backend_backoff import REJECTED_BLOCKS, BackendBackoff
from gateway.timing import Timing
from tests.clocks import ManualClock

FIRST_SECONDS = Timing().backend_backoff.first_seconds
MOST_SECONDS = Timing().backend_backoff.most_seconds


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def resting(clock: ManualClock) -> BackendBackoff[int]:
    return BackendBackoff(clock, FIRST_SECONDS, MOST_SECONDS)


def test_it_rests_for_a_while_twice_as_long_each_time_up_to_a_limit(
    resting: BackendBackoff[int], clock: ManualClock
) -> None:
    waited = []
    for _ in range(9):
        assert resting.record_failure(1, "down")
        began = clock.now
        while 1 in resting:
            clock.now += 0.5
        waited.append(clock.now - began)
    assert waited == [min(FIRST_SECONDS * 2**n, MOST_SECONDS) for n in range(9)]


def test_those_that_hear_of_the_same_trouble_do_not_make_it_longer(
    resting: BackendBackoff[int], clock: ManualClock
) -> None:
    assert resting.record_failure(1, "down")
    for _ in range(10):
        assert not resting.record_failure(1, "down too")
    assert resting.reasons() == {1: "down too"}
    clock.now += FIRST_SECONDS
    assert 1 not in resting


def test_one_that_is_well_works_again_at_once_and_is_not_held_to_what_was(
    resting: BackendBackoff[int], clock: ManualClock
) -> None:
    for _ in range(5):
        resting.record_failure(1, "down")
        clock.now += MOST_SECONDS
    resting.record_failure(1, "down")
    resting.record_failure(2, "down")
    resting.record_success([1, 3])
    assert 1 not in resting
    assert 2 in resting
    assert (resting.reasons(), len(resting)) == ({2: "down"}, 1)
    resting.record_failure(1, "down again")
    clock.now += FIRST_SECONDS
    assert 1 not in resting


def test_who_rested_is_tried_by_one_block_at_a_time_until_it_is_well(
    resting: BackendBackoff[int], clock: ManualClock
) -> None:
    one, two = b"one", b"two"
    assert resting.allows(1, one)
    resting.record_failure(1, "down")
    assert not resting.allows(1, one)
    clock.now += FIRST_SECONDS
    assert resting.allows(1, one)
    assert resting.allows(1, two)
    resting.start_trial([1, 2], one)
    assert resting.allows(1, one)
    assert not resting.allows(1, two)
    assert resting.allows(2, two), "there was no trouble"
    resting.start_trial([1], two)
    resting.end_trial(two)
    assert not resting.allows(1, two)
    resting.end_trial(one)
    assert resting.allows(1, two)
    resting.start_trial([1], two)
    resting.record_success([1])
    assert resting.allows(1, one)


def test_what_was_begun_before_the_trouble_says_nothing_against_it(
    resting: BackendBackoff[int], clock: ManualClock
) -> None:
    began = clock.monotonic()
    clock.now += 1.0
    resting.record_failure(1, "down")
    resting.record_success([1], began)
    assert 1 in resting
    clock.now += FIRST_SECONDS
    resting.record_success([1], clock.monotonic())
    assert not resting


def test_who_asks_to_be_left_alone_is_left_alone_but_not_for_ever(
    resting: BackendBackoff[int], clock: ManualClock
) -> None:
    resting.record_failure(1, "slow down", 7.0)
    clock.now += 6.5
    assert 1 in resting
    clock.now += 0.5
    assert 1 not in resting
    resting.record_failure(2, "slow down", 1e6)
    clock.now += MOST_SECONDS
    assert 2 not in resting


def test_one_block_that_is_said_to_be_damaged_is_its_own_fault_and_many_in_a_row_are_not(
    resting: BackendBackoff[int],
) -> None:
    for _ in range(20):
        assert not resting.record_rejection(1, b"one")
    found = [resting.record_rejection(1, bytes([n])) for n in range(REJECTED_BLOCKS)]
    assert found == [False] * (REJECTED_BLOCKS - 2) + [True] * 2
    assert not resting.record_rejection(2, b"one")
    resting.record_success([1])
    assert not resting.record_rejection(1, b"two"), "it stored something in between"


def test_a_trouble_is_told_no_more_once_nobody_has_asked_for_long(
    resting: BackendBackoff[int], clock: ManualClock
) -> None:
    resting.record_failure(1, "down")
    clock.now += FIRST_SECONDS + MOST_SECONDS
    assert resting.reasons() == {1: "down"}
    clock.now += 2 * MOST_SECONDS
    assert resting.reasons() == {}
