"""Read orders and targets: pure values in, pure values out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.placement.order import Line, read_order
from gateway.placement.policy import Place, places, targets
from gateway.topology import BackendPlace, Cluster, Policy, Topology

NEAR = Place(1, "near", "a")
FAST = Place(2, "fast", "b")
SLOW = Place(3, "slow", "c")
CUT_OFF = Place(4, "cut-off", "d")
LINES = {frozenset("ab"): Line(0.01, 1e9, 0.02), frozenset("ac"): Line(0.2, 1e9, 0.0)}


@given(st.permutations([NEAR, FAST, SLOW, CUT_OFF]))
def test_copies_are_read_near_first_then_fast_and_last_those_without_a_line(copies: list[Place]) -> None:
    assert read_order(copies, "a", LINES) == [NEAR, FAST, SLOW, CUT_OFF]


@given(st.permutations([NEAR, FAST, SLOW, CUT_OFF]))
def test_a_broken_copy_is_the_last_to_be_tried_but_not_forgotten(copies: list[Place]) -> None:
    assert read_order(copies, "a", LINES, broken={1, 3}) == [FAST, CUT_OFF, NEAR, SLOW]


def test_of_two_equal_lines_the_cheaper_one_is_taken() -> None:
    cheap, dear = Place(9, "cheap", "c"), Place(8, "dear", "b")
    lines = {frozenset("ab"): Line(0.1, 1e9, 0.09), frozenset("ac"): Line(0.1, 1e9, 0.01)}
    assert read_order([dear, cheap], "a", lines) == [cheap, dear]


def test_a_write_is_answered_when_the_acknowledged_copies_stand_in_the_order_of_the_set() -> None:
    backends = {
        name: BackendPlace(name=name, type="local", cluster="a", path=name, calls=1, deadline_seconds=1.0)
        for name in ("one", "two", "three")
    }
    policy = Policy("twice", ("two", "one"), ("one", "two", "three"))
    topology = Topology("a", {"a": Cluster("a")}, {}, backends, {"twice": policy})
    known = places(topology, {"one": 12, "two": 11, "three": 10})
    assert [place.name for place in targets(policy, topology, known)] == ["two", "one"]
