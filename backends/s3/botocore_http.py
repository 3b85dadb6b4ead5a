"""The HTTP client under aiobotocore, for a server that may be broken or hostile.

aiobotocore's own follows redirects to any host, with the session token in a header, and reads answers of any length.
This one follows none, since S3 says in an answer of its own where a bucket lies, and takes in `ANSWER_BYTES_MAX` of an
answer that it reads by itself. Whoever wants a longer one asks for the stream and reads it with `first_bytes`.
"""

from __future__ import annotations

from typing import Any

import aiohttp
from aiobotocore.httpsession import AIOHTTPSession

from backends.s3.connections import bound_heads

ANSWER_BYTES_MAX = 64 << 10
"""Of what is read and parsed at once on the event loop: refusals, and what is asked about a bucket."""


class ResponseTooLong(aiohttp.ClientPayloadError):
    """More bytes came than any answer to that request has."""


async def first_bytes(stream: aiohttp.StreamReader, bytes_max: int) -> bytes:
    """What comes of *stream*. Raises `ResponseTooLong` once that is more than *bytes_max*; what follows is not read."""
    found = bytearray()
    async for part in stream.iter_any():
        found += part
        if len(found) > bytes_max:
            raise ResponseTooLong(f"the answer has more than {bytes_max} bytes")
    return bytes(found)


class _Response(aiohttp.ClientResponse):
    """One whose body is short."""

    async def read(self) -> bytes:
        if self._body is None:
            try:
                self._body = await first_bytes(self.content, ANSWER_BYTES_MAX)
            except BaseException:
                self.close()
                raise
        return self._body


class _Session:
    """What aiobotocore calls of an `aiohttp.ClientSession`, without redirects."""

    def __init__(self, inner: aiohttp.ClientSession) -> None:
        self._inner = inner

    async def request(self, method: str, **options: Any) -> aiohttp.ClientResponse:
        return await self._inner.request(method, **options, allow_redirects=False)


class BoundedSession(AIOHTTPSession):  # type: ignore[misc] # aiobotocore has no types
    """For `AioConfig(http_session_cls=…)`."""

    async def _get_session(self, proxy_url: str | None) -> _Session:
        async with self._sessions_lock:
            if proxy_url not in self._sessions:
                connector = await self._create_connector(proxy_url)
                bound_heads(connector)
                session = aiohttp.ClientSession(
                    connector=connector,
                    timeout=self._timeout,
                    skip_auto_headers={"CONTENT-TYPE"},
                    auto_decompress=False,
                    response_class=_Response,
                )
                self._sessions[proxy_url] = _Session(await self._exit_stack.enter_async_context(session))
            return self._sessions[proxy_url]  # type: ignore[no-any-return]
