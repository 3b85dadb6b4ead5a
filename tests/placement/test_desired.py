"""What should be: never less than the policy keeps, never where it drains, and stable once it is reached."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.placement.desired import StoredBlock, desired
from gateway.topology import BackendPlace, Policy, Topology

NAMES = ("a", "b", "c", "d", "e")


def place(name: str, drain: bool = False) -> BackendPlace:
    return BackendPlace(name, "local", "here", 8, 60.0, drain, f"/blocks/{name}")


def topology_of(policies: dict[str, tuple[str, ...]], drains: set[str], names: tuple[str, ...] = NAMES) -> Topology:
    return Topology(
        home="here",
        clusters={},
        lines={},
        backends={name: place(name, name in drains) for name in names},
        policies={name: Policy(name, keep[:1], keep) for name, keep in policies.items()},
    )


names = st.sets(st.sampled_from(NAMES))
keeps = st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple)
topologies = st.builds(
    lambda one, other, drains: topology_of({"default": one, "far": other}, drains), keeps, keeps, names
)
facts = st.builds(StoredBlock, st.sampled_from(["default", "far", "gone"]), names.map(frozenset))


@given(facts, topologies, names)
def test_it_asks_for_all_that_the_policy_keeps_and_nothing_that_drains_or_is_lost(
    block: StoredBlock, topology: Topology, lost: set[str]
) -> None:
    policy = topology.policies.get(block.policy)
    assume(policy is not None)
    kept = frozenset(topology.kept_on(policy)) - lost
    assert desired(block, topology, lost) == (kept or block.held - lost)


@given(facts, topologies, names)
def test_what_is_reached_stays(block: StoredBlock, topology: Topology, lost: set[str]) -> None:
    first = desired(block, topology, lost)
    assert desired(block._replace(held=first), topology, lost) == first


@given(facts, topologies, names)
def test_a_block_with_a_copy_is_never_left_without_one(block: StoredBlock, topology: Topology, lost: set[str]) -> None:
    assume(block.held - lost)
    found = desired(block, topology, lost)
    assert found
    assert not found & lost


def test_a_policy_that_the_config_lost_keeps_what_it_has() -> None:
    topology = topology_of({"default": ("a",)}, set())
    assert desired(StoredBlock("gone", frozenset("bc")), topology) == {"b", "c"}


def test_and_if_all_of_that_drains_what_the_default_keeps() -> None:
    topology = topology_of({"default": ("a",)}, {"b", "c"})
    assert desired(StoredBlock("gone", frozenset("bc")), topology) == {"a"}
    half = replace(topology, backends=topology.backends | {"c": place("c")})
    assert desired(StoredBlock("gone", frozenset("bc")), half) == {"c"}


def test_a_backend_that_the_config_lost_is_left() -> None:
    topology = topology_of({"default": ("a",)}, set(), ("a",))
    assert desired(StoredBlock("default", frozenset("ab")), topology) == {"a"}
