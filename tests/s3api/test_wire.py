"""What stands on the wire: heads, ids, lengths, 100-continue, and clients who do what they should not."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from gateway.engine.types import Opened
from gateway.errors import Unavailable
from tests.s3api.client import Signer, encode, parse, read_reply

MIB = 1 << 20


async def test_every_answer_has_its_request_id(site, signer):
    replies = [
        await signer.request("GET", "/bucket"),
        await signer.request("GET", "/bucket/none"),
        await signer.request("HEAD", "/bucket/none"),
        await signer.request("DELETE", "/bucket/none"),
        await signer.send(b"GET /bucket HTTP/1.1\r\nHost: x\r\n\r\n"),
        await signer.send(b"GET /bucket HTTP/1.1\r\nHost x\r\n\r\n"),
    ]
    assert [reply.status for reply in replies] == [200, 404, 404, 204, 403, 400]
    ids = {reply.headers["x-amz-request-id"] for reply in replies}
    assert len(ids) == len(replies)
    assert all("x-amz-id-2" in reply.headers for reply in replies)
    assert ids == {seen.request_id for seen in site.notebook.seen[1:]}


async def test_the_observer_is_told_once_a_request_and_no_secret(site, signer):
    site.notebook.seen.clear()
    await signer.request("PUT", "/bucket/k", body=b"12345")
    await signer.follow("GET", signer.presigned("GET", "/bucket/k"))
    put, got = site.notebook.seen
    assert (put.operation, put.status, put.bytes_in, put.user, put.bucket) == ("PutObject", 200, 5, "alice", "bucket")
    assert (got.operation, got.status, got.bytes_out, got.error) == ("GetObject", 200, 5, "")
    assert got.path == "/bucket/k"
    assert "Signature" not in repr(got)


async def test_one_connection_serves_request_after_request(site, signer):
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    for n in range(5):
        body = b"x" * n
        writer.write(signer.head("PUT", f"/bucket/{n}", body=body) + body)
        assert (await read_reply(reader)).status == 200
    # Three at once, answered in their order.
    writer.write(b"".join(signer.head("GET", f"/bucket/{n}") for n in (1, 2, 3)))
    assert [(await read_reply(reader)).body for _ in range(3)] == [b"x", b"xx", b"xxx"]
    writer.close()


async def test_http_1_0_is_answered_and_its_connection_ends(site, signer):
    head = signer.head("GET", "/bucket").replace(b"HTTP/1.1", b"HTTP/1.0")
    reply, rest = parse(await site.raw(head))
    assert (reply.status, rest) == (200, b"")
    assert reply.headers["connection"] == "close"


async def test_head_has_the_length_and_no_body(site, signer):
    await signer.request("PUT", "/bucket/k", body=b"12345")
    head = signer.head("HEAD", "/bucket/k").replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    raw = await site.raw(head)
    reply, rest = parse(raw, "HEAD")
    assert reply.headers["content-length"] == "5"
    assert raw.endswith(b"\r\n\r\n")
    assert rest == b""


async def test_a_key_is_taken_from_the_wire_as_it_stands(site, signer):
    for raw_path, key in [
        ("/bucket/a//b", b"a//b"), ("/bucket/a/../b", b"a/../b"), ("/bucket/.", b"."), ("/bucket//", b"/"),
        ("/bucket/a%2Fb", b"a/b"), ("/bucket/%E2%82%AC%20%2B", "€ +".encode()), ("/bucket/a;b=c!'()*", b"a;b=c!'()*"),
    ]:  # fmt: skip
        assert (await signer.request("PUT", raw_path, body=b"x")).status == 200, raw_path
        assert key in await site.keys()
        assert (await signer.request("GET", raw_path)).body == b"x"


async def test_a_bucket_may_be_named_by_the_host(site, signer):
    virtual = Signer(site, host="bucket.s3.test")
    assert (await virtual.request("PUT", "/k", body=b"x")).status == 200
    assert (await signer.request("GET", "/bucket/k")).body == b"x"
    assert (await virtual.request("GET", "/", "list-type=2")).xml("Name") == "bucket"


# --- 100-continue -----------------------------------------------------------------------------------------------------


async def test_a_client_that_waits_is_told_to_go_on_once_it_is_known(site, signer):
    body = b"x" * 1000
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(signer.head("PUT", "/bucket/k", body=body, expect="100-continue"))
    assert (await read_reply(reader)).status == 100
    writer.write(body)
    assert (await read_reply(reader)).status == 200
    writer.close()


async def test_a_client_that_waits_and_may_not_is_told_so_at_once(site, signer):
    stranger = Signer(site, secret="wrong")
    head = stranger.head("PUT", "/bucket/k", body=b"x" * 1000, expect="100-continue")
    raw = await site.raw(head)
    reply, rest = parse(raw)
    assert (reply.status, reply.code, rest) == (403, "SignatureDoesNotMatch", b"")
    assert reply.headers["connection"] == "close"
    assert b"100 Continue" not in raw


@pytest.mark.parametrize("expectation", ["tea", "200", ""])
async def test_another_expectation_is_passed_over(site, signer, expectation):
    body = b"whole"
    head = signer.head("PUT", "/bucket/k", body=body, expect=expectation)
    reply, _ = parse(await site.raw(head + body, half_close=True))
    assert reply.status == 200
    assert (await signer.request("GET", "/bucket/k")).body == body


# --- bodies that end badly --------------------------------------------------------------------------------------------


async def test_a_body_that_stops_is_a_timeout_and_stores_nothing(site, signer):
    reply, _ = parse(await site.raw(signer.head("PUT", "/bucket/k", body=b"x" * 100) + b"x" * 50))
    assert (reply.status, reply.code) == (400, "RequestTimeout")
    assert await site.keys() == []


async def test_a_client_that_leaves_in_the_middle_stores_nothing(site, signer):
    _, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(signer.head("PUT", "/bucket/k", body=b"x" * 100) + b"x" * 50)
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.transport.abort()
    for _ in range(100):
        if site.notebook.seen[-1].operation == "PutObject":
            break
        await asyncio.sleep(0.02)
    assert site.notebook.seen[-1].error in ("ClientGone", "IncompleteBody")
    assert site.server.in_flight == 0
    assert await site.keys() == []


async def test_a_client_that_closes_its_half_still_gets_its_answer(site, signer):
    reply, _ = parse(await site.raw(signer.head("PUT", "/bucket/k", body=b"12345") + b"12345", half_close=True))
    assert reply.status == 200


async def test_a_client_that_closes_its_half_too_early_is_told_so(site, signer):
    reply, _ = parse(await site.raw(signer.head("PUT", "/bucket/k", body=b"12345") + b"123", half_close=True))
    assert (reply.status, reply.code) == (400, "IncompleteBody")


async def test_an_early_refusal_reaches_a_client_that_is_still_sending(site, signer):
    stranger = Signer(site, secret="wrong")
    body = b"x" * (8 << 20)
    reply, _ = parse(await site.raw(stranger.head("PUT", "/bucket/k", body=body) + body))
    assert (reply.status, reply.code) == (403, "SignatureDoesNotMatch")
    assert reply.headers["connection"] == "close"


async def test_a_small_unread_body_does_not_cost_the_connection(site, signer):
    stranger = Signer(site, secret="wrong")
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(stranger.head("PUT", "/bucket/k", body=b"x" * 70000))
    await asyncio.sleep(0.05)
    assert (await read_reply(reader)).status == 403
    writer.write(b"x" * 70000 + signer.head("GET", "/bucket"))
    assert (await read_reply(reader)).status == 200
    writer.close()


async def test_a_length_is_needed(signer):
    head = signer.head("PUT", "/bucket/k").replace(b"content-length: 0\r\n", b"")
    head = head.replace(b"content-length;", b"")
    signed = signer.head("PUT", "/bucket/k", payload="UNSIGNED-PAYLOAD")
    assert signed
    unsigned = encode("PUT", signer.presigned("PUT", "/bucket/k"), {"host": signer.host})
    reply = await signer.send(unsigned)
    assert (reply.status, reply.code) == (411, "MissingContentLength")


@pytest.mark.parametrize(
    ("why", "told"),
    [
        (RuntimeError("a mistake"), (500, "InternalError")),
        (Unavailable("no copy answers"), (503, "ServiceUnavailable")),
    ],
)
async def test_an_answer_that_breaks_off_is_shorter_than_it_said(site, signer, caplog, why, told):
    await signer.request("PUT", "/bucket/k", body=b"x" * (1 << 20))
    whole = site.engine.open

    async def open_and_break(*arguments, **named):
        opened = await whole(*arguments, **named)

        async def broken():
            yield b"x" * 1000
            raise why

        return Opened(opened.info, opened.start, opened.length, opened.part, None, broken())

    site.engine.open = open_and_break
    raw = await site.raw(2 * signer.head("GET", "/bucket/k"))  # the answer to the second must not fill up the first
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"Content-Length: 1048576" in head
    assert len(body) <= 1000
    assert (site.notebook.seen[-1].status, site.notebook.seen[-1].error) == told
    assert ("Traceback" in caplog.text) == (told[0] == 500)


async def test_a_reader_that_takes_nothing_is_dropped(site, signer, settings, monkeypatch):
    object.__setattr__(site.server._app._settings, "write_idle_seconds", 0.3)
    data = b"x" * (64 << 20)
    await site.store(b"big", data)
    raw = socket.create_connection(("127.0.0.1", site.port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.sendall(signer.head("GET", "/bucket/big"))
    for _ in range(250):
        if site.server.in_flight == 0 and site.notebook.seen[-1].operation == "GetObject":
            break
        await asyncio.sleep(0.02)
    assert site.notebook.seen[-1].error == "ClientGone"
    raw.close()


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_stopping_lets_requests_finish_and_takes_no_more(site, signer):
    gate = asyncio.Event()
    put = site.engine.put

    async def slow_put(*arguments, **named):
        await gate.wait()
        return await put(*arguments, **named)

    site.engine.put = slow_put
    idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", site.port)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(signer.head("PUT", "/bucket/k", body=b"12345"))
    while site.server.in_flight == 0:
        await asyncio.sleep(0.01)
    port = site.port
    stopping = asyncio.create_task(site.serving.stop(10.0))
    assert await idle_reader.read() == b""
    writer.write(b"12345")
    gate.set()
    reply = await read_reply(reader)
    assert reply.status == 200
    assert reply.headers["connection"] == "close"
    await stopping
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    idle_writer.close()


async def test_a_download_that_ends_while_stopping_holds_the_stop_up_no_longer(site, signer):
    data = b"x" * (8 * MIB)
    await site.store(b"big", data)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=1000)
    writer.write(signer.head("GET", "/bucket/big"))
    while site.server.in_flight == 0:
        await asyncio.sleep(0.01)
    stopping = asyncio.create_task(site.serving.stop(3600.0))
    await asyncio.sleep(0.05)
    received = b""
    while chunk := await reader.read(1 << 16):
        received += chunk
    assert received.endswith(b"\r\n\r\n" + data)
    await stopping
    writer.close()


async def test_a_client_that_resets_its_connection_leaves_nothing_behind(site, signer):
    for _ in range(20):
        _, writer = await asyncio.open_connection("127.0.0.1", site.port)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.write(signer.head("PUT", "/bucket/k", body=b"x" * 10_000)[:-1])
        await writer.drain()
        writer.transport.abort()
    for _ in range(100):
        if not site.server.connections:
            break
        await asyncio.sleep(0.02)
    assert (len(site.server.connections), site.server.in_flight) == (0, 0)
