"""The client and a gateway, directly and through a faulty proxy."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets

import pytest

from gateway.engine.types import NO_CONDITIONS as NONE
from gateway.engine.types import ByteRange, Conditions, ObjectInfo, ObjectMeta
from gateway.errors import (
    AccessDenied,
    BucketOwned,
    Busy,
    InvalidArgument,
    NoSuchKey,
    NoSuchName,
    PreconditionFailed,
)
from gateway.posix.api import Directory
from gateway.posix.bodies import BytesBody, read_all
from gateway.posix.rpc import protocol, resumable_read
from gateway.posix.rpc.client import RpcClient
from gateway.posix.rpc.endpoint import EndpointOptions, resolve_endpoint
from gateway.posix.rpc.framing import FRAME_BYTES
from gateway.posix.rpc.methods import METHODS
from gateway.posix.rpc.protocol import MethodCall, RpcRequest
from tests.posix.connecting import connected, posted
from tests.site.running import lines
from tests.waiting import until_true

MIB = 1 << 20


async def test_each_verb_answers_what_it_answers_in_process(api, place):
    found = await api.look(place, b"x")
    assert isinstance(found, ObjectInfo)
    assert (found.key, found.size, found.tags_count) == (b"x", 1, 1)
    assert found.headers["x-amz-meta-a"] == "é"
    assert found.checksum is not None
    assert await api.look(place, b"d") == Directory(made=False)
    assert await api.tags(place, b"x") == {"tag": "1"}
    assert await api.parts(place, b"x") == []
    assert (await api.bucket(place)).name == place
    page = await api.page(place, b"", b"/")
    assert ([each.key for each in page.keys], page.prefixes, page.next) == ([b"x"], [b"d/"], None)
    with pytest.raises(BucketOwned):
        await api.make_bucket(place)
    with pytest.raises(NoSuchName):
        await api.look(place, b"none")
    with pytest.raises(PreconditionFailed):
        await api.open(place, b"x", None, Conditions(if_match=("other",)))
    missing, gone = await api.remove(place, [b"none", b"x"], must_exist=True)
    assert isinstance(missing, NoSuchKey)
    assert gone is None


async def test_several_verbs_go_in_one_trip_and_run_in_their_order(api, place, monkeypatch):
    trips = 0
    post = api._transport.post

    async def counted(*arguments, **options):
        nonlocal trips
        trips += 1
        return await post(*arguments, **options)

    monkeypatch.setattr(api._transport, "post", counted)
    calls = [
        ("mkdir", (place, b"a")),
        ("mkdir", (place, b"a/b")),
        ("mkdir", (place, b"a")),
        ("rename", (place, b"d", b"a/b/c", True)),
        ("look", (place, b"a/b/c/y")),
    ]
    *made, there, moved, found = await api.compound(calls)
    assert made == [None, None]
    assert type(there).__name__ == "NameExists"
    assert moved is None
    assert found.size == 3
    assert trips == 1
    *_, refused, behind = await api.compound(
        [("look", (place, b"x")), ("look", (place, b"none")), ("rmdir", (place, b"a"))], stop=True
    )
    assert isinstance(refused, NoSuchName)
    assert behind is None
    assert await api.look(place, b"a") == Directory(made=True)
    many = await api.compound([("look", (place, b"x"))] * 150)
    assert {each.size for each in many} == {1}
    assert trips == 1 + 1 + 1 + 3


async def test_verbs_that_go_together_are_each_answered_and_what_was_refused_stops_nobody(served, api, place):
    looks = [MethodCall("look", (place, key)) for key in (b"x", b"none", b"d", b"d/y") * 16]
    answer = protocol.unpack_response(
        (await posted(served, "verbs", protocol.pack_request(RpcRequest(looks, parallel=True)))).body
    )
    assert [each[0] for each in answer.results] == [protocol.OK, protocol.REFUSED, protocol.OK, protocol.OK] * 16
    copies = [MethodCall("copy", METHODS["copy"].encode(place, b"x", place, b"c%d" % n, None, NONE)) for n in range(50)]
    body = protocol.pack_request(
        RpcRequest(copies, idempotency_key=secrets.token_bytes(16), known_store=api._store, parallel=True)
    )
    first, again = [(await posted(served, "verbs", body, query)).body for query in ("", "attempt=2")]
    assert first == again
    assert {each[0] for each in protocol.unpack_response(first).results} == {protocol.OK}
    assert len((await api.page(place, b"c")).keys) == 50


async def test_a_verb_that_finds_no_room_among_others_is_asked_again_alone(api, place, monkeypatch):
    send, refused = api._send_calls, []

    async def crowded(calls, stop, parallel=False):
        if len(calls) == 1:
            return await send(calls, stop, parallel)
        refused.extend(calls)
        return [Busy("the queue")] * len(calls)

    monkeypatch.setattr(api, "_send_calls", crowded)
    found = await asyncio.gather(*[api.look(place, b"x") for _ in range(30)])
    assert [each.size for each in found] == [1] * 30
    assert len(refused) > 20


async def test_a_name_that_cannot_travel_is_its_own_callers_mistake(api, place):
    asked = [api.look("\ud800" if number == 20 else place, b"x") for number in range(40)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(found.pop(20), InvalidArgument)
    assert [each.size for each in found] == [1] * 39


async def test_an_answer_that_grows_long_is_broken_off_and_asked_for_on(api, place, monkeypatch):
    keys = [b"long/%04d-" % number + b"k" * 900 for number in range(1000)]
    for at in range(0, 1000, 100):
        await asyncio.gather(*[api.put(place, key, BytesBody(b""), 0, ObjectMeta()) for key in keys[at : at + 100]])
    found = await api.compound([("page", (place, b"long/", b"", b""))] * 12)
    assert len(found) == 12
    assert all([each.key for each in page.keys] == keys for page in found)


# --- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 9 * MIB + 7])
async def test_bytes_come_back_as_they_went_whole_and_in_part(api, place, size):
    data = os.urandom(size)
    stored = await api.put(place, b"bytes", BytesBody(data), size, ObjectMeta())
    assert stored.etag == hashlib.md5(data).hexdigest()
    opened = await api.open(place, b"bytes")
    assert (opened.info.size, opened.length) == (size, size)
    assert await read_all(opened) == data
    if size > 2:
        opened = await api.open(place, b"bytes", ByteRange(1, size - 2))
        assert (opened.start, opened.length) == (1, size - 2)
        assert await read_all(opened) == data[1:-1]


@pytest.mark.parametrize("after", [0, 100, 500_000, 3 * MIB + 99, 7 * MIB])
async def test_a_read_that_breaks_off_goes_on_where_it_was(served, place, line, api, after):
    data = os.urandom(8 * MIB)
    await api.put(place, b"bytes", BytesBody(data), len(data), ObjectMeta())
    async with connected(served, line.url) as far:
        line.suffer(b"POST /.entrepot/read", times=3, after_bytes=after)
        assert await read_all(await far.open(place, b"bytes")) == data
        assert line.suffered >= 2


async def test_a_read_whose_object_is_replaced_while_it_breaks_off_is_ended(served, place, line, api):
    await api.put(place, b"bytes", BytesBody(bytes(8 * MIB)), 8 * MIB, ObjectMeta())
    async with connected(served, line.url) as far:
        line.suffer(b"POST /.entrepot/read", after_bytes=3 * MIB)
        opened = await far.open(place, b"bytes")
        await api.put(place, b"bytes", BytesBody(b"other"), 5, ObjectMeta())
        with pytest.raises(PreconditionFailed):
            await read_all(opened)


async def test_a_byte_that_changes_on_its_way_is_noticed_and_read_again(api, place, monkeypatch):
    data = os.urandom(2 * MIB)
    await api.put(place, b"bytes", BytesBody(data), len(data), ObjectMeta())
    read_frame, spoilt = resumable_read.read_frame, 0

    class Spoiling:
        def __init__(self, stream) -> None:
            self.stream = stream

        async def readexactly(self, count: int) -> bytes:
            read = bytearray(await self.stream.readexactly(count))
            read[5] ^= 1
            return bytes(read)

    async def spoils(stream, left):
        nonlocal spoilt
        spoilt += 1
        return await read_frame(Spoiling(stream) if spoilt == 2 else stream, left)

    monkeypatch.setattr(resumable_read, "read_frame", spoils)
    assert await read_all(await api.open(place, b"bytes")) == data
    assert spoilt == 3


# --- who comes --------------------------------------------------------------------------------------------------------


async def test_a_wrong_secret_is_no_reason_to_try_again(served):
    options = EndpointOptions(endpoint=served.url, key=served.access_key, secret="another-secret")
    with pytest.raises(AccessDenied, match="signature"):
        await RpcClient.connect(resolve_endpoint(options))


async def test_the_region_is_learnt_from_the_gateway(served, place):
    options = EndpointOptions(endpoint=served.url, key=served.access_key, secret=served.secret_key, region="eu-north-7")
    api = await RpcClient.connect(resolve_endpoint(options))
    assert (await api.look(place, b"x")).size == 1
    await api.close()


# --- what the log says ------------------------------------------------------------------------------------------------


async def test_each_request_leaves_a_line_that_names_its_verb_and_no_secret(served, place, api):
    before = len(lines(served))
    await api.put(place, b"new", BytesBody(b"12"), 2, ObjectMeta())
    await api.rename(place, b"d", b"line", directory=True)
    await api.compound([("look", (place, b"x")), ("look", (place, b"none"))])
    await read_all(await api.open(place, b"x"))
    wanted = {("fs.put", None), ("fs.rename", None), ("fs.verbs", "NoSuchName"), ("fs.open", None)}

    def ours():
        new = lines(served)[before:]
        return {(each["operation"], each.get("error")) for each in new if each.get("path", "").startswith("/.entrepot")}

    await until_true(lambda: wanted <= ours())
    text = served.log.read_text()
    assert served.secret_key not in text
    assert "call=" not in text
