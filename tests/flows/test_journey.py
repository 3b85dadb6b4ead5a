"""The journey that is the product: from one shore to the other, killed on the way, and not a byte is lost.

A site begins with a folder. A policy asks for a second copy in a cloud; the folder goes away, and comes back; copies
in the cloud rot; the folder drains, and leaves; keys are rotated. All the time clients write and read, and some of the
site's processes are killed. `ENTREPOT_JOURNEY_SEED` repeats the choices of a run.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.flows.journey import Journey
from tests.flows.two_shores import bad
from tests.servers.minio import can_start, minio
from tests.servers.moto import moto
from tests.servers.radosgw import radosgw
from tests.servers.running import S3Server

CLOUDS = [radosgw, moto, *([minio] if can_start() else [])]
DAMAGED = 8
"""Copies at a time."""


@asynccontextmanager
async def journey(tmp_path: Path, server: S3Server) -> AsyncIterator[Journey]:
    seed = os.environ.get("ENTREPOT_JOURNEY_SEED") or secrets.token_hex(4)
    print(f"ENTREPOT_JOURNEY_SEED={seed}")
    sailing = Journey(tmp_path / "site", server, seed)
    try:
        with sailing.told():
            await sailing.begin()
            yield sailing
    finally:
        sailing.served.end()


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("cloud", CLOUDS, ids=lambda cloud: cloud.__name__)
async def test_from_one_shore_to_the_other_every_byte_arrives(
    tmp_path: Path, cloud: Callable[[Path], AbstractContextManager[S3Server]]
) -> None:
    with cloud(tmp_path / "cloud") as server:
        async with journey(tmp_path, server) as sailing:
            await asyncio.to_thread(sailing.cargo.load, "first", large=True)
            first = sorted(sailing.here.keys())
            await a_second_copy(sailing)
            before = await the_first_place_goes(sailing, first)
            await it_comes_back(sailing, before)
            await copies_rot_where_they_are_read(sailing, first)
            await the_first_place_drains_and_leaves(sailing)
            await keys_are_rotated(sailing)
            await arrived(sailing)


async def a_second_copy(sailing: Journey) -> None:
    """An edited policy asks for it: what is there is copied, and what comes."""

    async def ask_for_it() -> None:
        sailing.edit(
            ("domains = []", 'domains = []\ncluster = "home"'),
            ('ack = ["disk"]', 'ack = ["near"]'),
            ('keep = ["disk"]', 'keep = ["disk", "cloud"]'),
            more=sailing.there.config(),
        )
        await asyncio.to_thread(sailing.reload)
        await asyncio.to_thread(sailing.cargo.load, "second", large=False)
        await sailing.until(
            lambda: all(sailing.places(key) == [["disk", "cloud"]] for key in landmarks(sailing)), "both places"
        )

    await sailing.leg(ask_for_it())
    await everything_in_both(sailing)
    await asyncio.to_thread(sailing.cargo.check)


async def the_first_place_goes(sailing: Journey, first: list[str]) -> dict[str, bytes]:
    """Its folder is gone and everybody dead. Started again on the other shore, the site has everything, and takes what
    comes. Answers which copies rot meanwhile: they cannot be read, and nothing else is shown instead."""

    async def go() -> None:
        await sailing.until(lambda: sailing.here.keys() == set(), "the folder to be gone")
        await asyncio.to_thread(sailing.cargo.load, "third", large=False)

    await asyncio.to_thread(sailing.cargo.check)
    sailing.served.kill(("all",), sailing.chance)
    sailing.served.check_gone()
    sailing.here.folder.rename(sailing.folder / "away")
    sailing.edit(('domains = []\ncluster = "home"', 'domains = []\ncluster = "far"'))
    await sailing.served.until_ready()
    await sailing.leg(go())
    await asyncio.to_thread(sailing.cargo.check)
    assert (await asyncio.to_thread(sailing.places, landmarks(sailing)[0]))[0] == ["cloud", "disk"]
    (health,) = [each["health"] for each in sailing.on_site("backend", "list") if each["name"] == "disk"]
    assert "could not be opened" in health

    before = await asyncio.to_thread(sailing.there.damage, sailing.chance.sample(first, DAMAGED), sailing.chance)
    refused = await asyncio.to_thread(sailing.cargo.refusals)
    assert refused, "nobody reads what was damaged"
    for error in refused.values():  # not even a 500: the other copy may come back
        if isinstance(error, ClientError):
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 503, error
    return before


async def it_comes_back(sailing: Journey, before: dict[str, bytes]) -> None:
    """What it missed is brought there, and what rotted elsewhere is mended from it."""

    async def come_back() -> None:
        (sailing.folder / "away").rename(sailing.here.folder)
        await sailing.until(lambda: not sailing.cargo.refusals(), "everything to be read again")
        await sailing.until(lambda: read_and_mended(sailing, before), "what is read to be mended")

    await sailing.leg(come_back())
    await everything_in_both(sailing)
    await asyncio.to_thread(sailing.cargo.check)
    assert not (await asyncio.to_thread(sailing.served.fsck, "--read"))["kinds"].keys() - {"block-unnamed"}


async def copies_rot_where_they_are_read(sailing: Journey, first: list[str]) -> None:
    """Readers, who stand beside them, are served from the other shore meanwhile, and do not notice."""
    before: dict[str, bytes] = {}

    async def rot() -> None:
        before.update(
            await asyncio.to_thread(sailing.there.damage, sailing.chance.sample(first, DAMAGED), sailing.chance)
        )
        await sailing.until(lambda: read_and_mended(sailing, before), "what is read to be mended")

    await sailing.leg(rot())
    await sailing.settled()
    again = await asyncio.to_thread(sailing.there.damage, sailing.chance.sample(first, DAMAGED), sailing.chance)
    await asyncio.to_thread(sailing.here.make_cold)
    await asyncio.to_thread(sailing.cargo.check)  # nobody is refused
    await sailing.until(sailing.mended, "what is looked for to be mended")
    assert not bad(sailing.there, again, sailing.folder)
    await sailing.settled()


async def the_first_place_drains_and_leaves(sailing: Journey) -> None:
    async def leave() -> None:
        sailing.edit(("[backends.disk]", "[backends.disk]\ndrain = true"), ("3600.0 ", "2.0 "))
        await asyncio.to_thread(sailing.reload)
        await sailing.until(lambda: sailing.uses()["disk"]["state"] == "empty", "the first place to be empty")
        sailing.edit(
            (sailing.section("backends.disk"), ""),
            ('keep = ["disk", "cloud"]', 'keep = ["cloud"]'),
        )
        await asyncio.to_thread(sailing.reload)
        await asyncio.to_thread(sailing.cargo.load, "fourth", large=False)

    await sailing.leg(leave())
    assert sailing.here.keys() == set()
    shutil.rmtree(sailing.here.folder)
    await sailing.settled()
    await asyncio.to_thread(sailing.cargo.check)


async def keys_are_rotated(sailing: Journey) -> None:
    async def rotate() -> None:
        for command in ("rotate", "renew", "rotate"):
            await asyncio.to_thread(sailing.on_site, "keys", command)
        await asyncio.to_thread(sailing.cargo.load, "fifth", large=True)

    await sailing.leg(rotate())
    keys = await asyncio.to_thread(sailing.on_site, "keys", "list")
    assert len({each["master"] for each in keys}) == 1
    assert all(each["blocks"] for each in keys if each["active"])
    await asyncio.to_thread(sailing.cargo.check)


async def arrived(sailing: Journey) -> None:
    """Every byte is compared, every frame opened, nothing is left over, and the journal tells the same story."""
    await sailing.voyage.look(everything=True)
    await asyncio.to_thread(sailing.cargo.check_in_every_way)
    await sailing.settled()
    await sailing.served.until_swept()
    assert (await asyncio.to_thread(sailing.served.fsck, "--read"))["kinds"] == {}
    assert {use["name"] for use in sailing.status()["placement"]} == {"cloud"}
    sailing.served.stop()
    sailing.served.check_gone()
    sailing.served.check_log()
    sailing.served.check_tables(sailing.there.keys())
    print(sailing.voyage.log())


async def everything_in_both(sailing: Journey) -> None:
    """Nothing is left to be done, and both places hold the same; what was deleted before it was copied goes from the
    first as soon as nobody reads it."""
    await sailing.settled()

    def alike() -> bool:
        uses = sailing.uses()
        return bool(uses["disk"]["blocks"] == uses["cloud"]["blocks"] > 0)

    await sailing.until(alike, "both places to hold the same")


def read_and_mended(sailing: Journey, before: dict[str, bytes]) -> bool:
    """Read everything, from where the reader stands and not from memory; whether the damaged copies are good again."""
    sailing.here.make_cold()
    sailing.cargo.refusals()
    return not bad(sailing.there, before, sailing.folder)


def landmarks(sailing: Journey) -> list[str]:
    """A small object and all large ones of the first load."""
    cargo = [(crate.size, key) for key, crate in sailing.cargo.crates.items() if key.startswith("first/")]
    return [min(cargo)[1], *(key for size, key in cargo if size > 8 << 20)]
