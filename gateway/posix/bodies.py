"""Content between a program, a local file and the tree, in pieces: memory does not grow with an object's size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, BinaryIO

from gateway.engine.types import Body, Buffer, Opened

PIECE_BYTES = 1 << 20

Progress = Callable[[int], Any]
"""Called with the number of bytes of each piece."""


class BytesBody(Body):
    """Content that is in memory. It may be read several times."""

    def __init__(self, data: Buffer) -> None:
        self.data = data

    async def __aiter__(self) -> AsyncIterator[Buffer]:
        if len(self.data):
            yield self.data


class SignedBody(Body):
    """Another body with the SHA-256 that its sender signed; None for a body that verifies itself, chunk by chunk."""

    def __init__(self, body: Body, sha256: str | None) -> None:
        self._body = body
        self.sha256 = sha256
        self.consumed = False
        """Whether it was read to its end. Before that, nothing of it can have been committed."""

    async def __aiter__(self) -> AsyncIterator[Buffer]:
        async for piece in self._body:
            yield piece
        self.consumed = True

    def trailing_checksum(self) -> tuple[str, str] | None:
        return self._body.trailing_checksum()


class FileBody(Body):
    """The next *size* bytes of an open local file, read in a thread. It may be read several times."""

    def __init__(self, file: BinaryIO, size: int, progress: Progress) -> None:
        self._file = file
        self._start = file.tell()
        self._size = size
        self._reported = 0
        self._progress = progress

    async def __aiter__(self) -> AsyncIterator[Buffer]:
        left = self._size
        await asyncio.to_thread(self._file.seek, self._start)
        if self._reported:
            self._progress(-self._reported)
            self._reported = 0
        while left:
            piece = await asyncio.to_thread(self._file.read, min(left, PIECE_BYTES))
            if not piece:
                return  # the file has become shorter: the promised size does not match, so nothing is stored
            left -= len(piece)
            yield piece
            self._reported += len(piece)
            self._progress(len(piece))


def as_bytes_view(value: Any) -> memoryview:
    """Return anything bytes-like as a view of bytes. Only values that are not contiguous are copied."""
    view = memoryview(value)
    return view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())


async def read_all(opened: Opened) -> bytes:
    """Return the content of an opened object."""
    if opened.whole is not None:
        return bytes(opened.whole)
    async with aclosing(opened.chunks) as chunks:  # type: ignore[type-var]
        return b"".join([bytes(piece) async for piece in chunks])


async def write_to_file(opened: Opened, file: Any, progress: Progress) -> None:
    """Write the content of an opened object into a file-like object, in a thread."""
    if opened.whole is not None:
        await asyncio.to_thread(file.write, bytes(opened.whole))
        progress(opened.length)
        return
    async with aclosing(opened.chunks) as chunks:  # type: ignore[type-var]
        async for piece in chunks:
            await asyncio.to_thread(file.write, piece)
            progress(len(piece))
