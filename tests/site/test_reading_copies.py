"""Reading a site's objects while places go wrong in the middle of them: real folders, and buckets of a real server."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.blocks import metrics
from gateway.engine.types import ExpectedDigests, ObjectMeta
from gateway.site.site import Site
from tests.files import block_files
from tests.servers.between import Between, Forward, Heard, between, honest, refusal
from tests.servers.running import S3Server
from tests.site.test_write_targets import Bytes, root

BUCKET = """
[backends.{name}]
type = "s3"
cluster = "home"
bucket = "{name}"
endpoint = "{url}"
region = "us-east-1"
style = "path"
access_key = "{key}"
secret_key_env = "TEST_SECRET"
create_bucket = true
"""
RULES = """
[policies.clouds]
ack = ["north", "south"]
keep = ["north", "south"]
[policies.mixed]
ack = ["disk", "south"]
keep = ["disk", "south"]
[[rules]]
policy = "mixed"
prefix = "mixed/"
[[rules]]
policy = "clouds"
bucket = "tree"
"""
DATA = random.Random(31).randbytes(20 << 20)


@pytest.fixture
async def places(moto_server: S3Server) -> AsyncIterator[dict[str, Between]]:
    """What stands before each bucket; behind both is the same server."""
    async with AsyncExitStack() as held:
        yield {name: await held.enter_async_context(between(moto_server)) for name in ("north", "south")}


@pytest.fixture
async def site(
    tmp_path: Path,
    new_folder: Path,
    moto_server: S3Server,
    places: dict[str, Between],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Site]:
    """One whose policies keep two copies; nobody else serves it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEST_SECRET", moto_server.secret_key)
    names = {name: f"{name}-{tmp_path.name[-20:].strip('_').replace('_', '-')}" for name in places}
    with (new_folder / "entrepot.toml").open("a") as config:
        for name, place in places.items():
            section = BUCKET.format(name=name, url=place.server.url, key=moto_server.access_key)
            config.write(section.replace(f'bucket = "{name}"', f'bucket = "{names[name]}"'))
        config.write(RULES)
    async with await Site.open(new_folder) as opened:
        yield opened


async def put(site: Site, key: str) -> None:
    await site.engine.put(
        await root(site), "tree", key.encode(), Bytes(DATA), ExpectedDigests(size=len(DATA)), ObjectMeta()
    )


async def pieces(site: Site, key: str) -> AsyncIterator[bytes]:
    opened = await site.engine.open(await root(site), "tree", key.encode())
    async for piece in opened.chunks:
        yield bytes(piece)


async def drained(site: Site, key: str, then: object = lambda: None) -> bytes:
    """All bytes; *then* happens behind the first piece."""
    reading = pieces(site, key)
    found = [await anext(reading)]
    then()  # type: ignore[operator]
    return b"".join(found + [piece async for piece in reading])


async def silent(request: Heard, forward: Forward) -> bytes | None:
    if request.method == "GET":
        await asyncio.sleep(3600)
    return await forward(request)


async def cut(request: Heard, forward: Forward) -> bytes | None:
    """The connection ends in the middle of the answer."""
    raw = await forward(request)
    return raw[: len(raw) // 2] if request.method == "GET" else raw


async def busy(request: Heard, forward: Forward) -> bytes | None:
    return refusal("503 Slow Down", "SlowDown") if request.method == "GET" else await forward(request)


async def absent(request: Heard, forward: Forward) -> bytes | None:
    return refusal("404 Not Found", "NoSuchKey") if request.method == "GET" else await forward(request)


async def rotten(request: Heard, forward: Forward) -> bytes | None:
    raw = await forward(request)
    return raw[:-100] + bytes(100) if request.method == "GET" else raw


async def test_a_cloud_that_goes_wrong_in_the_middle_of_an_object_is_left_for_the_other_one(
    site: Site, places: dict[str, Between]
) -> None:
    await put(site, "k")
    for rule in (cut, busy, absent, rotten, silent):
        for name, place in places.items():
            spoilt = lambda: setattr(place, "rule", rule)  # noqa: B023, E731
            assert await drained(site, "k", spoilt) == DATA, (rule, name)
            assert await drained(site, "k") == DATA, (rule, name)
            place.rule = honest
        assert await drained(site, "k") == DATA, rule


async def test_a_disk_that_loses_its_blocks_in_the_middle_of_an_object_is_left_for_the_cloud(site: Site) -> None:
    await put(site, "mixed/k")
    bad = sum(metrics.BAD.values.values())

    def lose() -> None:
        for path in block_files(site.folder / "blocks"):
            if path.stat().st_size > 1 << 20:
                path.unlink()

    assert await drained(site, "mixed/k", lose) == DATA
    lose()
    assert await drained(site, "mixed/k") == DATA
    assert sum(metrics.BAD.values.values()) >= bad


async def test_five_hundred_readers_of_an_object_in_a_cloud_ask_it_for_each_block_once(
    site: Site, places: dict[str, Between]
) -> None:
    await site.engine.put(
        await root(site), "tree", b"k", Bytes(DATA[:100_000]), ExpectedDigests(size=100_000), ObjectMeta()
    )
    for place in places.values():
        place.heard.clear()
    found = await asyncio.gather(*(drained(site, "k") for _ in range(500)))
    assert set(found) == {DATA[:100_000]}
    assert sum(each.method == "GET" for place in places.values() for each in place.heard) == 1
