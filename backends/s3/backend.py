"""The S3 driver: values as objects below a prefix of a bucket, on AWS, MinIO, Ceph and compatible servers.

The bytes of values go through aiohttp (`object_requests`, `http_client`). Finding the bucket, listing, deleting and the
marker go through aiobotocore (`control`). One value is one object, stored by one PUT, which S3 makes visible whole or
not at all. Nothing outside the prefix is ever listed, read, written or deleted. Neither client retries a request that
was answered; `retry.Retrying` does.

Usable only on the event loop, and in the process, that opened it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import ssl
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Literal

from backends import base, errors
from backends.base import Buffer, Listed, Marker, Stat
from backends.s3.control import ControlClient, is_md5, open_control
from backends.s3.credentials import Credentials
from backends.s3.listing import list_values
from backends.s3.marker import read_marker, write_claim
from backends.s3.object_requests import ObjectRequests, md5_of
from backends.s3.sessions import load
from backends.s3.settings import Confirm, S3Settings, Style, normalize_prefix
from backends.timing import DEFAULTS, DriverTiming

_log = logging.getLogger(__name__)

_INLINE_BYTES_MAX = (
    64 << 10
)  # the MD5 of so much takes a tenth of a millisecond; that of a larger value is computed in a thread
_HASHING_THREADS = 2

PutConfirmation = Literal["checksum", "etag", "read"]


class S3(base.Backend):
    """A bucket, or the part of it below a prefix.

    **How a put is confirmed.** The driver compares the value with its crc32c before it sends it, and signs the request
    over the value's SHA-256. (Over HTTPS with `checksum`, where nobody can change the bytes on the way, the checksum
    suffices.) The rest depends on what the server can do, which the first put probes, or on `confirm`:

    - `checksum`: the request carries the value's CRC64NVME, and the server refuses a body that differs (AWS, MinIO,
      Entrepot). Its 200 confirms the comparison. Where its ETags are MD5s, the ETag also confirms that the server
      itself answered, and about this value. After another ETag (with SSE-KMS, say) the value is read back, once.
    - `etag`: the server's ETag must be the MD5 of the bytes sent (Ceph, moto; not with SSE-KMS). Else `Corrupted`.
    - `read`: the value is read back and compared with its crc32c. Else `Corrupted`. Twice the traffic, for a server
      that can do neither.

    A value that is not confirmed is deleted again.
    """

    def __init__(
        self, settings: S3Settings, control: ControlClient, credentials: Credentials, tls: ssl.SSLContext | None
    ) -> None:
        """Called by `open` alone."""
        self._settings, self._control = settings, control
        self._prefix, self._location = settings.prefix, control.location
        self._confirmation: PutConfirmation | None = None
        self._etags_are_md5 = False
        self._slots = asyncio.Semaphore(settings.connections)
        self._probing = asyncio.Lock()
        self._claiming = asyncio.Lock()
        self._hashing = ThreadPoolExecutor(_HASHING_THREADS, thread_name_prefix="entrepot-s3-hash")
        self._objects = ObjectRequests(settings, control, credentials, tls, self._hashing)
        self._loop, self._pid, self._closed = asyncio.get_running_loop(), os.getpid(), False

    @classmethod
    async def open(
        cls,
        *,
        bucket: str,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        profile: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        session_token: str | None = None,
        style: Style = "auto",
        create_bucket: bool = False,
        ca_file: str | None = None,
        name: str = "s3",
        connections: int = 64,
        timeout_s: float = 60.0,
        confirm: Confirm = "auto",
        timing: DriverTiming = DEFAULTS,
    ) -> S3:
        """Find the bucket, and check that listing below *prefix* is allowed.

        - *endpoint*: `http(s)://host[:port]`; None is AWS, or AWS_ENDPOINT_URL where that is set.
        - *region*: None takes that of the profile or the environment, and corrects it to the bucket's region. A region
          that is given must be the bucket's.
        - *access_key*, *secret_key*: None takes them from *profile*, the environment, a web identity, a container's or
          an instance's role, and renews them before they expire.
        - *style*: the bucket's name in the path or in the host; `auto` is the host on AWS, else the path.
        - *create_bucket*: create the bucket where there is none.
        - *ca_file*: a PEM file with the authority that signed the endpoint's certificate.
        - *connections*: how many requests for values run at once, and how many connections are kept. Further requests
          wait in order.
        - *timeout_s*: for one request with its body, from when it began.
        - *confirm*: see the class.

        Raises `Misconfigured`, `Denied` or `Unavailable`, with advice in the message.
        """
        settings = S3Settings(
            name, bucket, normalize_prefix(prefix), endpoint, region, profile, access_key, secret_key, session_token,
            style, create_bucket, ca_file, connections, timeout_s, confirm, timing,
        )  # fmt: skip
        settings.check()
        ca_pem = await asyncio.to_thread(settings.ca_pem)
        control, credentials = await open_control(settings)
        try:
            if await control.keeps_versions():
                _log.warning("%s keeps versions: deleted values go on taking space", control.location)
            is_https = control.endpoint.startswith("https://")
            tls = await asyncio.to_thread(control.tls_context, ca_pem) if is_https else None
            return cls(settings, control, credentials, tls)
        except BaseException:
            await control.close()
            raise

    @staticmethod
    async def load() -> None:
        """Import the modules that `open` needs, so that `open` later waits for the server alone. Sends no request."""
        await asyncio.to_thread(load)

    @property
    def name(self) -> str:
        return self._settings.name

    @property
    def region(self) -> str:
        """The region that requests are signed for."""
        return self._control.region

    async def capabilities(self) -> dict[str, str]:
        """Probe in what this server differs from others. Return its answers for people, by capability."""
        confirmed = {
            "checksum": "the server compares each with its CRC64NVME",
            "etag": "its ETag is the MD5 of what it stored",
            "read": "each is read back, which doubles the traffic: the server does neither",
        }[self._confirmation or await self._ensure_confirmation()]
        supported = await self._control.probe_write_conditions()
        absent = [each for each in ("If-None-Match", "If-Match") if each not in supported]
        return {
            "how puts are confirmed": confirmed,
            "conditional writes": f"{' and '.join(absent)} absent: of two who claim this place at once, the last has it"
            if absent
            else "yes",
            "versions": "kept: what is deleted goes on taking room" if await self._control.keeps_versions() else "no",
            "region": self.region,
        }

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        path = self._path(key)
        if base.crc32c_of(value) != crc32c:
            raise errors.Corrupted("the value differs from its crc32c", backend=self.name, key=key)
        confirmation = self._confirmation or await self._ensure_confirmation()
        digest = self._md5(value) if self._etags_are_md5 else None
        try:
            async with self._slots:
                etag = await self._objects.put(path, key, value)
        finally:
            md5 = await digest if digest is not None else ""
        etag_differs = digest is not None and not is_md5(etag, md5)
        if etag_differs and confirmation == "etag":
            await self._reject_put(key, f"its ETag {etag[:100]} is not the MD5 {md5} of what was sent")
        elif etag_differs or confirmation == "read":
            if base.crc32c_of([await self._read_back(key)]) != crc32c:
                await self._reject_put(key, "what is read back differs from what was sent")
            self._etags_are_md5 &= not etag_differs  # the value was stored, so the ETags are no MD5s any more

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        path = self._path(key)
        base.check_range(start, length)
        if not length:
            return await self._get_rest(key, path, start, length)
        async with self._slots:
            value = await self._objects.get_range(path, key, start, length)
        if len(value) != length:
            raise self._wrong_length(key, start, length, len(value))
        return value

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        """Return None: a remote value always takes a request."""
        return None

    async def stat(self, key: str) -> Stat:
        path = self._path(key)
        try:
            return await self._head(path, key)
        except (errors.Unavailable, errors.Full):
            raise
        except errors.BackendError:
            # An error response to HEAD has no body, so it does not tell whether the value is missing or the bucket.
            await self._probe_first_byte(key, path)
        return await self._head(path, key)

    async def delete(self, key: str) -> None:
        path = self._path(key)
        async with self._slots:
            await self._control.delete(path, key)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        self._check_usable()
        fetch = functools.partial(self._control.list_page, self._prefix + prefix)
        async for value in list_values(fetch, self._prefix, prefix, after, self.name):
            yield value
            self._check_usable()

    async def marker(self) -> Marker | None:
        self._check_usable()
        return await read_marker(self._control)

    async def claim(self, marker: Marker) -> None:
        """Atomic where the server supports conditional writes, else by a convention among claimants (see `marker`)."""
        self._check_usable()
        async with self._claiming:
            await write_claim(self._control, marker, self._settings.timing.settle_seconds)

    async def close(self) -> None:
        """Refuse further calls. The connections close once the calls that use them have ended."""
        if self._closed:
            return
        async with self._claiming, self._probing:
            self._closed = True
            await self._objects.close()
            self._hashing.shutdown(wait=False)
            await self._control.close()

    def _path(self, key: str) -> str:
        """Return the object's key in the bucket. Raises where the backend is not usable or *key* is malformed."""
        self._check_usable()
        return self._prefix + base.check_key(key)

    def _check_usable(self) -> None:
        if self._closed:
            raise RuntimeError(f"{self._location} is closed")
        if self._pid != os.getpid() or self._loop is not asyncio.get_running_loop():
            raise RuntimeError(f"{self._location} was opened on another event loop, or before a fork: open it anew")

    async def _head(self, path: str, key: str) -> Stat:
        async with self._slots:
            return await self._objects.head(path, key)

    async def _get_rest(self, key: str, path: str, start: int, length: int | None) -> Buffer:
        """Read all bytes from *start* on; or none, for a *length* of 0, where the value must have *start* bytes."""
        if length == 0 or start:
            size = (await self.stat(key)).size
            if size < start:
                raise self._wrong_length(key, start, length or 0, size)
            return b"" if length == 0 or size == start else await self.get(key, start, size - start)
        async with self._slots:
            return await self._objects.get(path, key)

    async def _probe_first_byte(self, key: str, path: str) -> None:
        """Read one byte, to raise the error that tells why a value cannot be read. An empty value is no error."""
        with suppress(errors.Corrupted):
            async with self._slots:
                await self._objects.get_range(path, key, 0, 1)

    async def _ensure_confirmation(self) -> PutConfirmation:
        """Return how puts are confirmed on this server; probe it once."""
        async with self._probing:
            if self._confirmation is None:
                configured = self._settings.confirm
                confirmation: PutConfirmation = "etag" if configured == "auto" else configured
                self._etags_are_md5 = confirmation == "etag"
                if configured == "auto":
                    confirmation, self._etags_are_md5 = await self._control.probe_put_confirmation()
                self._objects.sends_checksums = confirmation == "checksum"
                self._confirmation = confirmation
            return self._confirmation

    def _md5(self, value: Sequence[Buffer]) -> asyncio.Future[str]:
        """Compute the MD5 of a value while it is being sent."""
        if base.size_of(value) <= _INLINE_BYTES_MAX:
            done: asyncio.Future[str] = self._loop.create_future()
            done.set_result(md5_of(value))
            return done
        return self._loop.run_in_executor(self._hashing, md5_of, value)

    async def _read_back(self, key: str) -> Buffer:
        try:
            return await self.get(key)
        except errors.NotFound:
            return b"\0missing"

    async def _reject_put(self, key: str, why: str) -> None:
        """Delete a value whose put the server confirmed wrongly, and raise `Corrupted`."""
        try:
            await self.delete(key)
        except errors.BackendError as error:
            why = f"{why}; and it cannot be deleted: {error}"
        raise errors.Corrupted(f"{self._location}: the put was answered, but {why}", backend=self.name, key=key)

    def _wrong_length(self, key: str, start: int, length: int, received: int) -> errors.Corrupted:
        count = "more" if received > length else str(received)
        message = f"{self._location}: {length} bytes from {start} on were requested, and {count} came"
        return errors.Corrupted(message, backend=self.name, key=key)
