"""Which copies a config makes and drops: what the keeper would do to the same blocks, and what the lines cost."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gateway.placement.desired import StoredBlock, desired
from gateway.placement.movement import BlockGroup, movement
from gateway.topology import BackendPlace, Line, Policy, Topology

GIB = 1 << 30
NAMES = ("disk", "near", "far")
CLUSTERS = {"disk": "home", "near": "cloud", "far": "other"}


def topology(*keep: str, drain: str = "") -> Topology:
    places = {name: BackendPlace(name, "local", CLUSTERS[name], 8, 60.0, name == drain, f"/{name}") for name in NAMES}
    lines = [
        Line(frozenset({"home", cluster}), 0.01, 1e9, price) for cluster, price in (("cloud", 0.02), ("other", 0.05))
    ]
    return Topology(
        home="home",
        clusters={},
        lines={line.clusters: line for line in lines},
        backends=places,
        policies={"default": Policy("default", keep or ("disk",), keep or ("disk",))},
        recheck_seconds=0.0,
    )


def group(*held: str, blocks: int = 1, size: int = GIB) -> BlockGroup:
    return BlockGroup(StoredBlock("default", frozenset(held)), blocks, size)


def test_a_copy_crosses_the_lines_from_the_cheapest_source_and_to_its_backend() -> None:
    found = movement([group("near", "far", blocks=3, size=10 * GIB)], topology("disk", "far"), ())
    (made,) = found.makes
    assert (made.backend, made.source, made.copies, made.bytes, made.lines) == (
        "disk", "near", 3, 10 * GIB, ("cloud-home",)
    )  # fmt: skip
    assert round(made.price, 6) == 0.2
    assert [(each.backend, each.copies) for each in found.drops] == [("near", 3)]
    (far,) = movement([group("near")], topology("near", "far"), ()).makes
    assert (far.lines, round(far.price, 6)) == (("cloud-home", "home-other"), 0.07)


def test_a_backend_that_drains_or_is_lost_is_no_target() -> None:
    assert movement([group("disk")], topology("disk", "near", drain="near"), ()).makes == ()
    assert movement([group("disk")], topology("disk", "near"), ("near",)).makes == ()
    (drop,) = movement([group("disk", "near")], topology("disk", "near", drain="near"), ()).drops
    assert drop.backend == "near"


held_sets = st.sets(st.sampled_from(NAMES), min_size=1)


@given(
    groups=st.lists(st.tuples(held_sets, st.integers(1, 5), st.integers(0, 100)), max_size=8),
    keep=held_sets,
    lost=st.sets(st.sampled_from(NAMES), max_size=1),
)
def test_making_and_dropping_brings_each_block_where_it_should_be(
    groups: list[tuple[set[str], int, int]], keep: set[str], lost: set[str]
) -> None:
    wanted_by = replace(topology(*sorted(keep)))
    rows = [group(*held, blocks=blocks, size=size) for held, blocks, size in groups]
    found = movement(rows, wanted_by, lost)
    for name in NAMES:
        before = sum(row.blocks for row in rows if name in row.block.held and name not in lost)
        after = sum(row.blocks for row in rows if name in desired(row.block, wanted_by, lost))
        made = sum(each.copies for each in found.makes if each.backend == name)
        dropped = sum(each.copies for each in found.drops if each.backend == name)
        assert before + made - dropped == after
    assert found.price >= 0
