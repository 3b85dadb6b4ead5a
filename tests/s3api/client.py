"""A client of a few lines that signs and speaks HTTP as bare as it can, so that tests see what is on the wire."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from gateway.identity.signing import presign, sign_headers


@dataclass
class Reply:
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return self.xml("Code") if self.body else ""

    def xml(self, path: str) -> str:
        document = ElementTree.fromstring(self.body)
        for element in document.iter():
            element.tag = element.tag.rpartition("}")[2]
        return document.findtext(path) or ""


def parse(raw: bytes, method: str = "GET") -> tuple[Reply, bytes]:
    """The first reply in *raw*, and what is behind it."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("utf-8").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    status = int(first.split()[1])
    bodiless = method == "HEAD" or status in (204, 304) or status < 200
    length = 0 if bodiless else int(headers["content-length"])
    return Reply(status, headers, rest[:length]), rest[length:]


class Signer:
    """Makes signed requests to a site under test."""

    def __init__(self, site: Any, access_key: str = "AKALICE", secret: str = "alice-secret", host: str = "") -> None:
        self.site, self.access_key, self.secret = site, access_key, secret
        self.host = host or f"127.0.0.1:{site.port}"

    def head(
        self, method: str, raw_path: str, query: str = "", body: bytes = b"", payload: str | None = None,
        **headers: str,
    ) -> bytes:  # fmt: skip
        """The head of a signed request. *headers*: `content_md5` is `content-md5`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body or method in ("PUT", "POST"):
            named.setdefault("content-length", str(len(body)))
        signed = self.signed(method, raw_path, query, payload or hashlib.sha256(body).hexdigest(), **named)
        target = f"{raw_path}?{query}" if query else raw_path
        return encode(method, target, signed)

    def signed(
        self, method: str, raw_path: str, query: str = "", payload: str = "UNSIGNED-PAYLOAD",
        at: datetime | None = None, **headers: str,
    ) -> dict[str, str]:  # fmt: skip
        """The headers of a request that is signed *at* a time, now where none is said."""
        return sign_headers(
            method, raw_path=raw_path, raw_query=query, headers={"host": self.host, **headers}, payload=payload,
            access_key=self.access_key, secret_key=self.secret, region="us-east-1", now=at or datetime.now(UTC),
        )  # fmt: skip

    async def request(
        self, method: str, raw_path: str, query: str = "", body: bytes = b"", payload: str | None = None,
        **headers: str,
    ) -> Reply:  # fmt: skip
        """One signed request on a connection of its own."""
        head = self.head(method, raw_path, query, body, payload, **headers)
        return await self.send(head + body, method)

    async def send(self, data: bytes, method: str = "GET") -> Reply:
        """Whatever *data* is, up to the end of the first reply."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.site.port, limit=1 << 26)
        try:
            writer.write(data)
            return await read_reply(reader, method)
        finally:
            writer.close()

    async def follow(self, method: str, target: str, body: bytes = b"", **headers: str) -> Reply:
        """A request whose *target* brings its signature."""
        if body or method in ("PUT", "POST"):
            headers.setdefault("content-length", str(len(body)))
        return await self.send(encode(method, target, {"host": self.host, **headers}) + body, method)

    def presigned(self, method: str, path: str, expires: int = 60, **query: str) -> str:
        """The target of a presigned request."""
        return presign(
            method, host=self.host, path=path, access_key=self.access_key, secret_key=self.secret, region="us-east-1",
            now=datetime.now(UTC), expires=expires, query=query,
        )  # fmt: skip


def encode(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """A request's head as bytes."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode()


async def read_reply(reader: asyncio.StreamReader, method: str = "GET") -> Reply:
    """The next reply on a connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    reply, _ = parse(head + b"\0" * 0, "HEAD")
    if method != "HEAD" and reply.status not in (204, 304) and reply.status >= 200:
        reply.body = await reader.readexactly(int(reply.headers["content-length"]))
    return reply


def quoted(key: str | bytes) -> str:
    """A key as it stands in a raw path."""
    return quote(key, safe="/-_.~")


def chunks(*parts: bytes) -> bytes:
    """A body in aws-chunked coding, up to its trailers."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part) + b"0\r\n"


def failed(caught: Any) -> str:
    """The code of the error that boto3 raised: *caught* is what `pytest.raises` gives."""
    return str(caught.value.response["Error"]["Code"])
