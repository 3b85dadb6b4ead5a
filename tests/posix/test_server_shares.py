"""Users who exceed their share of the file API's memory and idempotency store."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import closing

import pytest

from gateway.engine.shares import Shares
from gateway.engine.types import Body, Caller
from gateway.errors import Busy
from gateway.posix.bodies import BytesBody
from gateway.posix.in_process import InProcessApi, caller_of
from gateway.posix.rpc import idempotency, protocol
from gateway.posix.rpc import server as wire_server
from gateway.posix.rpc.protocol import MethodCall, RpcRequest
from gateway.posix.rpc.server import RpcServer
from gateway.site.site import Site

GREEDY, MODEST = (Caller(name, number, 1, True) for name, number in (("greedy", 1001), ("modest", 1002)))
MIB = 1 << 20


class Announced(Body):
    """A body of which *first* bytes come, and then nothing any more."""

    def __init__(self, first: bytes) -> None:
        self._first = first
        self.waiting = asyncio.Event()

    async def __aiter__(self):
        if self._first:
            yield self._first
        self.waiting.set()
        await asyncio.Event().wait()


async def make_directory(server: RpcServer, caller: Caller, bucket: str) -> tuple:
    """What making a directory is answered with."""
    mkdir = MethodCall("mkdir", (bucket, secrets.token_hex(8).encode()))
    body = protocol.pack_request(
        RpcRequest([mkdir], idempotency_key=secrets.token_bytes(protocol.IDEMPOTENCY_KEY_BYTES))
    )
    reply = await server.answer(caller, protocol.CALLS_PATH, {}, BytesBody(body), len(body), None)
    return protocol.unpack_response(bytes(reply.body)).results[0]


async def announce(server: RpcServer, caller: Caller, first: bytes, count: int) -> list[asyncio.Task]:
    """*count* requests of the greatest size, of each of which *first* has arrived."""
    bodies = [Announced(first) for _ in range(count)]
    size = protocol.REQUEST_BYTES_MOST
    tasks = [asyncio.create_task(server.answer(caller, protocol.CALLS_PATH, {}, each, size, None)) for each in bodies]
    for body, task in zip(bodies, tasks, strict=True):
        waiting = asyncio.create_task(body.waiting.wait())
        await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    return tasks


async def end(tasks: list[asyncio.Task]) -> list:
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_user_who_fills_the_memory_of_answers_keeps_nobody_else_from_changing(new_folder, monkeypatch):
    """On a site of its own: what other tests changed within `KEPT_SECONDS` takes room, too."""
    monkeypatch.setattr(idempotency, "STORE_BYTES", 32 << 10)
    async with await Site.open(new_folder) as site:
        await InProcessApi(site, caller_of(site)).make_bucket("bucket")
        with closing(RpcServer(site)) as server:
            with pytest.raises(Busy, match="this user's changes"):
                for _ in range(2000):
                    assert (await make_directory(server, GREEDY, "bucket"))[0] == protocol.OK
            assert (await make_directory(server, MODEST, "bucket"))[0] == protocol.OK


async def test_a_body_counts_as_far_as_it_has_arrived_and_not_as_it_was_announced(served, place):
    async with await Site.open(served.dir) as site:
        with closing(RpcServer(site)) as server:
            tasks = await announce(server, GREEDY, b"x", 2 * wire_server.HELD_BYTES_MOST // protocol.REQUEST_BYTES_MOST)
            for caller in (GREEDY, MODEST):
                assert (await make_directory(server, caller, place))[0] == protocol.OK
            assert all(isinstance(each, asyncio.CancelledError) for each in await end(tasks))


async def test_a_user_whose_bodies_fill_the_memory_is_refused_and_the_others_are_not(served, place, monkeypatch):
    monkeypatch.setattr(wire_server, "HELD_BYTES_MOST", 8 * MIB)
    async with await Site.open(served.dir) as site:
        with closing(RpcServer(site)) as server:
            tasks = await announce(server, GREEDY, bytes(MIB), 16)
            with pytest.raises(Busy, match="for this user"):
                await asyncio.gather(*await announce(server, GREEDY, bytes(MIB), 1))
            assert (await make_directory(server, MODEST, place))[0] == protocol.OK
            refused = [each for each in await end(tasks) if isinstance(each, Busy)]
            assert len(refused) == 12, "half of what there is for one"
            assert (await make_directory(server, GREEDY, place))[0] == protocol.OK


def test_what_users_hold_is_bounded_however_many_they_are():
    shares = Shares(1000, "bytes")
    held = [shares.new_share(user) for user in range(100)]
    for each in held:
        for _ in range(1000):
            try:
                each.add(1)
            except Busy:
                break
    assert shares.total <= 1000
    for each in held:
        each.release()
        each.release()
    assert shares.total == 0
    shares.new_share(1).add(500)
    with pytest.raises(Busy, match="for this user: 500 bytes"):
        shares.new_share(1).add(1)
