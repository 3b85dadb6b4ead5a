"""A shared pack whose objects are named one after the other, while the workers release and sweep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.blocks.digests import Digests
from gateway.blocks.types import WriteContext
from gateway.blocks.write.writer import StoredRun
from gateway.engine.types import Caller
from gateway.journal.session_commands import OpenSession
from gateway.namespace.commands.objects import PutObject
from gateway.site.admin.maintenance import background_workers
from gateway.site.site import Site
from tests.new_sites import ACCESS_KEY

BODIES = [b"body %d" % n for n in range(4)]


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def put(site: Site, key: bytes, stored: StoredRun, user: int) -> PutObject:
    policy = site.storage.targets.policy
    return PutObject(
        "kept", key, user, True, stored.size, "0" * 32, stored.extents, stored.blocks, policy, b"", b"", b""
    )


async def read(site: Site, caller: Caller, key: bytes) -> bytes:
    opened = await site.engine.open(caller, "kept", key)
    return bytes(opened.whole) if opened.whole is not None else b"".join([bytes(each) async for each in opened.chunks])


class Keeper:
    """Everything that takes apart, sweeps and compacts."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._workers = background_workers(site)

    async def collect(self) -> None:
        """Until nobody finds anything more, also after beats have told what everybody has seen."""
        for _ in range(3):
            while any([await worker.step() for worker in self._workers]):
                pass
            await self._site.journal.send(OpenSession("the journal grows"))
            await asyncio.sleep(0.6)


async def test_a_pack_of_which_something_is_still_to_be_named_stays_until_its_session_has_said_how_it_went(
    new_folder: Path,
) -> None:
    async with await Site.open(new_folder) as writer, await Site.open(new_folder) as keeper:
        caller = writer.credentials.find(ACCESS_KEY)
        assert caller is not None
        root = Caller(caller.user, caller.user_id, caller.tenant, True)
        await writer.engine.create_bucket(root, "kept", "")
        storage = writer.storage
        stamp = WriteContext(writer.keyring.active(caller.tenant), storage.targets)
        stored = await asyncio.gather(
            *(storage.writer.store(stamp, once(body), len(body), Digests()) for body in BODIES)
        )
        assert len({each.blocks[0].id for each in stored}) == 1
        house = Keeper(keeper)
        for n, run in enumerate(stored):
            await writer.journal.send(put(writer, b"%d" % n, run, caller.user_id))
            assert await read(keeper, root, b"%d" % n) == BODIES[n], "its bytes were swept"
            if n < len(stored) - 1:
                await writer.engine.delete(root, "kept", b"%d" % n)
                await house.collect()
                assert keeper.store.query("SELECT count(*) FROM freed") == [(n + 1,)], "not even its counts go down"
            storage.writer.mark_named(run)
        assert await read(keeper, root, b"3") == BODIES[3]
        await writer.engine.delete(root, "kept", b"3")
        for _ in range(20):
            await house.collect()
            if not keeper.store.query("SELECT 1 FROM block"):
                break
        assert not keeper.store.query("SELECT 1 FROM block"), "now that all have said how it went, it goes"
