"""A circuit breaker: opened by failures, tried again after a pause, closed by an answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.placement.breaker import Breaker, BreakerLimits, CircuitState
from gateway.timing.durations import RoutesTiming

LIMITS = BreakerLimits(in_a_row=5, share=0.5, of_at_least=20)
TIMING = RoutesTiming(window_seconds=30, open_first_seconds=1, open_most_seconds=60)


def opened(now_s: float = 0.0) -> Breaker:
    breaker = Breaker(TIMING, LIMITS)
    assert [breaker.record_failure(now_s, "down") for _ in range(5)] == [False] * 4 + [True]
    return breaker


def test_it_opens_after_failures_in_a_row_and_says_why() -> None:
    health = opened(7.0).health(7.5)
    assert health.state is CircuitState.OPEN
    assert health.why == "5 failures in a row, the last: down"
    assert (health.since_s, health.retry_s) == (7.0, 8.0)


def test_an_answer_in_between_breaks_the_row() -> None:
    breaker = Breaker(TIMING, LIMITS)
    for _ in range(4):
        breaker.record_failure(0.0, "down")
    breaker.record_success(0.0)
    for _ in range(4):
        assert not breaker.record_failure(0.0, "down")
    assert breaker.health(0.0).state is CircuitState.CLOSED


def test_it_opens_when_every_other_call_of_many_fails() -> None:
    breaker = Breaker(TIMING, LIMITS)
    found = []
    for at in range(10):
        breaker.record_success(float(at))
        found.append(breaker.record_failure(float(at), "down"))
    assert found == [False] * 9 + [True]
    assert breaker.health(9.0).why == "10 failures in 20 calls, the last: down"


def test_failures_of_long_ago_do_not_count_in_the_share() -> None:
    breaker = Breaker(TIMING, LIMITS)
    for at in range(9):
        breaker.record_success(float(at))
        breaker.record_failure(float(at), "down")
    for at in range(100, 109):
        breaker.record_success(float(at))
        assert not breaker.record_failure(float(at), "down")


def test_after_the_pause_one_call_finds_out_and_each_failure_of_those_doubles_the_pause_up_to_a_limit() -> None:
    breaker = opened()
    now, pauses = 0.0, []
    for _ in range(8):
        health = breaker.health(now)
        pauses.append(health.retry_s - now)
        now = health.retry_s
        assert not breaker.is_open(now)
        assert breaker.health(now).state is CircuitState.HALF_OPEN
        breaker.record_call(now)
        assert breaker.is_open(now), "one call at a time finds out"
        breaker.record_failure(now, "still down")
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_who_asks_it_while_it_is_open_and_fails_does_not_make_the_pause_longer() -> None:
    breaker = opened()
    for _ in range(20):
        breaker.record_call(0.5)
        breaker.record_failure(0.5, "down")
    assert breaker.health(0.5).retry_s == 1.0


def test_of_several_calls_that_fail_together_only_the_one_that_finds_out_makes_the_pause_longer() -> None:
    breaker = opened()
    breaker.record_call(1.0)
    for _ in range(10):
        breaker.record_failure(1.5, "down")
    assert breaker.health(1.5).retry_s == 1.5 + 2.0


def test_a_call_that_never_says_how_it_went_is_followed_by_another_after_the_pause() -> None:
    breaker = opened()
    breaker.record_call(1.0)
    assert breaker.is_open(1.5)
    assert not breaker.is_open(2.0)


def test_an_answer_closes_it_and_the_next_time_begins_with_the_first_pause() -> None:
    breaker = opened()
    breaker.record_call(1.0)
    breaker.record_failure(1.0, "down")
    breaker.record_call(3.0)
    assert breaker.record_success(3.0)
    assert breaker.health(3.0) == ("closed", "", 0.0, 0.0)
    assert not breaker.record_success(3.0)
    for _ in range(5):
        breaker.record_failure(4.0, "down")
    assert breaker.health(4.0).retry_s == 5.0


def test_once_it_closes_what_failed_before_counts_no_more() -> None:
    breaker = Breaker(TIMING, LIMITS)
    for _ in range(9):
        breaker.record_success(0.0)
        breaker.record_failure(0.0, "down")
    for _ in range(4):
        breaker.record_failure(0.0, "down")
    assert breaker.health(0.0).state is CircuitState.OPEN
    breaker.record_call(1.0)
    assert breaker.record_success(1.0)
    for _ in range(4):
        assert not breaker.record_failure(1.0, "down")


@given(st.lists(st.tuples(st.sampled_from(["asked", "answered", "failed"]), st.floats(0, 5)), max_size=200))
def test_whatever_happens_it_is_open_only_after_failures_for_a_bounded_time_and_never_after_an_answer(
    calls: list[tuple[str, float]],
) -> None:
    breaker, now, failures, row = Breaker(TIMING, LIMITS), 0.0, 0, 0
    for what, later in calls:
        now += later
        was = breaker.health(now).state
        match what:
            case "asked":
                breaker.record_call(now)
            case "answered":
                assert breaker.record_success(now) is (was is not CircuitState.CLOSED)
                row = 0
                assert breaker.health(now).state is CircuitState.CLOSED
            case "failed":
                failures, row = failures + 1, row + 1
                if breaker.record_failure(now, "down"):
                    assert was is CircuitState.CLOSED
                    assert row >= LIMITS.in_a_row or failures >= LIMITS.share * LIMITS.of_at_least
        health = breaker.health(now)
        assert breaker.is_open(now) is (health.state is CircuitState.OPEN)
        assert health.state is CircuitState.CLOSED or health.retry_s <= now + TIMING.open_most_seconds
        assert row < LIMITS.in_a_row or health.state is not CircuitState.CLOSED
