"""A bare S3 to measure against: as quick as one process can be, and honest about checksums.

It answers what the `s3` backend and obstore ask: PUT (a CRC64NVME that is told is compared, conditions on an ETag are
heeded), GET with a range, HEAD, DELETE, a listing. Values lie in memory; with a limit, of a longer one only the length
stays, and a GET of it is answered with zeros. No signature is looked at.

It stands for what is elsewhere: where processors are scarce it takes none from those who are measured.

As a program: `python -m tests.bench.cloud PORT KEPT_BYTES`. A GET of `/-/told` says what it took in since the last one.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import uvloop
from awscrt import checksums

from gateway.site.processes.priority import lower_priority
from tests.bench.server import ELSEWHERE, wait_for
from tests.ports import free_port

KEEP_ALL = 1 << 40
OWN_BYTES = 1024
"""What the driver puts for itself, a marker or a probe, is smaller."""
CHECKSUM = b"x-amz-checksum-crc64nvme"
_MODIFIED = "last-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n"


class Taken(NamedTuple):
    """What came in of values that are not the driver's own small ones. Times are the machine's monotonic clock's, the
    same in every process."""

    values: int
    bytes: int
    first_at: float
    """When the first of them began to come, and"""
    last_at: float
    """when the last one was whole."""


class Value(NamedTuple):
    etag: str
    size: int
    held: bytes | None
    """None: too long to be kept."""


class Cloud:
    """What all connections share."""

    def __init__(self, kept_bytes: int) -> None:
        self.kept_bytes = kept_bytes
        self.values: dict[str, Value] = {}
        self.taken = Taken(0, 0, 0.0, 0.0)
        self._made = 0

    def put(self, key: str, heads: dict[bytes, bytes], crc: int, size: int, pieces: list[bytes], began: float) -> str:
        """Its answer's status."""
        told = heads.get(CHECKSUM)
        if told is not None and int.from_bytes(_base64(told), "big") != crc:
            return "400 BadDigest"
        there = self.values.get(key)
        if heads.get(b"if-none-match") == b"*" and there is not None:
            return "412 PreconditionFailed"
        if b"if-match" in heads and (there is None or heads[b"if-match"].decode().strip('"') != there.etag):
            return "412 PreconditionFailed"
        self._made += 1
        held = b"".join(pieces) if size <= self.kept_bytes else None
        self.values[key] = Value(f"{self._made:032x}-1", size, held)
        values, total, first_at, _ = self.taken
        if size > OWN_BYTES:
            self.taken = Taken(values + 1, total + size, first_at or began, time.monotonic())
        return "200 OK"

    def told(self) -> bytes:
        told, self.taken = self.taken, Taken(0, 0, 0.0, 0.0)
        return json.dumps(told).encode()

    def listing(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        after = query.get("start-after", query.get("continuation-token", [""]))[0]
        most = int(query.get("max-keys", ["1000"])[0])
        keys = sorted(key for key in self.values if key.startswith(f"{bucket}/{prefix}"))
        names = [key.partition("/")[2] for key in keys]
        names = [name for name in names if name > after]
        page, more = names[:most], len(names) > most
        lines = [
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{value.etag}&quot;</ETag><Size>{value.size}</Size></Contents>"
            for name in page
            for value in [self.values[f"{bucket}/{name}"]]
        ]
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        return (
            f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
            f"<MaxKeys>{most}</MaxKeys><IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(lines)}"
            "</ListBucketResult>"
        ).encode()


def _base64(told: bytes) -> bytes:
    import binascii

    return binascii.a2b_base64(told)


class Wire(asyncio.Protocol):
    """One connection: requests one after the other, their bodies hashed as they come."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._transport: asyncio.Transport
        self._head = b""
        self._left = -1
        """Bytes of the body that are still to come; -1 while a head is awaited."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        while data:
            if self._left < 0:
                self._head += data
                head, found, data = self._head.partition(b"\r\n\r\n")
                if not found:
                    return
                self._head = b""
                self._begin(head)
            piece, data = (data, b"") if len(data) <= self._left else (data[: self._left], data[self._left :])
            if piece:
                self._crc = checksums.crc64nvme(piece, self._crc)
                self._left -= len(piece)
                if self._size <= self._cloud.kept_bytes:
                    self._pieces.append(piece)
            if not self._left:
                self._left = -1
                self._answer()

    def _begin(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        self._method, self._target, _ = first.decode().split(" ", 2)
        parted = [line.partition(b":") for line in lines]
        self._heads = {name.lower(): value.strip() for name, _, value in parted}
        self._size = self._left = int(self._heads.get(b"content-length", 0))
        self._crc, self._began = 0, time.monotonic()
        self._pieces: list[bytes] = []
        if self._heads.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _answer(self) -> None:
        path, _, query = self._target.partition("?")
        key = unquote(path[1:])
        if self._method in ("GET", "HEAD") and "/" in key and not key.endswith("/"):
            self._get(key)
        elif self._method == "PUT":
            status = self._cloud.put(key, self._heads, self._crc, self._size, self._pieces, self._began)
            self._pieces = []
            self._say(status, f'etag: "{self._cloud.values[key].etag}"\r\n' if status == "200 OK" else "")
        elif self._method == "DELETE":
            self._cloud.values.pop(key, None)
            self._say("204 No Content")
        elif "versioning" in query:
            self._say("200 OK", body=b"<VersioningConfiguration/>")
        else:
            self._say("200 OK", body=self._cloud.listing(key.strip("/"), parse_qs(query)))

    def _get(self, key: str) -> None:
        if key == "-/told":
            self._say("200 OK", body=self._cloud.told())
            return
        value = self._cloud.values.get(key)
        if value is None:
            self._say("404 NoSuchKey")
            return
        whole = value.held if value.held is not None else bytes(value.size)
        heads = f'etag: "{value.etag}"\r\naccept-ranges: bytes\r\n{_MODIFIED}'
        if self._method == "HEAD":
            self._transport.write(f"HTTP/1.1 200 OK\r\n{heads}content-length: {value.size}\r\n\r\n".encode())
            return
        asked = self._heads.get(b"range")
        if asked is None:
            self._say("200 OK", heads, whole)
            return
        first, _, last = asked.decode().removeprefix("bytes=").partition("-")
        start, end = int(first), min(value.size, int(last) + 1 if last else value.size)
        if start >= value.size:
            self._say("416 InvalidRange")
            return
        self._say("206 OK", f"{heads}content-range: bytes {start}-{end - 1}/{value.size}\r\n", whole[start:end])

    def _say(self, status: str, heads: str = "", body: bytes = b"") -> None:
        number, _, code = status.partition(" ")
        if int(number) >= 400:
            body = f"<Error><Code>{code}</Code><Message/></Error>".encode()
        length = "" if number == "204" else f"content-length: {len(body)}\r\n"
        head = f"HTTP/1.1 {status}\r\n{heads}{length}\r\n".encode()
        if len(body) <= 1 << 16:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)


async def _serve(port: int, kept_bytes: int) -> None:
    cloud = Cloud(kept_bytes)
    await asyncio.get_running_loop().create_server(lambda: Wire(cloud), "127.0.0.1", port, backlog=1024)
    await asyncio.Event().wait()


class Running(NamedTuple):
    """A cloud that runs."""

    url: str

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def told(self) -> Taken:
        """What it took in since this was last asked."""
        with urllib.request.urlopen(f"{self.url}/-/told") as answer:
            return Taken(*json.loads(answer.read()))


@contextmanager
def cloud(kept_bytes: int = KEEP_ALL) -> Iterator[Running]:
    """One in a process of its own, until the block ends. Of values longer than *kept_bytes* only the length stays."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.cloud", str(port), str(kept_bytes)], start_new_session=True
    )
    try:
        wait_for(port)
        yield Running(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    lower_priority(ELSEWHERE)
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
