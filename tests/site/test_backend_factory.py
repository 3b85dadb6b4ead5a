"""What stands around a backend that the config names: slots, tries and deadlines, in an order in which none of them
holds up the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from backends import errors
from backends.base import crc32c_of
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway.site.storage.backend_factory import open_backend, with_retries
from gateway.timing import SystemClock, Timing
from gateway.topology import BackendPlace, S3Place
from tests.servers.between import Between, Forward, Heard, between
from tests.servers.running import S3Server

WAIT_SECONDS = 150.0


def place(**settings: object) -> BackendPlace:
    given = {"name": "far", "type": "s3", "cluster": "cloud", "calls": 1, "deadline_seconds": 60.0}
    return BackendPlace(**(given | settings))  # type: ignore[arg-type]


@pytest.fixture
async def way(moto_server: S3Server) -> AsyncIterator[Between]:
    async with between(moto_server) as standing:
        yield standing


async def test_a_call_that_pauses_between_two_tries_leaves_its_slot_to_others() -> None:
    memory, pausing, go_on = Memory(), asyncio.Event(), asyncio.Event()
    await memory.put("a", [b"a"], crc32c_of([b"a"]))
    await memory.put("b", [b"b"], crc32c_of([b"b"]))

    class Clock(SystemClock):
        async def sleep(self, seconds: float) -> None:
            pausing.set()
            await go_on.wait()

    once = FaultPlan([Fault(FaultKind.ERROR, key="a", times=1)])
    backend = with_retries(Faulty(memory, once), place(calls=1), Timing(clock=Clock()))
    first = asyncio.create_task(backend.get("a"))
    await asyncio.wait_for(pausing.wait(), WAIT_SECONDS)
    assert bytes(await asyncio.wait_for(backend.get("b"), WAIT_SECONDS)) == b"b"
    assert not first.done()
    go_on.set()
    assert bytes(await first) == b"a"


async def test_a_call_as_a_whole_has_one_deadline_its_pauses_and_waits_included() -> None:
    never = asyncio.Event()

    class Clock(SystemClock):
        async def sleep(self, seconds: float) -> None:
            await never.wait()

    failing = Faulty(Memory(), FaultPlan([Fault(FaultKind.ERROR)]))
    backend = with_retries(failing, place(deadline_seconds=0.2), Timing(clock=Clock()))
    with pytest.raises(errors.Unavailable, match=r"no answer to get within 0\.2 s"):
        await asyncio.wait_for(backend.get("a"), WAIT_SECONDS)


async def test_a_try_that_hangs_leaves_time_for_another_one(way: Between, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_SECRET", "secret")
    s3 = S3Place(
        bucket="blocks", endpoint=way.server.url, region="us-east-1", access_key="who",
        secret_key_env="FAR_SECRET", create_bucket=True,
    )  # fmt: skip
    backend = await open_backend(place(s3=s3, deadline_seconds=12.0), writes_much=True, make=True, timing=Timing())
    try:
        await backend.put("a", [b"value"], crc32c_of([b"value"]))
        gets: list[Heard] = []

        async def hangs_once(request: Heard, forward: Forward) -> bytes | None:
            gets.append(request)
            if len(gets) == 1:
                await asyncio.sleep(3_600)
            return await forward(request)

        way.rule = hangs_once
        assert bytes(await backend.get("a")) == b"value"
        assert len(gets) == 2
    finally:
        await backend.close()
