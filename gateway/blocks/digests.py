"""Digests of a body: always MD5 and CRC64NVME, and those that the client asked for.

MD5 and the SHAs release the interpreter's lock while they work. So large batches go to a few threads, and overlap with
receiving and sealing. The CRCs run at memory speed and stay on the event loop.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from awscrt import checksums

from backends.base import Buffer

THREADED_BYTES = 256 << 10
"""Batches of at least this size are hashed in threads: that is about 0.4 ms of MD5, against 0.05 ms for the hop."""
THREADS = 4

CRCS: dict[str, tuple[Callable[[Buffer, int], int], int]] = {
    "CRC32": (checksums.crc32, 4),
    "CRC32C": (checksums.crc32c, 4),
    "CRC64NVME": (checksums.crc64nvme, 8),
}
"""S3's CRCs: the function, and the length of its value in bytes."""
ALGORITHMS = (*CRCS, "SHA1", "SHA256")

_pool: ThreadPoolExecutor | None = None


def _forget_pool() -> None:
    global _pool  # noqa: PLW0603 (a forked child inherits the pool object, but not the parent's threads)
    _pool = None


os.register_at_fork(after_in_child=_forget_pool)


class _Hash(Protocol):
    def update(self, data: Buffer, /) -> None: ...

    def digest(self) -> bytes: ...


def _threads() -> ThreadPoolExecutor:
    global _pool  # noqa: PLW0603 (one pool for the process, made when it is first needed)
    if _pool is None:
        _pool = ThreadPoolExecutor(THREADS, thread_name_prefix="digests")
    return _pool


class Digests:
    """Computes the digests of one body as its bytes arrive. The caller must not change a buffer that it has passed."""

    __slots__ = ("_batch", "_batch_bytes", "_crcs", "_hashes", "_jobs", "size")

    def __init__(self, algorithm: str | None = None, *, sha256: bool = False) -> None:
        """*algorithm*: one of `ALGORITHMS` to compute besides MD5 and CRC64NVME. *sha256*: compute SHA-256 as well.

        Raises `ValueError` for an unknown algorithm."""
        if algorithm is not None and algorithm not in ALGORITHMS:
            raise ValueError(f"{algorithm!r} is none of {', '.join(ALGORITHMS)}")
        self.size = 0
        """Bytes that were passed so far."""
        self._hashes: dict[str, _Hash] = {"MD5": hashlib.md5(usedforsecurity=False)}
        if algorithm == "SHA1":
            self._hashes["SHA1"] = hashlib.sha1(usedforsecurity=False)
        if algorithm == "SHA256" or sha256:
            self._hashes["SHA256"] = hashlib.sha256()
        self._crcs = {"CRC64NVME": 0}
        if algorithm in CRCS:
            self._crcs[algorithm] = 0
        self._batch: list[Buffer] = []
        self._batch_bytes = 0
        self._jobs: Sequence[asyncio.Future[None]] = ()

    async def update(self, buffer: Buffer) -> None:
        """Add the next bytes. Waits only while the batch before this one is still being hashed."""
        self._append(buffer)
        if self._batch_bytes >= THREADED_BYTES:
            await self._wait_for_jobs()
            loop, batch = asyncio.get_running_loop(), self._take_batch()
            self._jobs = [loop.run_in_executor(_threads(), _feed, each, batch) for each in self._hashes.values()]

    def update_now(self, buffer: Buffer) -> bool:
        """Add the next bytes if that needs no thread. Returns whether they were added; otherwise call `update`."""
        if self._jobs or self._batch_bytes + len(buffer) >= THREADED_BYTES:
            return False
        self._append(buffer)
        return True

    async def finish(self) -> None:
        """Hash what is left. The values below may be read after this only."""
        await self._wait_for_jobs()
        batch = self._take_batch()
        for each in self._hashes.values():
            _feed(each, batch)

    @property
    def md5(self) -> bytes:
        """The MD5 of the body: 16 bytes."""
        return self._hashes["MD5"].digest()

    @property
    def crc64nvme(self) -> int:
        """The CRC64NVME of the body."""
        return self._crcs["CRC64NVME"]

    @property
    def sha256(self) -> str:
        """The SHA-256 of the body in hex, as SigV4 writes it. Raises `KeyError` if it was not requested."""
        return self._hashes["SHA256"].digest().hex()

    def value(self, algorithm: str) -> str:
        """Return a digest in base64, as S3 writes it. Raises `KeyError` if it was not requested."""
        if algorithm in self._crcs:
            raw = self._crcs[algorithm].to_bytes(CRCS[algorithm][1], "big")
        else:
            raw = self._hashes[algorithm].digest()
        return base64.b64encode(raw).decode()

    def _append(self, buffer: Buffer) -> None:
        self.size += len(buffer)
        for name, crc in self._crcs.items():
            self._crcs[name] = CRCS[name][0](buffer, crc)
        self._batch.append(buffer)
        self._batch_bytes += len(buffer)

    def _take_batch(self) -> list[Buffer]:
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        return batch

    async def _wait_for_jobs(self) -> None:
        jobs, self._jobs = self._jobs, ()
        for job in jobs:
            await job


def _feed(hasher: _Hash, batch: Sequence[Buffer]) -> None:
    for buffer in batch:
        hasher.update(buffer)
