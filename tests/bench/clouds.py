"""The `s3` backend beside obstore alone: the same values, the same server, as many at once.

What the backend does besides: it compares each value with its CRC32C before it goes, has the server compare a
CRC64NVME, and turns what goes wrong into words. The server is bare, in a process of its own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import obstore
import uvloop
from awscrt import checksums
from obstore.store import S3Store

from backends.s3.backend import S3
from tests.bench.cloud import Running, cloud
from tests.bench.plan import Plan
from tests.bench.table import Row, interleave

BUCKET = "bench"
SIZES = ((4 << 10, 64, "4 KiB"), (8 << 20, 8, "8 MiB"))
KEYS = 64
AIM = 0.8

Call = Callable[[str], Awaitable[Any]]


def rows(plan: Plan) -> list[Row]:
    names = {
        (verb, size): f"s3 backend: {verb} {told} by {at_once}"
        for size, at_once, told in SIZES
        for verb in ("put", "get")
    }
    if not any(plan.wants(name) for name in names.values()):
        return []
    made = []
    with cloud() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        backend = runner.run(_backend(server))
        for size, at_once, _ in SIZES:
            calls = _calls(backend, bare_store(server.url), os.urandom(size))
            for verb, (ours, theirs) in calls.items():
                if plan.wants(names[verb, size]):
                    row = Row(names[verb, size], "op/s", "obstore alone", AIM)
                    runner.run(rate(ours, at_once, 0))  # a round of all keys, so that nobody is the first
                    interleave(
                        row,
                        lambda ours=ours, at_once=at_once: runner.run(rate(ours, at_once, plan.seconds)),
                        lambda theirs=theirs, at_once=at_once: runner.run(rate(theirs, at_once, plan.seconds)),
                        plan.runs,
                    )
                    made.append(row)
        runner.run(backend.close())
    return made


async def _backend(server: Running) -> S3:
    return await S3.open(
        bucket=BUCKET, endpoint=server.url, region="us-east-1", access_key="bench", secret_key="benchbench"
    )


def bare_store(url: str) -> S3Store:
    """obstore as its documentation has it, over plain HTTP."""
    return S3Store(
        BUCKET,
        endpoint=url,
        region="us-east-1",
        access_key_id="bench",
        secret_access_key="benchbench",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


def _calls(backend: S3, store: S3Store, value: bytes) -> dict[str, tuple[Call, Call]]:
    """For each verb, the backend's and obstore's; puts come first, so that there is something to get."""
    crc, size = checksums.crc32c(value), len(value)

    async def bare_put(key: str) -> None:
        await obstore.put_async(store, key, value, use_multipart=False)

    async def bare_get(key: str) -> None:
        assert len(await (await obstore.get_async(store, key)).bytes_async()) == size

    async def put(key: str) -> None:
        await backend.put(key, [value], crc)

    async def get(key: str) -> None:
        assert len(await backend.get(key)) == size

    return {"put": (put, bare_put), "get": (get, bare_get)}


async def rate(call: Call, at_once: int, seconds: float) -> float:
    """Calls a second by *at_once* who each wait for their answer, around and around the same keys, all of them put
    before they are read."""
    done, deadline = 0, time.perf_counter() + seconds

    async def loop(worker: int) -> None:
        nonlocal done
        number = worker
        while time.perf_counter() < deadline or number < KEYS:
            await call(f"value/{number % KEYS}")
            number += at_once
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(loop(worker) for worker in range(at_once)))
    return done / (time.perf_counter() - started)
