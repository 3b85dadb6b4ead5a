"""What should be, in the journal's ids: what it depends on, it forgets with; and the fingerprint names just that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.reconcile.commands import LoseBackend
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.topology import Cluster
from tests.reconcile.shores import Shores


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Shores]:
    made = Shores(tmp_path)
    yield made
    made.close()


def learnt(site: Shores) -> tuple[bytes, set[int]]:
    """The fingerprint, and where a block on `b0` should be, by number."""
    assert site.targets.refresh()
    desired = site.targets.desired(site.policy, (site.ids[0],))
    return site.targets.fingerprint, {site.ids.index(each) for each in desired}


async def test_whatever_changes_what_should_be_changes_the_fingerprint_and_what_was_remembered(site: Shores) -> None:
    seen = [learnt(site)]
    site.keep("b0", "b1")
    seen.append(learnt(site))
    site.drain("b1")
    seen.append(learnt(site))
    site.drain("b1", False)
    assert learnt(site) == seen[1]
    site.keep("b1", "b0")
    assert learnt(site) == seen[1], "their order does not matter"
    await site.journal.send(LoseBackend("b0"))
    seen.append(learnt(site))
    assert [desired for _, desired in seen] == [{0}, {0, 1}, {0}, {1}]
    assert len({fingerprint for fingerprint, _ in seen}) == 4


def test_what_does_not_matter_to_where_blocks_should_be_leaves_the_fingerprint(site: Shores) -> None:
    before = learnt(site)
    policies = {name: replace(policy, ack_copies=1) for name, policy in site.topology.policies.items()}
    site.topology = replace(site.topology, policies=policies, clusters={"here": Cluster("here")}, home="there")
    assert learnt(site) == before


def test_another_process_makes_the_same_fingerprint(site: Shores) -> None:
    other = PlacementTargets(site.store, lambda: site.topology)
    assert other.refresh()
    assert other.fingerprint == learnt(site)[0] != b""


def test_a_block_of_a_policy_that_has_no_name_stays_where_it_is(site: Shores) -> None:
    site.keep("b1")
    assert site.targets.refresh()
    assert site.targets.desired(12345, tuple(site.ids[:2])) == set(site.ids[:2])
