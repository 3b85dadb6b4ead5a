"""The HTTP client under aiobotocore, for a server that may be broken or hostile.

aiobotocore's own client follows redirects to any host, with the session token in a header, and reads responses of any
length. This one follows no redirect, since S3 reports a bucket's region in a response of its own. It reads at most
`RESPONSE_BYTES_MAX` of a response by itself; a caller that expects a longer one reads the stream with `read_bounded`.
"""

from __future__ import annotations

from typing import Any

import aiohttp
from aiobotocore.httpsession import AIOHTTPSession

from backends.s3.connections import ResponseTooLong, bound_heads

RESPONSE_BYTES_MAX = 64 << 10
"""Bound of the responses that are parsed in one step on the event loop: errors, and requests about a bucket."""


async def read_bounded(stream: aiohttp.StreamReader, bytes_max: int) -> bytes:
    """Read *stream* to its end. Raises `ResponseTooLong`, and reads no further, after more than *bytes_max* bytes."""
    content = bytearray()
    async for part in stream.iter_any():
        content += part
        if len(content) > bytes_max:
            raise ResponseTooLong(f"the response has more than {bytes_max} bytes")
    return bytes(content)


class _Response(aiohttp.ClientResponse):
    """A response whose body is bounded."""

    async def read(self) -> bytes:
        if self._body is None:
            try:
                self._body = await read_bounded(self.content, RESPONSE_BYTES_MAX)
            except BaseException:
                self.close()
                raise
        return self._body


class _Session:
    """The part of `aiohttp.ClientSession` that aiobotocore calls, without redirects."""

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
