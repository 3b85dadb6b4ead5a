"""Posting to a gateway: signed, over connections that are kept, and again where that may help.

All that is sent may be sent again: reads change nothing, and changes bear a mark under which they are made once
(`gateway.posix.rpc.protocol`). What a gateway says is tried again after a while that grows, is drawn at random, and is
no shorter than the gateway asked for.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from html import unescape
from typing import Any, TypeVar

import aiohttp

from gateway.engine.types import Body, Buffer
from gateway.errors import (
    AccessDenied,
    BadChecksum,
    BadDigest,
    Busy,
    EntityTooLarge,
    EntrepotError,
    IncompleteBody,
    InvalidArgument,
    Refused,
    Unavailable,
)
from gateway.identity import canonical
from gateway.identity.canonical import EMPTY_SHA256
from gateway.identity.signing import END, ChunkSigner, presign, sign_headers
from gateway.posix.bodies import BytesBody
from gateway.posix.rpc.endpoint import Endpoint
from gateway.posix.rpc.protocol import ATTEMPT_PARAMETER, PREFIX
from gateway.timing import Timing

T = TypeVar("T")
Take = Callable[[aiohttp.ClientResponse], Awaitable[T]]
log = logging.getLogger(__name__)

CONNECTIONS = 128
INLINE_BYTES = 64 << 10
"""What is longer is hashed in a thread."""
PIECE_BYTES = 256 << 10
CHUNKED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SAID_BYTES_MOST = 64 << 10
"""Of what a gateway says that is wrong."""

_AGAIN = {500, 502, 503, 504}
_ELEMENT = re.compile(r"<(Code|Message|Region)>([^<]*)</")
_KINDS: dict[str, type[EntrepotError]] = {
    "AccessDenied": AccessDenied,
    "AuthorizationHeaderMalformed": AccessDenied,
    "BadDigest": BadDigest,
    "EntityTooLarge": EntityTooLarge,
    "IncompleteBody": IncompleteBody,
    "InvalidAccessKeyId": AccessDenied,
    "InvalidArgument": InvalidArgument,
    "RequestTimeTooSkewed": AccessDenied,
    "SignatureDoesNotMatch": AccessDenied,
    "SlowDown": Busy,
    "XAmzContentSHA256Mismatch": BadDigest,
}
"""What S3's codes are, said of a request as a whole."""


class _Again(Exception):
    """It may go better the next time. *why*: what is raised if it does not; *after_seconds*: not before."""

    def __init__(self, why: EntrepotError, after_seconds: float = 0.0) -> None:
        super().__init__(why)
        self.why = why
        self.after_seconds = after_seconds


class _Connector(aiohttp.TCPConnector):
    """Connections that a forked child does not end when it ends: they are its parent's. Nor are those ended, or
    complained of, whose loop is gone before the program ends."""

    def __init__(self, **options: Any) -> None:
        self._pid = os.getpid()
        self.forgotten = False
        super().__init__(**options)

    def __del__(self, *arguments: Any) -> None:
        if os.getpid() == self._pid and not self.forgotten and not self._loop.is_closed():
            super().__del__(*arguments)


class Transport:
    """One gateway, on one event loop of one process."""

    def __init__(self, gateway: Endpoint, timing: Timing) -> None:
        """Raises `Misconfigured`. To be made on a running loop."""
        self._gateway = gateway
        self._timing = timing.files
        self._clock = timing.clock
        self._region = gateway.region
        self._ahead = timedelta()
        """How far the gateway's clock is ahead of ours, where that is too far for it to take what we sign."""
        self._connector = _Connector(limit=CONNECTIONS, keepalive_timeout=self._timing.idle_seconds, ssl=gateway.tls())
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=gateway.timeout, sock_read=gateway.timeout),
            auto_decompress=False,
            read_bufsize=1 << 20,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def post(
        self, name: str, query: str, body: Body | bytes, size: int, take: Take[T], *, keep: bool = False,
        seconds: float | None = None, tries: int = 1,
    ) -> T:  # fmt: skip
        """What *take* makes of the answer to *body*, of *size* bytes, posted to *name* with the encoded *query*.
        *keep*: the answer is *take*'s to release. No try begins later than *seconds* from now (`retry_seconds` unless
        given), but the first *tries*. A suspended machine's time counts, since the gateway, which is awake, forgets
        meanwhile what it answered.

        Raises what the gateway said of the request as a whole, `Unavailable` where it does not answer."""
        boottime = self._clock.boottime
        until, attempt = boottime() + (self._timing.retry_seconds if seconds is None else seconds), 1
        while True:
            try:
                return await self._once(name, _with_attempt(query, attempt), body, size, take, keep)
            except _Again as again:
                why = again.why
                wait = max(again.after_seconds, random.uniform(0, self._longest_wait(attempt)))  # noqa: S311 (a wait)
                if attempt >= tries and boottime() + wait > until:
                    raise why from None
                log.info("%s %s is tried again in %.2f s: %s", name, self._gateway.host, wait, why)
            await self._clock.sleep(wait)
            if attempt >= tries and boottime() > until + wait:  # the machine was suspended meanwhile
                raise why
            attempt += 1

    async def _once(self, name: str, query: str, body: Body | bytes, size: int, take: Take[T], keep: bool) -> T:
        path = PREFIX + name
        url = f"{self._gateway.scheme}://{self._gateway.host}{path}{'?' if query else ''}{query}"
        sending = await self._sending(path, query, body, size)
        try:
            response = await self._session.post(url, headers=sending.headers, data=sending.data, allow_redirects=False)
            try:
                if response.status != 200:
                    await self._say(response)
                taken = await take(response)
            except BaseException:
                response.close()
                raise
            if not keep:
                response.release()
            return taken  # noqa: TRY300 (what it returns was made above)
        except aiohttp.ClientSSLError as error:
            raise AccessDenied(f"{self._gateway.host} is not who it should be: {error}") from None
        except (aiohttp.ClientError, asyncio.IncompleteReadError, TimeoutError, OSError, BadChecksum) as error:
            if sending.failed is not None:
                raise sending.failed from None
            why = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
            raise _Again(Unavailable(f"{self._gateway.host} does not answer: {why}")) from error

    async def _sending(self, path: str, query: str, body: Body | bytes, size: int) -> _Sending:
        """What goes out: a body that is at hand is signed by its hash, one that is to come chunk by chunk."""
        headers = {"host": self._gateway.host}
        data = body.data if isinstance(body, BytesBody) else body
        if isinstance(data, Body):
            headers["x-amz-decoded-content-length"] = str(size)
            payload = CHUNKED
        elif size > INLINE_BYTES:
            payload = await asyncio.to_thread(_sha256, data)
        else:
            payload = _sha256(data) if size else EMPTY_SHA256
        signed = sign_headers(
            "POST", raw_path=path, raw_query=query, headers=headers, payload=payload, access_key=self._gateway.key,
            secret_key=self._gateway.secret, region=self._region, now=self._now(),
        )  # fmt: skip
        if not isinstance(data, Body):
            return _Sending({**signed, "content-length": str(size)}, data)
        date = signed["x-amz-date"]
        key = canonical.signing_key(self._gateway.secret, date[:8], self._region, "s3")
        seed = signed["authorization"].rpartition("Signature=")[2]
        signer = ChunkSigner(key, date, f"{date[:8]}/{self._region}/s3/aws4_request", seed)
        return _Sending(signed, data, signer, size)

    def presigned_url(self, path: bytes, seconds: int) -> str:
        """The address under which whoever has it may GET *path*, not encoded, for so long."""
        signed = presign(
            "GET", host=self._gateway.host, path=path, access_key=self._gateway.key, secret_key=self._gateway.secret,
            region=self._region, now=self._now(), expires=seconds,
        )  # fmt: skip
        return f"{self._gateway.scheme}://{self._gateway.host}{signed}"

    def _now(self) -> datetime:
        """The gateway's time, as far as we know."""
        return self._own_time() + self._ahead

    def _own_time(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ns() / 1e9, UTC)

    def _learns_the_time(self, said: str) -> bool:
        """Whether the gateway's `Date` tells that our clock goes wrong, and we did not know."""
        try:
            ahead = parsedate_to_datetime(said) - self._own_time()
        except (ValueError, TypeError):
            return False
        known, self._ahead = self._ahead, ahead
        return abs(ahead - known) > timedelta(seconds=self._timing.skew_seconds)

    async def _say(self, response: aiohttp.ClientResponse) -> None:
        """Raise what the gateway said."""
        text = (await response.content.read(SAID_BYTES_MOST)).decode("utf-8", "replace")
        said = {name: unescape(value) for name, value in _ELEMENT.findall(text)}
        code, message = said.get("Code", ""), said.get("Message", f"status {response.status}")
        if code == "AuthorizationHeaderMalformed" and said.get("Region", self._region) != self._region:
            self._region = said["Region"]  # it tells which region it is; asked for that, it will do
            raise _Again(AccessDenied(message))
        if code == "RequestTimeTooSkewed" and self._learns_the_time(response.headers.get("Date", "")):
            log.warning("this machine's clock and that of %s differ by %s", self._gateway.host, self._ahead)
            raise _Again(AccessDenied(message))
        why: EntrepotError = _KINDS.get(code, Unavailable if response.status in _AGAIN else Refused)(
            message if code else f"{self._gateway.host} is no gateway of this kind: {message}"
        )
        if response.status in _AGAIN or code in ("RequestTimeout", "IncompleteBody"):
            raise _Again(why, self._asked_for(response.headers.get("Retry-After", "")))
        raise why

    def _longest_wait(self, attempt: int) -> float:
        """Before the try after *attempt*, in seconds."""
        return float(min(self._timing.retry_first_seconds * 2**attempt, self._timing.retry_most_seconds))

    def _asked_for(self, text: str) -> float:
        """The seconds of a `Retry-After`."""
        return min(float(text), self._timing.retry_most_seconds) if text.isascii() and text.isdigit() else 0.0

    async def close(self) -> None:
        """End its connections."""
        await self._session.close()

    def forget(self) -> None:
        """Nothing touches the connections any more: they are the parent's of this child, or their loop is gone."""
        self._connector.forgotten = True
        self._session.detach()


class _Sending:
    """One try's headers and body."""

    def __init__(
        self, headers: dict[str, str], body: Body | Buffer, signer: ChunkSigner | None = None, size: int = 0
    ) -> None:
        self.headers = headers
        self.failed: BaseException | None = None
        """What went wrong with the body itself, which no other try mends."""
        self.data = self._chunks(body, signer, size) if isinstance(body, Body) and signer else self._pieces(body)

    async def _pieces(self, data: Any) -> AsyncIterator[Buffer]:
        view = memoryview(data)
        for at in range(0, len(view), PIECE_BYTES):
            yield view[at : at + PIECE_BYTES]

    async def _chunks(self, body: Body, signer: ChunkSigner, size: int) -> AsyncIterator[bytes]:
        try:
            left = size
            async for piece in body:
                left -= len(piece)
                yield await asyncio.to_thread(signer.chunk, bytes(piece))
            if left:
                raise IncompleteBody(size, size - left)
        except GeneratorExit:
            raise
        except Exception as error:
            self.failed = error
            raise
        yield signer.chunk(b"") + END


def _sha256(data: Buffer) -> str:
    return hashlib.sha256(data).hexdigest()


def _with_attempt(query: str, attempt: int) -> str:
    if attempt == 1:
        return query
    return f"{query}{'&' if query else ''}{ATTEMPT_PARAMETER}={attempt}"
