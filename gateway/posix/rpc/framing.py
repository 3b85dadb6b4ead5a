"""A read's answer: a head, then the bytes in frames, each with its CRC32C behind it. Both ends of it; pure.

What was read up to a frame's end is known to be right, so a read that breaks off goes on from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from awscrt import checksums

from gateway.engine.types import Buffer
from gateway.errors import BadChecksum
from gateway.posix.rpc.protocol import CRC_BYTES, FRAME_BYTES, HEAD_BYTES, HEAD_BYTES_MOST


def framed_length(head: bytes, length: int) -> int:
    """How long an answer is, with *length* bytes of content."""
    return HEAD_BYTES + len(head) + length + CRC_BYTES * -(-length // FRAME_BYTES)


def framed_bytes(head: bytes, data: Buffer) -> bytes:
    """The answer where the content is at hand."""
    pieces: list[Buffer] = [len(head).to_bytes(HEAD_BYTES, "big"), head]
    view = memoryview(data)
    for at in range(0, len(view), FRAME_BYTES):
        frame = view[at : at + FRAME_BYTES]
        pieces += (frame, _crc(frame, 0).to_bytes(CRC_BYTES, "big"))
    return b"".join(pieces)


def framed(head: bytes, chunks: AsyncIterator[Buffer], length: int) -> Framed:
    """The answer where the content is still to come."""
    return Framed(head, chunks, length)


class Framed:
    """The pieces of an answer; nothing is copied."""

    def __init__(self, head: bytes, chunks: AsyncIterator[Buffer], length: int) -> None:
        self.length = framed_length(head, length)
        self._chunks = chunks
        self._left = length
        self._room = FRAME_BYTES
        self._crc = 0
        self._piece = memoryview(b"")
        self._next: list[Buffer] = [head, len(head).to_bytes(HEAD_BYTES, "big")]

    def __aiter__(self) -> Framed:
        return self

    async def __anext__(self) -> Buffer:
        if self._next:
            return self._next.pop()
        if not self._left:
            await self.aclose()
            raise StopAsyncIteration
        if not self._piece:
            self._piece = memoryview(await anext(self._chunks))
        taken = self._piece[: min(self._room, self._left)]
        self._piece = self._piece[len(taken) :]
        self._crc = _crc(taken, self._crc)
        self._room -= len(taken)
        self._left -= len(taken)
        if not self._room or not self._left:
            self._next.append(self._crc.to_bytes(CRC_BYTES, "big"))
            self._room, self._crc = FRAME_BYTES, 0
        return taken

    async def aclose(self) -> None:
        await self._chunks.aclose()  # type: ignore[attr-defined]


class Stream(Protocol):
    """Where an answer comes from."""

    async def readexactly(self, n: int) -> bytes:
        """Raises `asyncio.IncompleteReadError`."""
        ...


async def read_head(stream: Stream) -> bytes:
    """Raises `BadChecksum` for what is no head."""
    size = int.from_bytes(await stream.readexactly(HEAD_BYTES), "big")
    if size > HEAD_BYTES_MOST:
        raise BadChecksum("the head's length", HEAD_BYTES_MOST, size)
    return await stream.readexactly(size)


async def read_frame(stream: Stream, left: int) -> bytes:
    """The next frame of the *left* bytes that are still to come. Raises `BadChecksum`."""
    size = min(left, FRAME_BYTES)
    data = await stream.readexactly(size + CRC_BYTES)
    frame, told = data[:size], int.from_bytes(data[size:], "big")
    if (found := _crc(frame, 0)) != told:
        raise BadChecksum("CRC32C", told, found)
    return frame


def _crc(data: Buffer, before: int) -> int:
    value: int = checksums.crc32c(data, before)
    return value
