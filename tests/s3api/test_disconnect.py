"""Work ends when its client is gone, a command that was sent does not, and copies that read bytes have a bound."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from dataclasses import replace

import pytest

from gateway.errors import Busy
from gateway.timing import Timing, parse_timing
from s3api.settings import S3Settings
from tests.s3api.client import parse

DELETE = b"<Delete><Object><Key>k</Key></Object></Delete>"
COMPLETE = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>a</ETag></Part></CompleteMultipartUpload>"
SOURCE = {"x_amz_copy_source": "bucket/k"}
OPERATIONS = {
    "copy": ("PUT", "/bucket/copy", "", b"", SOURCE),
    "copy_part": ("PUT", "/bucket/k", "partNumber=1&uploadId=u", b"", SOURCE),
    "complete_upload": ("POST", "/bucket/k", "uploadId=u", COMPLETE, {}),
    "delete_many": ("POST", "/bucket", "delete", DELETE,
                    {"content_md5": base64.b64encode(hashlib.md5(DELETE).digest()).decode()}),
    "list": ("GET", "/bucket", "list-type=2", b"", {}),
    "list_versions": ("GET", "/bucket", "versions", b"", {}),
    "list_uploads": ("GET", "/bucket", "uploads", b"", {}),
    "put": ("PUT", "/bucket/k", "", b"x", {}),
}  # fmt: skip
"""The engine's method → a request that leads to it."""


@pytest.fixture
def settings() -> S3Settings:
    return S3Settings(put_bytes=1000, part_bytes=1000)


@pytest.fixture
def timing() -> Timing:
    return parse_timing("connections.probe_seconds=0.02")


PATIENCE_SECONDS = 30
"""After which a test fails instead of waiting on."""


class Held:
    """A method of the engine that works until it is cancelled or let go."""

    def __init__(self) -> None:
        self.begun, self.cancelled, self.let_go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, *_arguments, **_named):
        self.begun.set()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        raise Busy("let go")


@pytest.mark.parametrize("leave", ["reset", "close"])
@pytest.mark.parametrize("method", OPERATIONS)
async def test_work_ends_when_its_client_is_gone(site, signer, monkeypatch, method, leave):
    held = Held()
    monkeypatch.setattr(site.engine, method, held)
    verb, path, query, body, headers = OPERATIONS[method]
    _, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(signer.head(verb, path, query, body, **headers) + body)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await held.begun.wait()
        if leave == "reset":
            writer.transport.abort()
        else:
            writer.close()
        await held.cancelled.wait()
        while site.server.in_flight:
            await asyncio.sleep(0.01)
    assert (site.notebook.seen[-1].status, site.notebook.seen[-1].error) == (499, "ClientGone")
    monkeypatch.undo()
    assert (await signer.request("HEAD", "/bucket")).status == 200


async def test_a_client_that_only_sends_no_more_gets_its_answer(site, signer, monkeypatch):
    """What asks it whether it is there are interim responses, which come before the answer."""
    held = Held()
    monkeypatch.setattr(site.engine, "list", held)
    asking = asyncio.create_task(site.raw(signer.head("GET", "/bucket"), half_close=True))
    await held.begun.wait()
    await asyncio.sleep(0.1)
    held.let_go.set()
    raw = await asking
    interim, _, answer = raw.rpartition(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert 0 < raw.count(b"100 Continue") <= 4
    assert interim.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"") == b""
    assert parse(answer)[0].code == "SlowDown"
    assert not held.cancelled.is_set()


async def test_a_command_that_was_sent_is_committed_although_its_client_goes(site, signer, monkeypatch):
    """Nobody learns of its outcome, so the bytes stay that it may have named."""
    sent, send = asyncio.Event(), site.engine._journal.send

    async def sending(command):
        answer = asyncio.ensure_future(send(command))
        await asyncio.sleep(0)
        sent.set()
        await asyncio.Event().wait()
        return await answer

    monkeypatch.setattr(site.engine._journal, "send", sending)
    body = b"x" * 900
    _, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(signer.head("PUT", "/bucket/k", body=body) + body)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await sent.wait()
        writer.transport.abort()
        while site.server.in_flight:
            await asyncio.sleep(0.01)
        monkeypatch.undo()
        while await site.keys() != [b"k"]:
            await asyncio.sleep(0.01)
    assert (await signer.request("GET", "/bucket/k")).body == body
    assert site.engine._writer.budget.used == 0


async def test_what_the_other_protocol_does_is_done_although_its_client_goes(site, signer):
    """A client of it asks again for the answer, under the same idempotency key."""
    held = Held()
    app = site.server._app
    app._settings = replace(app._settings, extension=held)
    _, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(signer.head("POST", "/.entrepot/v1", body=b"x") + b"x")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await held.begun.wait()
        writer.transport.abort()
        while site.server.admission.connections:
            await asyncio.sleep(0.01)
        assert site.server.in_flight == 1
        held.let_go.set()
        while site.server.in_flight:
            await asyncio.sleep(0.01)
    assert not held.cancelled.is_set()


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_a_part_is_bounded_also_where_it_is_copied(site, signer):
    await site.store(b"large", bytes(1001))
    upload = (await signer.request("POST", "/bucket/k", "uploads")).xml("UploadId")
    query = f"partNumber=1&uploadId={upload}"
    reply = await signer.request("PUT", "/bucket/k", query, x_amz_copy_source="bucket/large")
    assert (reply.status, reply.code) == (400, "InvalidRequest")
    assert reply.xml("Message").endswith("larger than the maximum allowable size for a copy source: 1000")
    for last, status in ((1000, 400), (999, 200)):
        reply = await signer.request(
            "PUT", "/bucket/k", query, x_amz_copy_source="bucket/large", x_amz_copy_source_range=f"bytes=0-{last}"
        )
        assert reply.status == status


async def test_a_copy_is_bounded_where_its_bytes_are_read(site, signer):
    await site.store(b"large", bytes(1001))
    reply = await signer.request("PUT", "/bucket/k", x_amz_copy_source="bucket/large", x_amz_checksum_algorithm="SHA1")
    assert (reply.status, reply.code) == (400, "InvalidRequest")
    assert (await signer.request("PUT", "/bucket/k", x_amz_copy_source="bucket/large")).status == 200
