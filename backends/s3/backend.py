"""The S3 driver: values as objects below a prefix of a bucket, on AWS, MinIO, Ceph and everything alike.

Bytes go through aiohttp (`s3_store`, `s3_http`); finding the bucket, its keys, and the marker go through aiobotocore
(`s3_control`). One value is one object, stored by one PUT, which S3 makes visible whole or not at all. Nothing outside
the prefix is ever listed, read, written or deleted. Neither client retries what was answered; `retrying` does.

Of use on the event loop that it was opened on, in the process that opened it.
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
from backends.s3.control import ControlClient, is_md5, load, open_control
from backends.s3.credentials import Credentials
from backends.s3.listing import listed
from backends.s3.marker import read_marker, write_claim
from backends.s3.object_requests import ObjectRequests, md5_of
from backends.s3.settings import Confirm, S3Settings, Style, normal_prefix
from backends.timing import DEFAULTS, DriverTiming

_log = logging.getLogger(__name__)

_INLINE_BYTES_MAX = 64 << 10  # an MD5 of that takes a tenth of a millisecond; longer ones are made in a thread
_HASHING_THREADS = 2

PutConfirmation = Literal["checksum", "etag", "read"]


class S3(base.Backend):
    """One bucket, or what lies below a prefix in it.

    **How a put is confirmed.** The value is compared with its crc32c here, before it is sent, and the request is signed
    over its SHA-256 (over HTTPS with `checksum`, whose line nobody can change, the checksum alone). Then, by what the
    server can do, which the first put finds out (or as `confirm` says):

    - `checksum`: the request carries the value's CRC64NVME, and the server refuses a body that differs (AWS, MinIO,
      Entrepot). Its 200 says that it compared; and where its ETags are MD5s, the ETag says that it was the server who
      answered, and about this value. Another ETag (with SSE-KMS, say) has the value read back, once.
    - `etag`: the server's ETag must be the MD5 of what was sent (Ceph, moto; not with SSE-KMS). Else `Corrupted`.
    - `read`: the value is read back and compared with its crc32c. Else `Corrupted`. Twice the traffic, for a server
      that does neither.

    What was not confirmed is deleted again.
    """

    def __init__(
        self, settings: S3Settings, control: ControlClient, credentials: Credentials, tls: ssl.SSLContext | None
    ) -> None:
        """Only `open` makes one."""
        self._settings, self._control = settings, control
        self._prefix, self._where = settings.prefix, control.where
        self._habit: PutConfirmation | None = None
        self._etags_tell = False  # they are MD5s
        self._slots = asyncio.Semaphore(settings.connections)
        self._learning = asyncio.Lock()
        self._claiming = asyncio.Lock()
        self._hashing = ThreadPoolExecutor(_HASHING_THREADS, thread_name_prefix="entrepot-s3-hash")
        self._store = ObjectRequests(settings, control, credentials, tls, self._hashing)
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
        """Find the bucket and see that we may list below *prefix* in it.

        *endpoint*: `http(s)://host[:port]`; None is AWS (or what AWS_ENDPOINT_URL says). *region*: None takes the
        profile's or the environment's and corrects it to where the bucket lies; one that is given must be right.
        *access_key* and *secret_key*: None has them from *profile*, the environment, a web identity, a container's or
        an instance's role, and renews them before they expire. *style*: the bucket in the path or in the host's name;
        `auto` is the latter on AWS alone. *create_bucket*: make it where there is none. *ca_file*: PEM of the
        authority that signed the endpoint's certificate. *connections*: how many requests for bytes run at once, and
        how many connections are kept; others wait in order. *timeout_s*: for one request, bytes included, once it
        began. *confirm*: as above.

        Raises `Misconfigured`, `Denied` or `Unavailable`, each saying what to do.
        """
        settings = S3Settings(
            name, bucket, normal_prefix(prefix), endpoint, region, profile, access_key, secret_key, session_token,
            style, create_bucket, ca_file, connections, timeout_s, confirm, timing,
        )  # fmt: skip
        settings.check()
        ca_pem = await asyncio.to_thread(settings.ca_pem)
        control, credentials = await open_control(settings)
        try:
            if await control.keeps_versions():
                _log.warning("%s keeps versions: what is deleted there goes on taking room", control.where)
            is_https = control.endpoint.startswith("https://")
            tls = await asyncio.to_thread(control.tls_context, ca_pem) if is_https else None
            return cls(settings, control, credentials, tls)
        except BaseException:
            await control.close()
            raise

    @staticmethod
    async def load() -> None:
        """Load what `open` takes, so that its time is the server's from then on. Asks nobody."""
        await asyncio.to_thread(load)

    @property
    def name(self) -> str:
        return self._settings.name

    @property
    def region(self) -> str:
        """Where the bucket lies, as far as the server cares."""
        return self._control.region

    async def capabilities(self) -> dict[str, str]:
        """What this server does in which others differ, by what it is called; found out by trying."""
        confirmed = {
            "checksum": "the server compares each with its CRC64NVME",
            "etag": "its ETag is the MD5 of what it stored",
            "read": "each is read back, which doubles the traffic: the server does neither",
        }[self._habit or await self._learn()]
        heeded = await self._control.probe_write_conditions()
        absent = [each for each in ("If-None-Match", "If-Match") if each not in heeded]
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
        habit = self._habit or await self._learn()
        digest = self._md5(value) if self._etags_tell else None
        try:
            async with self._slots:
                etag = await self._store.put(path, key, value)
        finally:
            sent = await digest if digest is not None else ""
        other = digest is not None and not is_md5(etag, sent)
        if other and habit == "etag":
            await self._unconfirmed(key, f"its ETag {etag[:100]} is not the MD5 {sent} of what was sent")
        elif other or habit == "read":
            if base.crc32c_of([await self._read_back(key)]) != crc32c:
                await self._unconfirmed(key, "what is read back differs from what was sent")
            self._etags_tell &= not other  # it was stored, so its ETags say something else by now

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        path = self._path(key)
        base.check_range(start, length)
        if not length:
            return await self._get_rest(key, path, start, length)
        async with self._slots:
            value = await self._store.get_range(path, key, start, length)
        if len(value) != length:
            raise self._other_length(key, start, length, len(value))
        return value

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        """Nothing of a cloud is at hand."""
        return None

    async def stat(self, key: str) -> Stat:
        path = self._path(key)
        try:
            return await self._head(path, key)
        except (errors.Unavailable, errors.Full):
            raise
        except errors.BackendError:
            # A refusal of HEAD has no body, so it cannot say whether it is the value that is missing or the bucket.
            await self._first_byte(key, path)
        return await self._head(path, key)

    async def delete(self, key: str) -> None:
        path = self._path(key)
        async with self._slots:
            await self._control.delete(path, key)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        self._check_usable()
        fetch = functools.partial(self._control.list_page, self._prefix + prefix)
        async for line in listed(fetch, self._prefix, prefix, after, self.name):
            yield line
            self._check_usable()

    async def marker(self) -> Marker | None:
        self._check_usable()
        return await read_marker(self._control)

    async def claim(self, marker: Marker) -> None:
        """As `s3_marker` says: atomic where the server heeds conditions, else by reading again who came last."""
        self._check_usable()
        async with self._claiming:
            await write_claim(self._control, marker, self._settings.timing.settle_seconds)

    async def close(self) -> None:
        """Connections close once the calls that use them have ended."""
        if self._closed:
            return
        async with self._claiming, self._learning:
            self._closed = True
            await self._store.close()
            self._hashing.shutdown(wait=False)
            await self._control.close()

    def _path(self, key: str) -> str:
        """Where *key* lies in the bucket; refuses what every call must refuse."""
        self._check_usable()
        return self._prefix + base.check_key(key)

    def _check_usable(self) -> None:
        if self._closed:
            raise RuntimeError(f"{self._where} is closed")
        if self._pid != os.getpid() or self._loop is not asyncio.get_running_loop():
            raise RuntimeError(f"{self._where} was opened on another event loop, or before a fork: open it anew")

    async def _head(self, path: str, key: str) -> Stat:
        async with self._slots:
            return await self._store.head(path, key)

    async def _get_rest(self, key: str, path: str, start: int, length: int | None) -> Buffer:
        """All from *start* on; or nothing, for a *length* of 0, where the value must reach as far as *start*."""
        if length == 0 or start:
            size = (await self.stat(key)).size
            if size < start:
                raise self._other_length(key, start, length or 0, size)
            return b"" if length == 0 or size == start else await self.get(key, start, size - start)
        async with self._slots:
            return await self._store.get(path, key)

    async def _first_byte(self, key: str, path: str) -> None:
        """Ask for it, to hear why a value is not to be had; that it is there, or empty, is fine."""
        with suppress(errors.Corrupted):
            async with self._slots:
                await self._store.get_range(path, key, 0, 1)

    async def _learn(self) -> PutConfirmation:
        """How puts are confirmed here, from now on."""
        async with self._learning:
            if self._habit is None:
                wanted = self._settings.confirm
                habit: PutConfirmation = "etag" if wanted == "auto" else wanted
                self._etags_tell = habit == "etag"
                if wanted == "auto":
                    habit, self._etags_tell = await self._control.probe_put_confirmation()
                self._store.sends_checksums = habit == "checksum"
                self._habit = habit
            return self._habit

    def _md5(self, value: Sequence[Buffer]) -> asyncio.Future[str]:
        """The MD5 of what is being sent meanwhile."""
        if base.size_of(value) <= _INLINE_BYTES_MAX:
            done: asyncio.Future[str] = self._loop.create_future()
            done.set_result(md5_of(value))
            return done
        return self._loop.run_in_executor(self._hashing, md5_of, value)

    async def _read_back(self, key: str) -> Buffer:
        try:
            return await self.get(key)
        except errors.NotFound:
            return b"\0nothing stands there"

    async def _unconfirmed(self, key: str, why: str) -> None:
        """Leave nothing of a put whose answer lies."""
        try:
            await self.delete(key)
        except errors.BackendError as error:
            why = f"{why}; and it cannot be deleted: {error}"
        raise errors.Corrupted(f"{self._where}: the put was answered, but {why}", backend=self.name, key=key)

    def _other_length(self, key: str, start: int, length: int, had: int) -> errors.Corrupted:
        many = "more" if had > length else str(had)
        message = f"{self._where}: {length} bytes from {start} on were asked for, and {many} are there"
        return errors.Corrupted(message, backend=self.name, key=key)
