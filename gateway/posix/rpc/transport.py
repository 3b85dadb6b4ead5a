"""Signed POST requests to a gateway, over persistent connections, with retries.

Everything may be sent again: reads change nothing, and changes carry an idempotency key (`gateway.posix.rpc.protocol`).
The pause before a retry grows, is drawn at random, and is no shorter than the gateway's Retry-After.
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
    Misconfigured,
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
ReadResponse = Callable[[aiohttp.ClientResponse], Awaitable[T]]
"""Makes a value of the response to a request."""
log = logging.getLogger(__name__)

CONNECTIONS = 128
INLINE_BYTES = 64 << 10
"""Larger bodies are hashed in a thread."""
PIECE_BYTES = 256 << 10
CHUNKED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
ERROR_BYTES_MOST = 64 << 10
"""The bytes of an error response that are read."""

_NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"}
"""OpenSSL's reasons if a server answers a TLS handshake with plain HTTP."""
_RETRYABLE_STATUS = {500, 502, 503, 504}
_ELEMENT = re.compile(r"<(Code|Message|Region)>([^<]*)</")
_ERROR_OF_CODE: dict[str, type[EntrepotError]] = {
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
"""The errors for S3's codes, in a response to a request as a whole."""


class _RetryableError(Exception):
    """The request may succeed if it is sent again, not before *after_seconds*. *error*: raised if it is not sent
    again."""

    def __init__(self, error: EntrepotError, after_seconds: float = 0.0) -> None:
        super().__init__(error)
        self.error = error
        self.after_seconds = after_seconds


class _Connector(aiohttp.TCPConnector):
    """Connections that survive a fork: a child does not close the connections of its parent when they are collected.
    Connections whose loop has ended are dropped without a warning."""

    def __init__(self, **options: Any) -> None:
        self._pid = os.getpid()
        self.forgotten = False
        super().__init__(**options)

    def __del__(self, *arguments: Any) -> None:
        if os.getpid() == self._pid and not self.forgotten and not self._loop.is_closed():
            super().__del__(*arguments)


class Transport:
    """The connections to one gateway, on one event loop of one process."""

    def __init__(self, endpoint: Endpoint, timing: Timing) -> None:
        """Create the connection pool, on a running loop. Raises `Misconfigured`."""
        self._endpoint = endpoint
        self._timing = timing.files
        self._clock = timing.clock
        self._region = endpoint.region
        self._ahead = timedelta()
        """How far the gateway's clock is ahead of ours. Set only if the difference is so large that the gateway refuses
        our signatures."""
        self._connector = _Connector(limit=CONNECTIONS, keepalive_timeout=self._timing.idle_seconds, ssl=endpoint.tls())
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=endpoint.timeout, sock_read=endpoint.timeout),
            auto_decompress=False,
            read_bufsize=1 << 20,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def post(
        self, name: str, query: str, body: Body | bytes, size: int, read: ReadResponse[T], *, keep: bool = False,
        seconds: float | None = None, tries: int = 1,
    ) -> T:  # fmt: skip
        """Post *body*, of *size* bytes, to the path *name* with the encoded *query*. Returns what *read* makes of the
        response.

        *keep*: *read*'s caller releases the response. No attempt begins later than *seconds* from now (by default
        `retry_seconds`), except the first *tries* attempts. The time during which the machine was suspended counts,
        since the gateway drops kept responses meanwhile.

        Raises the gateway's error for the request as a whole, and `Unavailable` if it does not answer."""
        boottime = self._clock.boottime
        until, attempt = boottime() + (self._timing.retry_seconds if seconds is None else seconds), 1
        while True:
            try:
                return await self._attempt(name, _with_attempt(query, attempt), body, size, read, keep)
            except _RetryableError as retryable:
                error = retryable.error
                wait = max(retryable.after_seconds, random.uniform(0, self._longest_pause(attempt)))  # noqa: S311 (a wait)
                if attempt >= tries and boottime() + wait > until:
                    raise error from None
                log.info("%s %s: retrying in %.2f s: %s", name, self._endpoint.host, wait, error)
            await self._clock.sleep(wait)
            if attempt >= tries and boottime() > until + wait:  # the machine was suspended meanwhile
                raise error
            attempt += 1

    async def _attempt(
        self, name: str, query: str, body: Body | bytes, size: int, read: ReadResponse[T], keep: bool
    ) -> T:
        path = PREFIX + name
        url = f"{self._endpoint.scheme}://{self._endpoint.host}{path}{'?' if query else ''}{query}"
        outgoing = await self._sign(path, query, body, size)
        try:
            response = await self._session.post(
                url, headers=outgoing.headers, data=outgoing.data, allow_redirects=False
            )
            try:
                if response.status != 200:
                    await self._raise_error(response)
                result = await read(response)
            except BaseException:
                response.close()
                raise
            if not keep:
                response.release()
            return result  # noqa: TRY300 (the result was computed above)
        except aiohttp.ClientSSLError as error:
            if getattr(getattr(error, "os_error", None), "reason", "") in _NO_TLS:
                message = f"{self._endpoint.host} does not speak TLS: write http:// in the endpoint"
                raise Misconfigured(message) from None
            raise AccessDenied(f"{self._endpoint.host} cannot be verified: {error}") from None
        except (aiohttp.ClientError, asyncio.IncompleteReadError, TimeoutError, OSError, BadChecksum) as error:
            if outgoing.failed is not None:
                raise outgoing.failed from None
            why = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
            raise _RetryableError(Unavailable(f"{self._endpoint.host} does not answer: {why}")) from error

    async def _sign(self, path: str, query: str, body: Body | bytes, size: int) -> _Outgoing:
        """Sign a request. A body in memory is signed by its hash; a stream is signed chunk by chunk."""
        headers = {"host": self._endpoint.host}
        data = body.data if isinstance(body, BytesBody) else body
        if isinstance(data, Body):
            headers["x-amz-decoded-content-length"] = str(size)
            payload = CHUNKED
        elif size > INLINE_BYTES:
            payload = await asyncio.to_thread(_sha256, data)
        else:
            payload = _sha256(data) if size else EMPTY_SHA256
        signed = sign_headers(
            "POST", raw_path=path, raw_query=query, headers=headers, payload=payload, access_key=self._endpoint.key,
            secret_key=self._endpoint.secret, region=self._region, now=self._now(),
        )  # fmt: skip
        if not isinstance(data, Body):
            return _Outgoing({**signed, "content-length": str(size)}, data)
        date = signed["x-amz-date"]
        key = canonical.signing_key(self._endpoint.secret, date[:8], self._region, "s3")
        seed = signed["authorization"].rpartition("Signature=")[2]
        signer = ChunkSigner(key, date, f"{date[:8]}/{self._region}/s3/aws4_request", seed)
        return _Outgoing(signed, data, signer, size)

    def presigned_url(self, path: bytes, seconds: int) -> str:
        """Return a URL with which anyone may GET *path* (not encoded) for *seconds*."""
        signed = presign(
            "GET", host=self._endpoint.host, path=path, access_key=self._endpoint.key, secret_key=self._endpoint.secret,
            region=self._region, now=self._now(), expires=seconds,
        )  # fmt: skip
        return f"{self._endpoint.scheme}://{self._endpoint.host}{signed}"

    def _now(self) -> datetime:
        """Return the gateway's time, as far as it is known."""
        return self._own_time() + self._ahead

    def _own_time(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ns() / 1e9, UTC)

    def _adjust_clock(self, date: str) -> bool:
        """Set the offset of the gateway's clock from its `Date` header. Returns whether it differs from the known one
        by so much that signing again may help."""
        try:
            ahead = parsedate_to_datetime(date) - self._own_time()
        except (ValueError, TypeError):
            return False
        known, self._ahead = self._ahead, ahead
        return abs(ahead - known) > timedelta(seconds=self._timing.skew_seconds)

    async def _raise_error(self, response: aiohttp.ClientResponse) -> None:
        """Raise the error in a response."""
        text = (await response.content.read(ERROR_BYTES_MOST)).decode("utf-8", "replace")
        fields = {name: unescape(value) for name, value in _ELEMENT.findall(text)}
        code, message = fields.get("Code", ""), fields.get("Message", f"status {response.status}")
        if code == "AuthorizationHeaderMalformed" and fields.get("Region", self._region) != self._region:
            self._region = fields["Region"]  # sign again for the region that the gateway names
            raise _RetryableError(AccessDenied(message))
        if code == "RequestTimeTooSkewed" and self._adjust_clock(response.headers.get("Date", "")):
            log.warning("the clocks of this machine and of %s differ by %s", self._endpoint.host, self._ahead)
            raise _RetryableError(AccessDenied(message))
        error: EntrepotError = _ERROR_OF_CODE.get(
            code, Unavailable if response.status in _RETRYABLE_STATUS else Refused
        )(message if code else f"{self._endpoint.host} is not a gateway of Entrepot: {message}")
        if response.status in _RETRYABLE_STATUS or code in ("RequestTimeout", "IncompleteBody"):
            raise _RetryableError(error, self._retry_after(response.headers.get("Retry-After", "")))
        raise error

    def _longest_pause(self, attempt: int) -> float:
        """Return the longest pause after the attempt of that number, in seconds."""
        return float(min(self._timing.retry_first_seconds * 2**attempt, self._timing.retry_most_seconds))

    def _retry_after(self, text: str) -> float:
        """Return the seconds in a `Retry-After` header."""
        return min(float(text), self._timing.retry_most_seconds) if text.isascii() and text.isdigit() else 0.0

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    def detach(self) -> None:
        """Drop the connections without closing them: they belong to the parent process, or their loop has ended."""
        self._connector.forgotten = True
        self._session.detach()


class _Outgoing:
    """The headers and the body of one attempt."""

    def __init__(
        self, headers: dict[str, str], body: Body | Buffer, signer: ChunkSigner | None = None, size: int = 0
    ) -> None:
        self.headers = headers
        self.failed: BaseException | None = None
        """An error of the body itself, which sending it again would not correct."""
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
