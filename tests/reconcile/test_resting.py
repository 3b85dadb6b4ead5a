"""A backend in trouble rests longer each time, and no longer than it takes to see that it is well."""

from __future__ import annotations

import pytest

from gateway.reconcile.resting import FIRST_SECONDS, MOST_SECONDS, Resting


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def resting(clock: Clock) -> Resting:
    return Resting(clock)


def test_it_rests_for_a_while_twice_as_long_each_time_up_to_a_limit(resting: Resting, clock: Clock) -> None:
    waited = []
    for _ in range(9):
        assert resting.trouble(1, "down")
        began = clock.now
        while 1 in resting:
            clock.now += 0.5
        waited.append(clock.now - began)
    assert waited == [min(FIRST_SECONDS * 2**n, MOST_SECONDS) for n in range(9)]


def test_those_that_hear_of_the_same_trouble_do_not_make_it_longer(resting: Resting, clock: Clock) -> None:
    assert resting.trouble(1, "down")
    for _ in range(10):
        assert not resting.trouble(1, "down too")
    assert resting.words == {1: "down"}
    clock.now += FIRST_SECONDS
    assert 1 not in resting


def test_one_that_is_well_works_again_at_once_and_is_not_held_to_what_was(resting: Resting, clock: Clock) -> None:
    for _ in range(5):
        resting.trouble(1, "down")
        clock.now += MOST_SECONDS
    resting.trouble(1, "down")
    resting.trouble(2, "down")
    resting.well([1, 3])
    assert 1 not in resting
    assert 2 in resting
    assert (resting.words, len(resting)) == ({2: "down"}, 1)
    resting.trouble(1, "down again")
    clock.now += FIRST_SECONDS
    assert 1 not in resting
