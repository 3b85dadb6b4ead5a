"""A backend that is full takes nothing, but it is read and emptied all the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backends import errors
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway.placement import backend_backoff
from gateway.placement.commands import NamePolicy
from gateway.timing import parse_timing
from tests.reconcile.shores import PATIENCE, Shores

DATA = b"x" * 100_000
TIMING = parse_timing(f"{PATIENCE}; block_backoff.first_seconds=0")
"""A block is tried again at once, and a backend that failed is left alone until a test says otherwise."""


@pytest.mark.parametrize("error", [errors.Full, errors.Corrupted])
async def test_a_backend_that_stores_nothing_is_emptied_while_what_should_be_put_there_waits(
    tmp_path: Path, error: type[errors.BackendError]
) -> None:
    plan = FaultPlan()
    site = Shores(tmp_path, Memory("b0"), Faulty(Memory("b1"), plan), timing=TIMING)
    site.keep("b1")
    for n in range(6):
        await site.put(b"old/%d" % n, DATA)
    await site.move()
    assert set(site.held()) == {(1,)}
    plan.add(Fault(FaultKind.ERROR, verb="put", error=error))
    site.keep("b0")
    policies = {**site.topology.policies, "default": replace(site.topology.policies["default"], keep=("b1",))}
    site.topology = replace(site.topology, policies=policies)
    site.policy = site.committer.run(NamePolicy("default"))
    for n in range(8):
        await site.put(b"new/%d" % n, DATA)
    await site.move()
    assert set(site.held()) == {(0,)}
    assert await site.stored(1) == {}, "what should not be there any more is gone"
    assert len(site.work_rows()) == 8
    assert len([verb for verb, _, _ in plan.struck if verb == "put"]) <= 8 + backend_backoff.REJECTED_BLOCKS
    assert list(site.mover.health.waiting()) == ["b1"]
    plan.clear()
    site.mover.health.put_backoff.record_success(site.ids)
    await site.due_now()
    await site.move()
    assert sorted(site.held()) == [(0,)] * 6 + [(1,)] * 8
    assert site.work_rows() == []
    site.close()
