"""What a body's bytes add up to: MD5 and CRC64NVME always, and what else was asked for.

MD5 and the SHAs let go of the interpreter while they work: what is large goes to a few threads and overlaps with
receiving and sealing. The CRCs run at memory speed and stay on the loop.
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
"""From so many bytes on a batch is hashed in a thread: about 0.4 ms of MD5, against a hop of 0.05."""
THREADS = 4

CRCS: dict[str, tuple[Callable[[Buffer, int], int], int]] = {
    "CRC32": (checksums.crc32, 4),
    "CRC32C": (checksums.crc32c, 4),
    "CRC64NVME": (checksums.crc64nvme, 8),
}
"""S3's CRCs: the function, and how many bytes its value has."""
ALGORITHMS = (*CRCS, "SHA1", "SHA256")

_pool: ThreadPoolExecutor | None = None


def _in_child() -> None:
    global _pool  # noqa: PLW0603 (the parent's threads are not here, though its pool looks as if they were)
    _pool = None


os.register_at_fork(after_in_child=_in_child)


class _Hash(Protocol):
    def update(self, data: Buffer, /) -> None: ...

    def digest(self) -> bytes: ...


def _threads() -> ThreadPoolExecutor:
    global _pool  # noqa: PLW0603 (one pool a process, made when first needed)
    if _pool is None:
        _pool = ThreadPoolExecutor(THREADS, thread_name_prefix="digests")
    return _pool


class Digests:
    """The digests of one body, as its bytes come. A buffer that was given must not change any more."""

    __slots__ = ("_crcs", "_hashes", "_jobs", "_waiting", "_waiting_bytes", "size")

    def __init__(self, algorithm: str | None = None, *, sha256: bool = False) -> None:
        """*algorithm*: one of `ALGORITHMS` besides the two that are always computed. *sha256*: that one as well.
        An unknown one is a `ValueError`."""
        if algorithm is not None and algorithm not in ALGORITHMS:
            raise ValueError(f"{algorithm!r} is none of {', '.join(ALGORITHMS)}")
        self.size = 0
        """Bytes so far."""
        self._hashes: dict[str, _Hash] = {"MD5": hashlib.md5(usedforsecurity=False)}
        if algorithm == "SHA1":
            self._hashes["SHA1"] = hashlib.sha1(usedforsecurity=False)
        if algorithm == "SHA256" or sha256:
            self._hashes["SHA256"] = hashlib.sha256()
        self._crcs = {"CRC64NVME": 0}
        if algorithm in CRCS:
            self._crcs[algorithm] = 0
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0
        self._jobs: Sequence[asyncio.Future[None]] = ()

    async def update(self, buffer: Buffer) -> None:
        """Take the next bytes. Waits only while the batch before the last one is still being hashed."""
        self._take(buffer)
        if self._waiting_bytes >= THREADED_BYTES:
            await self._settle()
            loop, batch = asyncio.get_running_loop(), self._drain()
            self._jobs = [loop.run_in_executor(_threads(), _feed, each, batch) for each in self._hashes.values()]

    def update_now(self, buffer: Buffer) -> bool:
        """As `update`, without waiting; False, and nothing taken, where a thread should do it."""
        if self._jobs or self._waiting_bytes + len(buffer) >= THREADED_BYTES:
            return False
        self._take(buffer)
        return True

    async def finish(self) -> None:
        """Everything is hashed once this returns; then ask for values."""
        await self._settle()
        batch = self._drain()
        for each in self._hashes.values():
            _feed(each, batch)

    @property
    def md5(self) -> bytes:
        """16 bytes."""
        return self._hashes["MD5"].digest()

    @property
    def crc64nvme(self) -> int:
        return self._crcs["CRC64NVME"]

    @property
    def sha256(self) -> str:
        """Hex, as SigV4 has it. A `KeyError` unless it was asked for."""
        return self._hashes["SHA256"].digest().hex()

    def value(self, algorithm: str) -> str:
        """Base64, as S3 has it. A `KeyError` for what was not asked for."""
        if algorithm in self._crcs:
            raw = self._crcs[algorithm].to_bytes(CRCS[algorithm][1], "big")
        else:
            raw = self._hashes[algorithm].digest()
        return base64.b64encode(raw).decode()

    def _take(self, buffer: Buffer) -> None:
        self.size += len(buffer)
        for name, crc in self._crcs.items():
            self._crcs[name] = CRCS[name][0](buffer, crc)
        self._waiting.append(buffer)
        self._waiting_bytes += len(buffer)

    def _drain(self) -> list[Buffer]:
        batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return batch

    async def _settle(self) -> None:
        jobs, self._jobs = self._jobs, ()
        for job in jobs:
            await job


def _feed(hasher: _Hash, batch: Sequence[Buffer]) -> None:
    for buffer in batch:
        hasher.update(buffer)
