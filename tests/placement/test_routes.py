"""The order of copies from what is expected, measured and broken: pure values in, pure values out."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gateway.placement.breaker import CircuitState
from gateway.placement.latency import NEARBY, UNKNOWN, LatencyEstimator, Speed
from gateway.placement.order import Candidate, explore, read_order
from gateway.placement.policy import PlacedBackend
from gateway.placement.routes import HEDGED_BURST, SLOW_TIMES, Routes
from gateway.timing.durations import RoutesTiming
from gateway.topology import Line

NEAR, FAST, SLOW, CUT_OFF = (
    PlacedBackend(1, "near", "a"),
    PlacedBackend(2, "fast", "b"),
    PlacedBackend(3, "slow", "c"),
    PlacedBackend(4, "far", "d"),
)
PLACES = [NEAR, FAST, SLOW, CUT_OFF]
LINES = {
    frozenset(pair): Line(frozenset(pair), latency_s, 1e9, price)
    for pair, latency_s, price in (("ab", 0.01, 0.02), ("ac", 0.2, 0.0))
}
KIB, MIB = 1 << 10, 1 << 20


def routes(seed: int = 0) -> Routes:
    return Routes(PLACES, "a", LINES, Random(seed))


ways = st.lists(
    st.builds(Candidate, st.integers(1, 9), st.booleans(), st.floats(0, 10), st.floats(0, 1), st.booleans()),
    unique_by=lambda way: way.id,
)
calls = st.lists(
    st.tuples(
        st.sampled_from(["answered", "refused", "failed", "outrun"]),
        st.integers(1, 4),
        st.sampled_from([4 * KIB, 100 * KIB, MIB, 8 * MIB]),
        st.floats(0.0001, 30),
    ),
    max_size=60,
)


def tell(known: Routes, what: str, backend: int, size: int, seconds: float, now_s: float) -> None:
    known.record_call(backend, now_s)
    match what:
        case "answered":
            known.record_response(backend, size, seconds, now_s)
        case "refused":
            known.record_answer_without_copy(backend, now_s)
        case "failed":
            known.record_failure(backend, "down", now_s)
        case "outrun":
            known.record_overtaken(backend, seconds, now_s)


@given(ways, st.randoms())
def test_an_order_names_every_copy_once_near_ones_first_and_broken_ones_last(
    found: list[Candidate], chance: Random
) -> None:
    chance.shuffle(found)
    order = read_order(found)
    assert sorted(order) == sorted(found)
    assert [way.broken for way in order] == sorted(way.broken for way in found)
    for broken in (False, True):
        assert [not way.near for way in order if way.broken is broken] == sorted(
            not way.near for way in found if way.broken is broken
        )


@given(ways, st.integers(0, 1000))
def test_a_read_that_explores_leaves_out_no_copy_nor_crosses_a_line_nor_asks_a_broken_one(
    found: list[Candidate], seed: int
) -> None:
    order = read_order(found)
    chance = Random(seed)
    for _ in range(50):
        other = explore(order, chance)
        assert sorted(other) == sorted(order)
        if other != order:
            assert other[0].near == order[0].near
            assert not other[0].broken


@given(calls, st.sampled_from([4 * KIB, 8 * MIB]), st.integers(0, 99))
def test_whatever_was_measured_an_order_is_a_permutation_with_the_near_copy_in_front_unless_it_is_broken(
    told: list[tuple[str, int, int, float]], size: int, seed: int
) -> None:
    known = routes(seed)
    for at, call in enumerate(told):
        tell(known, *call, now_s=float(at))
        order = known.order([4, 3, 2, 1], size, float(at))
        assert sorted(order) == [1, 2, 3, 4]
        health_by_name = known.health_by_name(float(at))
        broken = {
            place.id
            for place in PLACES
            if place.name in health_by_name and health_by_name[place.name].state is CircuitState.OPEN
        }
        assert all(each in broken for each in order[len(order) - len(broken) :])
        assert (order[0] == NEAR.id) is (NEAR.id not in broken or len(broken) == 4)
        assert known.static_order([3, 4, 1, 2]) == [1, 2, 3, 4]


def test_before_anything_was_measured_the_topology_decides() -> None:
    assert routes().order([4, 3, 2, 1], 8 * MIB, 0.0) == [1, 2, 3, 4]
    assert Routes(chance=Random(0)).order([7, 3], MIB, 0.0) == [3, 7], "nobody is known, and nobody left out"


def test_what_was_measured_takes_the_place_of_what_the_topology_says() -> None:
    known = routes()
    for _ in range(3):
        known.record_response(FAST.id, 4 * KIB, 0.4, 0.0)
        known.record_response(CUT_OFF.id, 4 * KIB, 0.02, 0.0)
    assert known.order([1, 2, 3, 4], 4 * KIB, 0.0) == [1, 4, 3, 2]
    assert known.static_order([1, 2, 3, 4]) == [1, 2, 3, 4], "what is at hand is not slow"
    reasons = known.explain([1, 2, 3, 4], 4 * KIB, 0.0)
    assert [reason.id for reason in reasons] == [1, 4, 3, 2]
    assert "in this cluster" in str(reasons[0])
    assert "by the topology" in str(reasons[0])
    assert "measured over 3 reads" in str(reasons[1])


def test_of_two_equal_lines_the_cheaper_one_is_taken() -> None:
    cheap, dear = PlacedBackend(9, "cheap", "c"), PlacedBackend(8, "dear", "b")
    lines = {frozenset(("a", x)): Line(frozenset(("a", x)), 0.1, 1e9, price) for x, price in (("b", 0.09), ("c", 0.01))}
    assert Routes([dear, cheap], "a", lines, Random(0)).order([8, 9], MIB, 0.0) == [9, 8]


def test_a_topology_that_changed_counts_at_once_and_what_was_measured_stays() -> None:
    known = routes()
    known.record_response(SLOW.id, 4 * KIB, 0.3, 0.0)
    before = known.version
    known.set_topology(
        [PlacedBackend(1, "near", "b"), *PLACES[1:]], "c", {frozenset("bc"): Line(frozenset("bc"), 0.1, 1e9, 0.0)}
    )
    assert known.version > before
    assert known.static_order([1, 2, 3, 4])[0] == SLOW.id
    assert known.explain([3], 4 * KIB, 0.0)[0].reads == 1


def test_a_backend_that_the_topology_names_no_more_counts_as_one_of_an_unknown_cluster() -> None:
    known = routes()
    known.set_topology(PLACES[1:], "a", LINES)
    assert known.static_order([1, 2, 3]) == [2, 3, 1]
    assert known.health_by_name(0.0).keys() == {"fast", "slow", "far"}


def test_one_read_in_a_hundred_tries_another_copy_than_the_best() -> None:
    known = Routes(PLACES, "z", {}, Random(4))
    first = [known.order([1, 2], MIB, 0.0)[0] for _ in range(10_000)]
    assert 50 < first.count(2) < 150


# ---- speeds -------------------------------------------------------------------------------------------------------


@given(st.floats(0.0002, 2), st.floats(1e6, 5e9), st.floats(0.0002, 2), st.floats(1e6, 5e9))
def test_after_enough_reads_the_time_expected_is_the_time_it_takes(
    latency_s: float, rate: float, expected_s: float, expected_rate: float
) -> None:
    truth, measured = Speed(latency_s, rate), LatencyEstimator(Speed(expected_s, expected_rate))
    for _ in range(200):
        for size in (4 * KIB, 8 * MIB):
            measured.record(size, truth.seconds(size))
    for size in (4 * KIB, 8 * MIB):
        assert truth.seconds(size) / 2.2 <= measured.speed.seconds(size) <= 2.2 * truth.seconds(size)


@given(st.sampled_from([NEARBY, UNKNOWN, Speed(0.2, 1e8)]), st.floats(0.001, 20), st.integers(1, 50))
def test_reads_of_one_size_tell_what_that_size_takes(prior: Speed, seconds: float, times: int) -> None:
    for size in (4 * KIB, 8 * MIB):
        measured = LatencyEstimator(prior)
        for _ in range(times):
            measured.record(size, seconds)
        assert seconds / 2.2 <= measured.speed.seconds(size) <= 2.2 * seconds + prior.seconds(0) * 0.5


def test_a_short_read_over_a_narrow_line_does_not_put_its_bytes_down_to_the_first_one() -> None:
    measured = LatencyEstimator(Speed(0.5, 1e6))
    measured.record(100_000, 0.01 + 0.1)
    assert abs(measured.speed.first_byte_s - 0.055) < 1e-9, "half of it at least is waiting"
    measured = LatencyEstimator(Speed(0.5, 1e6))
    measured.record(100_000, 0.3 + 0.1)
    assert abs(measured.speed.first_byte_s - 0.3) < 1e-9


def test_one_read_that_hung_does_not_change_much_and_many_slow_ones_do() -> None:
    measured = LatencyEstimator(Speed(0.1, 1e9))
    for _ in range(20):
        measured.record(KIB, 0.01)
    measured.record(KIB, 60.0)
    assert measured.speed.first_byte_s < 0.014
    for _ in range(80):
        measured.record(KIB, 60.0)
    assert measured.speed.first_byte_s > 50


def test_a_silent_backend_is_not_waited_for_longer_each_time() -> None:
    known = routes()
    known.record_response(NEAR.id, 8 * MIB, 0.5, 0.0)
    before = known.hedge_after_s(NEAR.id, CUT_OFF.id, 8 * MIB)
    for _ in range(30):
        known.record_overtaken(NEAR.id, known.hedge_after_s(NEAR.id, CUT_OFF.id, 8 * MIB), 0.0)
    assert known.hedge_after_s(NEAR.id, CUT_OFF.id, 8 * MIB) == before


# ---- slowness -----------------------------------------------------------------------------------------------------


def test_patience_is_several_times_what_is_expected_with_a_floor_and_longer_before_a_dearer_line() -> None:
    known = routes()
    assert known.hedge_after_s(NEAR.id, SLOW.id, KIB) == RoutesTiming().hedge_seconds
    assert known.hedge_after_s(SLOW.id, NEAR.id, KIB) > SLOW_TIMES * 0.2
    assert known.hedge_after_s(NEAR.id, FAST.id, KIB) > RoutesTiming().hedge_seconds


def test_hedging_is_at_most_one_read_in_twenty_beyond_a_first_burst() -> None:
    known = routes()
    reads = 10_000
    hedged = 0
    for _ in range(reads):
        known.record_read()
        hedged += known.may_hedge(NEAR.id, 0.0)
    assert hedged <= HEDGED_BURST + 0.05 * reads + 1
    assert hedged >= 0.05 * reads - 1


def test_however_long_nobody_hedged_no_more_than_a_burst_does_at_once() -> None:
    known = routes()
    for _ in range(10_000):
        known.record_read()
    hedged = 0
    while known.may_hedge(NEAR.id, 0.0):
        hedged += 1
    assert hedged == HEDGED_BURST


def test_going_over_from_what_does_not_work_is_no_hedging() -> None:
    known = routes()
    while known.may_hedge(NEAR.id, 0.0):
        pass
    for _ in range(5):
        known.record_failure(NEAR.id, "down", 0.0)
    assert known.may_hedge(NEAR.id, 0.0)
    assert not known.may_hedge(SLOW.id, 0.0)


def test_a_block_that_is_absent_does_not_make_a_backend_broken() -> None:
    known = routes()
    for _ in range(4):
        known.record_failure(NEAR.id, "down", 0.0)
    for _ in range(50):
        known.record_answer_without_copy(NEAR.id, 0.0)
    assert known.health_by_name(0.0)["near"].state is CircuitState.CLOSED
    for _ in range(5):
        known.record_failure(NEAR.id, "down", 0.0)
    (reason,) = known.explain([NEAR.id], KIB, 0.5)
    assert str(reason) == "last, since it does not work: 5 failures in a row, the last: down"
