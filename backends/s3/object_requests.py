"""The four requests about values: PUT, HEAD and GET of an object, and GET of a range of it.

They go through `http_client`, which bounds every response, error responses included, and follows no redirect. It
repeats a request once where the connection ends before a response; `retry.Retrying` does all other retries.
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
from backends.s3.errors import failure_in_response, failure_without_response, to_backend_error
from backends.s3.http_client import ERROR_BYTES_MAX, BodyTooLong, HttpClient, HttpError, HttpResponse
from backends.s3.settings import S3Settings
from backends.s3.signing import EMPTY_SHA256, UNSIGNED, Signer

VALUE_BYTES_MAX = 16 << 20
"""Twice the size of the largest block. A longer object was not written by Entrepot, whatever its server reports."""

_MD5 = re.compile("[0-9a-f]{32}")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})")
_INLINE_BYTES_MAX = 64 << 10
"""The digest of so much takes a tenth of a millisecond; that of a larger value is computed in a thread."""
T = TypeVar("T")


class ObjectRequests:
    """Requests for the objects of one bucket.

    *path* is the object's key, prefix included; *key* is the value's, for errors.

    Every method raises `backends.errors`."""

    def __init__(
        self,
        settings: S3Settings,
        control: ControlClient,
        credentials: Credentials,
        tls: ssl.SSLContext | None,
        hashing: ThreadPoolExecutor,
    ) -> None:
        """For the bucket that *control* found. *tls* is for https. *hashing* computes the digests of large values."""
        address, virtual = settings.address(control.endpoint)
        self._location, self._name = control.location, settings.name
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
        """Whether each put carries the value's CRC64NVME, which the server verifies. Over HTTPS, where nobody can
        change the bytes on the way, the SHA-256 then need not be computed and signed."""

    async def put(self, path: str, key: str, value: Sequence[Buffer]) -> str:
        """Store *value* by one PUT; return the ETag as received."""
        headers: dict[str, str] = {}
        if self.sends_checksums:
            checksum = await self._digest(base.size_of(value), crc64nvme_of, value)
            headers["x-amz-checksum-crc64nvme"] = base64.b64encode(checksum).decode()
        if self.sends_checksums and self._is_https:
            payload = UNSIGNED
        else:
            payload = await self._digest(base.size_of(value), sha256_of, value)
        response = await self._request("PUT", path, key, headers, payload, value, bytes_max=ERROR_BYTES_MAX)
        etag = response.headers.get("etag")
        if not etag:
            message = f"{self._location}: its response to a put does not say what was stored (no ETag)"
            raise errors.Corrupted(message, backend=self._name, key=key)
        return etag

    async def head(self, path: str, key: str) -> Stat:
        """Return the object's size, and its MD5 where the ETag has the form of one."""
        response = await self._request("HEAD", path, key, {}, EMPTY_SHA256, bytes_max=0)
        if response.length is None:
            raise self._corrupted(key, "its response has no Content-Length")
        etag = response.headers.get("etag", "").strip('"').lower()
        return Stat(response.length, etag if _MD5.fullmatch(etag) else "")

    async def get(self, path: str, key: str) -> bytearray:
        """Read a whole object of at most `VALUE_BYTES_MAX` bytes."""
        try:
            response = await self._request("GET", path, key, {}, EMPTY_SHA256, bytes_max=VALUE_BYTES_MAX)
        except errors.Corrupted as error:
            if isinstance(error.__cause__, BodyTooLong):
                self.check_size(key, error.__cause__.announced or VALUE_BYTES_MAX + 1)
            raise
        return response.body

    async def get_range(self, path: str, key: str, start: int, length: int) -> bytearray:
        """Read *length* bytes (at least one) from *start* on; fewer where the object ends before. Raises `Corrupted`
        where the server returns another range."""
        self.check_size(key, length)
        range_header = {"range": f"bytes={start}-{start + length - 1}"}
        response = await self._request("GET", path, key, range_header, EMPTY_SHA256, bytes_max=length)
        content_range = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
        if response.status == 206 and content_range is not None:
            first, last, size = map(int, content_range.groups())
            if (first, last) == (start, min(start + length, size) - 1):
                return response.body
        raise self._corrupted(key, "it returned other bytes than were requested")

    def check_size(self, key: str, size: int) -> None:
        """Raise `Corrupted` for a size that no value of Entrepot has."""
        if size > VALUE_BYTES_MAX:
            raise self._corrupted(key, f"{size} bytes are too many for a value, which has at most {VALUE_BYTES_MAX}")

    async def close(self) -> None:
        """Close the connections at once, or when the last running request ends."""
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
            response = await self._client.request(method, target, signed, body, bytes_max=bytes_max)
        except (HttpError, OSError, ValueError) as error:
            raise to_backend_error(failure_without_response(error), self._location, key, error) from error
        if response.is_success:
            return response
        raise to_backend_error(
            failure_in_response(response.status, response.headers, bytes(response.body)), self._location, key, None
        )

    async def _sign(self, method: str, target: str, key: str, headers: dict[str, str], payload: str) -> dict[str, str]:
        try:
            return await self._signer.sign(method, target, headers, payload)
        except Exception as error:  # providers of credentials raise anything
            message = f"{self._location}: no fresh credentials: {error}"
            raise errors.Unavailable(message, backend=self._name, key=key) from error

    async def _digest(self, size: int, function: Callable[[Sequence[Buffer]], T], value: Sequence[Buffer]) -> T:
        if size <= _INLINE_BYTES_MAX:
            return function(value)
        return await asyncio.get_running_loop().run_in_executor(self._hashing, function, value)

    def _corrupted(self, key: str, message: str) -> errors.Corrupted:
        return errors.Corrupted(f"{self._location}: {message}", backend=self._name, key=key)


def md5_of(value: Sequence[Buffer]) -> str:
    """Return the MD5 in hex, as in ETags."""
    digest = hashlib.md5(usedforsecurity=False)
    for buffer in value:
        digest.update(buffer)
    return digest.hexdigest()


def sha256_of(value: Sequence[Buffer]) -> str:
    """Return the SHA-256 in hex, as it is signed."""
    digest = hashlib.sha256()
    for buffer in value:
        digest.update(buffer)
    return digest.hexdigest()


def crc64nvme_of(value: Sequence[Buffer]) -> bytes:
    """Return the CRC64NVME, big-endian, as the header carries it."""
    crc = 0
    for buffer in value:
        crc = checksums.crc64nvme(buffer, crc)
    return crc.to_bytes(8, "big")
