"""What stands on the wire where somebody means no good: forms that smuggle, and floods that have their bounds."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import time

import pytest

from tests.s3api.client import parse, read_reply

MIB = 1 << 20
LINEAR_SECONDS = 2.0
"""Processor time that no linear work on one head comes near; the quadratic work took 25 s."""


# --- forms that smuggle -----------------------------------------------------------------------------------------------

SMUGGLED = {
    "two lengths": "Content-Length: 5\r\nContent-Length: 6\r\n",
    "two equal lengths": "Content-Length: 5\r\nContent-Length: 5\r\n",
    "a list of lengths": "Content-Length: 5, 5\r\n",
    "a length and a coding": "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "a coding and a length": "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "an unknown coding": "Transfer-Encoding: xchunked\r\n",
    "a coding that is not last": "Transfer-Encoding: chunked, identity\r\n",
    "two codings": "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "a folded header": "X-A: b\r\n c\r\nContent-Length: 5\r\n",
    "a blank before the colon": "Content-Length : 5\r\n",
    "a tab before the colon": "Transfer-Encoding\t: chunked\r\n",
    "a signed length": "Content-Length: +5\r\n",
    "a negative length": "Content-Length: -5\r\n",
    "a hexadecimal length": "Content-Length: 0x5\r\n",
    "a length beyond 64 bits": "Content-Length: 99999999999999999999999\r\n",
    "no header name": ": x\r\nContent-Length: 5\r\n",
    "a bare carriage return": "X-A: b\rContent-Length: 5\r\n\r\n",
    "a bare line feed": "X-A: b\nContent-Length: 5\r\n\r\n",
    "a null byte": "X-A: b\x00c\r\nContent-Length: 5\r\n",
    "two hosts": "Host: elsewhere\r\nContent-Length: 5\r\n",
}


@pytest.mark.parametrize("form", SMUGGLED)
async def test_a_request_that_two_servers_could_read_differently_is_refused(site, form):
    request = f"PUT /bucket/k HTTP/1.1\r\nHost: x\r\n{SMUGGLED[form]}\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    raw = await site.raw(request.encode())
    assert re.findall(rb"HTTP/1.1 (\d+)", raw) == [b"400"], raw
    reply, rest = parse(raw)
    assert reply.headers["connection"] == "close"
    assert reply.code == "BadRequest"
    assert rest == b""


@pytest.mark.parametrize(
    "line",
    [b"GET", b"GET /", b"GET / HTTP/9.9", b"G\x00T / HTTP/1.1", b"get / HTTP/1.1", b"GET  / HTTP/1.1 x",
     b"PRI * HTTP/2.0", b"\x16\x03\x01\x02\x00\x01", b"GET /\x01 HTTP/1.1"],
)  # fmt: skip
async def test_a_request_line_that_is_none_is_a_400_or_an_end(site, line):
    raw = await site.raw(line + b"\r\nHost: x\r\n\r\n")
    assert raw == b"" or raw.startswith(b"HTTP/1.1 400"), raw


async def test_bad_chunks_of_a_transfer_coding_are_a_mistake_of_the_client(site, signer):
    head = signer.head("PUT", "/bucket/k", payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER",
                       x_amz_decoded_content_length="5")  # fmt: skip
    head = head.replace(b"content-length: 0\r\n", b"transfer-encoding: chunked\r\n")
    raw = await site.raw(head + b"ZZ\r\nhello\r\n")
    assert re.findall(rb"HTTP/1.1 (\d)", raw) == [b"4"], raw


async def test_an_offer_to_speak_something_else_is_not_taken_up(site, signer):
    upgrade = signer.head("GET", "/bucket", upgrade="websocket", connection="Upgrade")
    raw = await site.raw(upgrade + b"\x81\x05hello")
    reply, rest = parse(raw)
    assert (reply.status, reply.headers["connection"], rest) == (200, "close", b"")


async def test_connect_is_no_method_here(site):
    raw = await site.raw(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d)", raw) == [b"4"], raw


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flood",
    [b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 100_000 + b"\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: a\r\n" % n for n in range(5000)) + b"\r\n",
     b"GET / HTTP/1.1\r\n" + b"X-Y: " + b"a" * 8000 + b"\r\n" + b"X-Z: " + b"a" * 30_000],
    ids=["line", "field", "count", "unended"],
)  # fmt: skip
async def test_a_head_has_an_end(site, flood):
    raw = await site.raw(flood)
    assert raw.startswith(b"HTTP/1.1 400"), raw[:100]


async def test_one_connection_too_many_is_told_so_and_room_is_made_by_who_leaves(site, signer):
    site.server.admission = site.server.admission.__class__(3, MIB)
    kept = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(3)]
    for _, writer in kept:
        writer.write(signer.head("PUT", "/bucket/k", body=b"body")[:-1] + b"\nbo")
    while site.server.in_flight < 3:
        await asyncio.sleep(0.01)
    reply, rest = parse(await site.raw(b""))
    assert (reply.status, reply.code, rest) == (503, "SlowDown", b"")
    for _, writer in kept:
        writer.close()
    while site.server.admission.connections:
        await asyncio.sleep(0.01)
    assert (await signer.request("HEAD", "/bucket")).status == 200


async def test_where_connections_are_many_an_idle_one_makes_room(site, signer):
    site.server.admission = site.server.admission.__class__(3, MIB)
    kept = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(3)]
    while site.server.admission.connections < 3:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        assert (await signer.request("HEAD", "/bucket")).status == 200
        assert await kept[0][0].read() == b"", "the oldest one"
    for _, writer in kept:
        writer.close()


async def test_heads_that_do_not_end_are_bounded_together(site, signer):
    site.server.admission = site.server.admission.__class__(100, 85_000)
    half = b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 20_000
    kept = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(2)]
    for _, writer in kept:
        writer.write(half)
    while site.server.admission.heads_bytes < 2 * len(half):
        await asyncio.sleep(0.01)
    reply, _ = parse(await site.raw(half))
    assert (reply.status, reply.code) == (503, "SlowDown")
    assert (await signer.request("HEAD", "/bucket")).status == 200
    for reader, writer in kept:  # those that were there first may end theirs
        writer.write(b"\r\n\r\n")
        assert (await read_reply(reader)).status == 403
        writer.close()
    while site.server.admission.connections:
        await asyncio.sleep(0.01)
    assert site.server.admission.heads_bytes == 0


async def test_a_head_that_drips_is_cut_off(site):
    object.__setattr__(site.server._app._settings, "idle_seconds", 0.5)
    site.server._options["idle_seconds"] = 0.5
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: ")
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        for _ in range(200):
            writer.write(b"a")
            await writer.drain()
            await asyncio.wait_for(reader.readexactly(1), 0.05) if reader.at_eof() else await asyncio.sleep(0.05)
    writer.close()


async def test_an_idle_connection_is_cut_off(site):
    site.server._options["idle_seconds"] = 0.3
    assert await site.raw(b"") == b""


async def test_a_body_that_waits_too_long_for_its_share_of_memory_is_told_to_slow_down(site, signer):
    writer = site.engine._writer
    writer.wait_seconds = 0.01
    await writer.budget.acquire(writer.budget.limit)
    for size in (100, 3 * MIB):
        reply = await signer.request("PUT", "/bucket/k", body=bytes(size))
        assert (reply.status, reply.code) == (503, "SlowDown")
    writer.budget.release(writer.budget.limit)
    assert (await signer.request("PUT", "/bucket/k", body=bytes(3 * MIB))).status == 200
    assert writer.budget.used == 0


# --- headers that cost more than they weigh ---------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["if-none-match", "if-match", "if-range", "range", "if-modified-since"])
@pytest.mark.parametrize("value", ["bytes=0-{}x", '"a{}"b', "a{}~"])
async def test_blanks_in_a_condition_do_not_hold_up_the_others(site, signer, header, value):
    await site.store(b"k", b"x")
    text = value.format("\t" * 30_000).strip()
    began = time.thread_time()
    reply = await signer.follow("GET", signer.presigned("GET", "/bucket/k"), **{header: text})
    assert reply.status in {200, 400, 412}
    assert time.thread_time() - began < LINEAR_SECONDS


async def test_an_entity_tag_of_a_deletion_is_bounded(site, signer):
    await site.store(b"k", b"x")
    padding = b" " * 200_000
    body = b"<Delete><Object><Key>k</Key><ETag>%ba</ETag></Object></Delete>" % padding
    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    began = time.thread_time()
    reply = await signer.request("POST", "/bucket", "delete", body, content_md5=md5)
    assert reply.status == 400
    assert time.thread_time() - began < LINEAR_SECONDS
    assert await site.keys() == [b"k"]


async def test_lists_are_bounded(site, signer):
    await site.store(b"k", b"x")
    reply = await signer.request("GET", "/bucket/k", if_none_match=",".join(f'"{n}"' for n in range(257)))
    assert (reply.status, reply.code) == (400, "InvalidArgument")
    assert (await signer.request("GET", "/bucket/k", if_none_match=",".join(["a"] * 256))).status == 200
    reply = await signer.request("GET", "/bucket", "&".join(f"a{n}=" for n in range(201)))
    assert (reply.status, reply.code) == (400, "InvalidArgument")


async def test_a_charset_is_one_of_those_that_mail_uses(site, signer):
    for charset in ("punycode", "idna", "x" * 1000):
        value = f"=?{charset}?q?-{'a' * 1500}?="
        assert (await signer.request("PUT", "/bucket/k", body=b"x", x_amz_meta_a=value)).status in {200, 400}
