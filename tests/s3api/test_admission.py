"""How connections are counted by their addresses, and who makes room for whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3api.http.admission import EVICTION_SCAN_MOST, Admission, ConnectionLimit, address_group


@dataclass(eq=False)
class Visitor:
    address: str
    idle: bool = True
    gone: bool = False

    def evict(self) -> None:
        self.gone = True


@given(
    limit=st.integers(1, 6),
    steps=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.integers(0, 9)), max_size=60),
)
def test_a_crowd_is_bounded_and_whoever_has_most_makes_room_first(limit, steps):
    crowd, inside = ConnectionLimit(limit), []
    for address, idle, leaver in steps:
        if leaver < 3 and inside:
            crowd.remove(inside.pop(leaver % len(inside)))
        before = Counter(each.address for each in inside)
        visitor = Visitor(address, idle)
        entered = crowd.admit(visitor)
        (*gone,) = (each for each in inside if each.gone)
        assert entered == (len(inside) < limit or bool(gone))
        assert len(gone) <= (len(inside) == limit)
        for each in gone:
            assert each.idle
            assert before[each.address] == max(before.values())
            inside.remove(each)
        inside += [visitor] * entered
        assert len(crowd) == len(inside) <= limit
    for each in inside * 2:
        crowd.remove(each)
    assert len(crowd) == 0


def test_one_who_has_few_is_not_displaced_by_one_who_has_many():
    crowd = ConnectionLimit(10)
    few, many = [Visitor("few") for _ in range(3)], [Visitor("many") for _ in range(100)]
    for each in [*few, *many]:
        assert crowd.admit(each)
    assert not any(each.gone for each in few)
    assert [each for each in many if not each.gone] == many[-7:], "the oldest go first"


def test_behind_many_that_are_at_work_an_idle_one_is_found_in_the_end():
    crowd = ConnectionLimit(3 * EVICTION_SCAN_MOST)
    for number in range(3 * EVICTION_SCAN_MOST):
        assert crowd.admit(Visitor("a", idle=number == 2 * EVICTION_SCAN_MOST))
    assert [crowd.admit(Visitor("a", idle=False)) for _ in range(4)].count(True) == 1


def test_a_successor_is_counted_in_the_place_of_who_it_succeeds():
    crowd = ConnectionLimit(1)
    handshake, connection = Visitor("a"), Visitor("a")
    assert crowd.admit(handshake)
    assert crowd.replace(handshake, connection)
    crowd.remove(handshake)
    assert len(crowd) == 1
    crowd.remove(connection)
    assert len(crowd) == 0
    assert not crowd.replace(handshake, connection)
    assert len(crowd) == 0


def test_unfinished_heads_of_one_address_leave_room_for_those_of_others():
    admission = Admission(10, 100)
    while admission.reserve_head("a", 10):
        pass
    assert admission.heads_bytes == 50
    assert admission.reserve_head("b", 20)
    admission.release_head("a", 50)
    admission.release_head("b", 20)
    assert admission.heads_bytes == 0


@pytest.mark.parametrize(
    ("peer", "group"),
    [
        (("192.0.2.7", 9), "192.0.2.7"),
        (("::ffff:192.0.2.7", 9, 0, 0), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 9, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 9, 0, 2), "fe80::/64"),
        ("", ""),
        (None, ""),
        ("/a/socket", "/a/socket"),
    ],
)
def test_addresses_that_are_one_partys_count_as_one(peer, group):
    assert address_group(peer) == group
