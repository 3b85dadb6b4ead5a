"""The fault injector does what its plan says: no more, no less, and the same each time."""

from __future__ import annotations

import pytest

from backends import errors
from backends.base import Stat
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from tests.backends.contract import key, listed, put


async def test_an_error_strikes_before_and_a_lost_answer_after_the_effect() -> None:
    inner = Memory()
    plan = FaultPlan(
        [Fault(FaultKind.ERROR, "put", nth=1, error=errors.Full), Fault(FaultKind.ERROR_AFTER, "put", nth=1)]
    )
    backend = Faulty(inner, plan)
    with pytest.raises(errors.Full):
        await put(backend, key(1), b"x")
    assert inner.get_now(key(1)) is None
    with pytest.raises(errors.Unavailable):
        await put(backend, key(1), b"x")
    assert inner.get_now(key(1)) == b"x"


async def test_answers_are_torn_flipped_stale_or_gone() -> None:
    value = bytes(1_000)
    kinds = [FaultKind.SHORT, FaultKind.FLIP, FaultKind.STALE, FaultKind.GONE]
    backend = Faulty(Memory(), FaultPlan([Fault(kind, "get", times=1) for kind in kinds]))
    await put(backend, key(1), value)
    assert bytes(await backend.get(key(1))) == value[:500]
    flipped = bytes(await backend.get(key(1)))
    assert sum((a ^ b).bit_count() for a, b in zip(flipped, value, strict=True)) == 1
    stale = bytes(await backend.get(key(1)))
    assert len(stale) == 1_000
    assert stale != value
    with pytest.raises(errors.NotFound):
        await backend.get(key(1))
    assert bytes(await backend.get(key(1))) == value


async def test_what_is_at_hand_is_struck_as_well() -> None:
    backend = Faulty(
        Memory(), FaultPlan([Fault(FaultKind.FLIP, "get", times=1), Fault(FaultKind.ERROR, "get", times=1)])
    )
    await put(backend, key(1), b"abc")
    flipped = backend.get_now(key(1))
    assert flipped is not None
    assert bytes(flipped) != b"abc"
    assert backend.get_now(key(1)) is None
    assert backend.get_now(key(1)) == b"abc"


async def test_a_put_lies_about_what_it_stored() -> None:
    plan = FaultPlan([Fault(FaultKind.DROP, "put", key="*1"), Fault(FaultKind.HALF, "put", key="*2")])
    backend = Faulty(Memory(), plan)
    for number in (1, 2, 3):
        await put(backend, key(number), b"abcd")
    with pytest.raises(errors.NotFound):
        await backend.get(key(1))
    assert await backend.stat(key(2)) == Stat(2)
    assert await backend.stat(key(3)) == Stat(4)
    assert plan.struck == [("put", key(1), FaultKind.DROP), ("put", key(2), FaultKind.HALF)]


async def test_a_listing_ends_early_or_leaves_out_a_line() -> None:
    plan = FaultPlan([Fault(FaultKind.GONE, "list", key="*1"), Fault(FaultKind.SHORT, "list", key="*3")])
    backend = Faulty(Memory(), plan)
    for number in range(5):
        await put(backend, key(number), b"x")
    assert [line.key for line in await listed(backend.list())] == [key(0), key(2)]
    plan.clear()
    assert len(await listed(backend.list())) == 5


async def test_the_same_seed_strikes_the_same_calls() -> None:
    async def strikes(seed: int) -> list[int]:
        backend = Faulty(Memory(), FaultPlan([Fault(FaultKind.ERROR, "put", share=0.3)], seed))
        failed = []
        for number in range(100):
            try:
                await put(backend, key(number), b"x")
            except errors.Unavailable:
                failed.append(number)
        return failed

    assert await strikes(1) == await strikes(1)
    assert await strikes(1) != await strikes(2)
    assert 10 < len(await strikes(1)) < 60
