"""Something between a client and its server: hears every request, and answers as a test's rule says.

A rule is `async (request, forward) -> Reply`: what to send back, raw, at once or piece by piece, or None to cut the
connection; `forward` sends a request to the real server and gives its raw answer. Each connection serves one request.
It also plays the forward proxy of an environment's `http_proxy`, so that hosts without an address can be asked for.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.servers.running import S3Server


class Heard(NamedTuple):
    """One request as it came; header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def access_key(self) -> str:
        """Who signed it."""
        found = re.search(r"Credential=([^/]+)/", self.headers.get("authorization", ""))
        return found[1] if found else ""

    def without(self, *names: str) -> Heard:
        """The same, but for some headers."""
        return self._replace(headers={name: value for name, value in self.headers.items() if name not in names})


Forward = Callable[[Heard], Awaitable[bytes]]
Reply = bytes | AsyncIterator[bytes] | None
Rule = Callable[[Heard, Forward], Awaitable[Reply]]


def answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    """A raw answer."""
    fields = {"content-length": str(len(body)), "connection": "close"} | headers
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def refusal(status: str, code: str, message: str = "", more: str = "", **headers: str) -> bytes:
    """An answer as S3 words its errors."""
    return answer(status, f"<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>".encode(), **headers)


async def endless(head: bytes, piece: bytes) -> AsyncIterator[bytes]:
    """An answer that goes on with *piece* after *piece* for as long as somebody takes it."""
    yield head
    while True:
        yield piece


async def honest(request: Heard, forward: Forward) -> Reply:
    """The rule that changes nothing."""
    return await forward(request)


class Between:
    """Where it listens (as `server`), what it heard, and the rule, which may be changed at any time."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.heard: list[Heard] = []
        self.rule: Rule = honest
        self.sent_bytes = 0
        """Of all answers."""
        self._real = urlsplit(server.url)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with suppress(OSError, asyncio.IncompleteReadError):
            request = await self._read(reader, writer)
            self.heard.append(request)
            await self._reply(await self.rule(request, self._forward), writer)
        writer.close()

    async def _reply(self, reply: Reply, writer: asyncio.StreamWriter) -> None:
        if reply is None:
            return
        async for piece in _one(reply) if isinstance(reply, bytes) else reply:
            writer.write(piece)
            self.sent_bytes += len(piece)
            await writer.drain()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Heard:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.pop("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        parts = urlsplit(target)
        if parts.scheme:
            target = parts._replace(scheme="", netloc="").geturl() or "/"
        return Heard(method, target, headers, body)

    async def _forward(self, request: Heard) -> bytes:
        """On a connection of its own, whose end is the answer's."""
        reader, writer = await asyncio.open_connection(self._real.hostname, self._real.port)
        headers = request.headers | {"connection": "close"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"{request.method} {request.target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + request.body)
        try:
            return await reader.read()
        finally:
            writer.close()


async def _one(reply: bytes) -> AsyncIterator[bytes]:
    yield reply


@asynccontextmanager
async def between(server: S3Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[Between]:
    """Listens until the block ends; with *tls*, over HTTPS."""
    stands = Between(server)
    listening = await asyncio.start_server(stands.serve, "127.0.0.1", 0, ssl=tls)
    stands.server = server.at(f"{'https' if tls else 'http'}://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    try:
        yield stands
    finally:
        listening.close()
