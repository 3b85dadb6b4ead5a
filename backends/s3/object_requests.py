"""The four requests that carry the bytes of values: PUT, HEAD and GET of an object, and GET of a range of it.

They go through `s3_http`, which bounds every answer, refusals included, and follows no redirect. It repeats a request
once where the connection ends before an answer; all other retries are those of `retrying`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import quote

from awscrt import checksums

from backends import base, errors
from backends.base import Buffer, Stat
from backends.s3.control import ControlClient
from backends.s3.credentials import Credentials
from backends.s3.errors import failure_in_response, failure_of_http_error, translated
from backends.s3.http_client import REFUSAL_BYTES_MAX, BodyTooLong, HttpClient, HttpError, HttpResponse
from backends.s3.settings import S3Settings
from backends.s3.signing import EMPTY_SHA256, UNSIGNED, Signer

VALUE_BYTES_MAX = 16 << 20
"""Twice what the largest block takes. What is longer is none of ours, whatever its server says."""

_MD5 = re.compile("[0-9a-f]{32}")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})")
_INLINE_BYTES_MAX = 64 << 10
"""A digest of that takes a tenth of a millisecond; longer ones are made in a thread."""
T = TypeVar("T")


class ObjectRequests:
    """The objects of one bucket. Paths are keys of the bucket, prefix included; *key* is the value's, for errors.

    Every method raises `backends.errors`."""

    def __init__(
        self,
        settings: S3Settings,
        control: ControlClient,
        credentials: Credentials,
        tls: ssl.SSLContext | None,
        hashing: ThreadPoolExecutor,
    ) -> None:
        """For the bucket that *control* found. *tls* is for https. *hashing* makes digests of large values."""
        address, virtual = settings.address(control.endpoint)
        self._where, self._name = control.where, settings.name
        self._folder = "/" if virtual else f"/{quote(settings.bucket, safe='')}/"
        self._is_https = address.startswith("https://")
        self._credentials, self._hashing = credentials, hashing
        try:
            self._client = HttpClient(
                address,
                tls if self._is_https else None,
                connections_max=settings.connections,
                connect_timeout_s=settings.timing.connect_seconds,
                timeout_s=settings.timeout_s,
                idle_timeout_s=settings.timing.idle_seconds,
            )
        except ValueError as error:
            raise errors.Misconfigured(str(error), backend=settings.name) from error
        self._signer = Signer(credentials, control.region, self._client.host)
        self.sends_checksums = False
        """Whether each put carries the value's CRC64NVME, which the server compares. Over HTTPS, whose line nobody can
        change, that spares the SHA-256 which else is signed."""

    async def put(self, path: str, key: str, value: Sequence[Buffer]) -> str:
        """Store *value* by one PUT. Returns the ETag, as it came."""
        headers: dict[str, str] = {}
        if self.sends_checksums:
            checksum = await self._digest(base.size_of(value), crc64nvme_of, value)
            headers["x-amz-checksum-crc64nvme"] = base64.b64encode(checksum).decode()
        if self.sends_checksums and self._is_https:
            payload = UNSIGNED
        else:
            payload = await self._digest(base.size_of(value), sha256_of, value)
        answer = await self._request("PUT", path, key, headers, payload, value, bytes_max=REFUSAL_BYTES_MAX)
        etag = answer.headers.get("etag")
        if not etag:
            message = f"{self._where}: its answer to a put does not say what it stored (no ETag)"
            raise errors.Corrupted(message, backend=self._name, key=key)
        return etag

    async def head(self, path: str, key: str) -> Stat:
        """What the server knows of an object. An ETag of another form is no MD5."""
        answer = await self._request("HEAD", path, key, {}, EMPTY_SHA256, bytes_max=0)
        if answer.length is None:
            raise self._damaged(key, "its answer does not say how long the value is")
        etag = answer.headers.get("etag", "").strip('"').lower()
        return Stat(answer.length, etag if _MD5.fullmatch(etag) else "")

    async def get(self, path: str, key: str) -> bytearray:
        """A whole object, which has at most `VALUE_BYTES_MAX` bytes."""
        try:
            answer = await self._request("GET", path, key, {}, EMPTY_SHA256, bytes_max=VALUE_BYTES_MAX)
        except errors.Corrupted as error:
            if isinstance(error.__cause__, BodyTooLong):
                self.check_size(key, error.__cause__.announced or VALUE_BYTES_MAX + 1)
            raise
        return answer.body

    async def get_range(self, path: str, key: str, start: int, length: int) -> bytearray:
        """The *length* bytes from *start* on, more than none; or fewer where the object ends before. Raises `Corrupted`
        where the server answers with others."""
        self.check_size(key, length)
        wanted = {"range": f"bytes={start}-{start + length - 1}"}
        answer = await self._request("GET", path, key, wanted, EMPTY_SHA256, bytes_max=length)
        came = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
        if answer.status == 206 and came is not None:
            first, last, size = map(int, came.groups())
            if (first, last) == (start, min(start + length, size) - 1):
                return answer.body
        raise self._damaged(key, "it answers with other bytes than were asked for")

    def check_size(self, key: str, size: int) -> None:
        """Raise `Corrupted` for a value that is larger than any of ours."""
        if size > VALUE_BYTES_MAX:
            raise self._damaged(key, f"{size} bytes are no value's, which have at most {VALUE_BYTES_MAX}")

    async def close(self) -> None:
        """Close the connections, or have the last request that runs close them."""
        await self._client.close()

    async def _request(
        self,
        method: str,
        path: str,
        key: str,
        headers: dict[str, str],
        payload: str,
        body: Sequence[Buffer] = (),
        *,
        bytes_max: int,
    ) -> HttpResponse:
        target = self._folder + quote(path, safe="/-_.~")
        signed = await self._sign(method, target, key, headers, payload)
        try:
            answer = await self._client.request(method, target, signed, body, bytes_max=bytes_max)
        except (HttpError, OSError, ValueError) as error:
            raise translated(failure_of_http_error(error), self._where, key, error) from error
        if answer.is_success:
            return answer
        raise translated(failure_in_response(answer.status, answer.headers, bytes(answer.body)), self._where, key, None)

    async def _sign(self, method: str, target: str, key: str, headers: dict[str, str], payload: str) -> dict[str, str]:
        try:
            return await self._signer.sign(method, target, headers, payload)
        except Exception as error:  # the chain of providers raises anything
            message = f"{self._where}: no fresh credentials: {error}"
            raise errors.Unavailable(message, backend=self._name, key=key) from error

    async def _digest(self, size: int, function: Callable[[Sequence[Buffer]], T], value: Sequence[Buffer]) -> T:
        if size <= _INLINE_BYTES_MAX:
            return function(value)
        return await asyncio.get_running_loop().run_in_executor(self._hashing, function, value)

    def _damaged(self, key: str, message: str) -> errors.Corrupted:
        return errors.Corrupted(f"{self._where}: {message}", backend=self._name, key=key)


def md5_of(value: Sequence[Buffer]) -> str:
    """In hex, as ETags have it."""
    digest = hashlib.md5(usedforsecurity=False)
    for buffer in value:
        digest.update(buffer)
    return digest.hexdigest()


def sha256_of(value: Sequence[Buffer]) -> str:
    """In hex, as it is signed."""
    digest = hashlib.sha256()
    for buffer in value:
        digest.update(buffer)
    return digest.hexdigest()


def crc64nvme_of(value: Sequence[Buffer]) -> bytes:
    """As it is told to the server."""
    crc = 0
    for buffer in value:
        crc = checksums.crc64nvme(buffer, crc)
    return crc.to_bytes(8, "big")
