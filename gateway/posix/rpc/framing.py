"""The response to a read: a head, then the content in frames, each followed by its CRC32C. Both directions; pure.

All content up to the end of a verified frame is correct, so an interrupted read resumes from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from awscrt import checksums

from gateway.engine.types import Buffer
from gateway.errors import BadChecksum
from gateway.posix.rpc.protocol import CRC_BYTES, FRAME_BYTES, HEAD_BYTES_MOST, HEAD_LENGTH_BYTES


def framed_length(head: bytes, length: int) -> int:
    """Return the size of a response with *length* bytes of content."""
    return HEAD_LENGTH_BYTES + len(head) + length + CRC_BYTES * -(-length // FRAME_BYTES)


def frame_bytes(head: bytes, data: Buffer) -> bytes:
    """Return a response whose content is in memory."""
    pieces: list[Buffer] = [len(head).to_bytes(HEAD_LENGTH_BYTES, "big"), head]
    view = memoryview(data)
    for at in range(0, len(view), FRAME_BYTES):
        frame = view[at : at + FRAME_BYTES]
        pieces += (frame, _crc(frame, 0).to_bytes(CRC_BYTES, "big"))
    return b"".join(pieces)


class FramedStream:
    """A response whose content arrives in chunks, *length* bytes together. An async iterator that copies nothing."""

    def __init__(self, head: bytes, chunks: AsyncIterator[Buffer], length: int) -> None:
        self.length = framed_length(head, length)
        self._chunks = chunks
        self._left = length
        self._frame_left = FRAME_BYTES
        self._crc = 0
        self._chunk = memoryview(b"")
        self._next: list[Buffer] = [head, len(head).to_bytes(HEAD_LENGTH_BYTES, "big")]
        """Pieces that are due before the next content, the first one at the end."""

    def __aiter__(self) -> FramedStream:
        return self

    async def __anext__(self) -> Buffer:
        if self._next:
            return self._next.pop()
        if not self._left:
            await self.aclose()
            raise StopAsyncIteration
        if not self._chunk:
            self._chunk = memoryview(await anext(self._chunks))
        piece = self._chunk[: min(self._frame_left, self._left)]
        self._chunk = self._chunk[len(piece) :]
        self._crc = _crc(piece, self._crc)
        self._frame_left -= len(piece)
        self._left -= len(piece)
        if not self._frame_left or not self._left:
            self._next.append(self._crc.to_bytes(CRC_BYTES, "big"))
            self._frame_left, self._crc = FRAME_BYTES, 0
        return piece

    async def aclose(self) -> None:
        await self._chunks.aclose()  # type: ignore[attr-defined]


class Stream(Protocol):
    """The source of a response's bytes."""

    async def readexactly(self, n: int) -> bytes:
        """Raises `asyncio.IncompleteReadError`."""
        ...


async def read_head(stream: Stream) -> bytes:
    """Read the head. Raises `BadChecksum` if its length is impossible."""
    size = int.from_bytes(await stream.readexactly(HEAD_LENGTH_BYTES), "big")
    if size > HEAD_BYTES_MOST:
        raise BadChecksum("the head's length", HEAD_BYTES_MOST, size)
    return await stream.readexactly(size)


async def read_frame(stream: Stream, left: int) -> bytes:
    """Read the next frame; *left* bytes of content remain. Raises `BadChecksum`."""
    size = min(left, FRAME_BYTES)
    data = await stream.readexactly(size + CRC_BYTES)
    frame, expected = data[:size], int.from_bytes(data[size:], "big")
    if (computed := _crc(frame, 0)) != expected:
        raise BadChecksum("CRC32C", expected, computed)
    return frame


def _crc(data: Buffer, before: int) -> int:
    value: int = checksums.crc32c(data, before)
    return value
