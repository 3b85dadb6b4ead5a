"""Where a write goes: pure values in, pure values out."""

from __future__ import annotations

from gateway.placement.policy import places, targets
from gateway.topology import BackendPlace, Cluster, Policy, Topology


def test_a_write_is_answered_when_the_acknowledged_copies_stand_in_the_order_of_the_set() -> None:
    backends = {
        name: BackendPlace(name=name, type="local", cluster="a", path=name, calls=1, deadline_seconds=1.0)
        for name in ("one", "two", "three")
    }
    policy = Policy("twice", ("two", "one"), ("one", "two", "three"))
    topology = Topology("a", {"a": Cluster("a")}, {}, backends, {"twice": policy})
    known = places(topology, {"one": 12, "two": 11, "three": 10})
    assert [place.name for place in targets(policy, topology, known)] == ["two", "one"]
