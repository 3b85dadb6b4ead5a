"""Bytes between a program, a local file and the tree, a piece at a time: memory never follows an object's size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, BinaryIO

from gateway.engine.types import Body, Buffer, Opened

PIECE_BYTES = 1 << 20

Progress = Callable[[int], Any]
"""Told of each piece, how many bytes it has."""


class Whole(Body):
    """Bytes that are in memory already."""

    def __init__(self, data: Buffer) -> None:
        self.data = data

    async def __aiter__(self) -> AsyncIterator[Buffer]:
        if len(self.data):
            yield self.data


class Vouched(Body):
    """Another body whose bytes have to be those of a hash that was signed; None for one that vouches for itself."""

    def __init__(self, body: Body, sha256: str | None) -> None:
        self._body = body
        self.sha256 = sha256
        self.ended = False
        """All of it came; before that, nothing of it can have been committed."""

    async def __aiter__(self) -> AsyncIterator[Buffer]:
        async for piece in self._body:
            yield piece
        self.ended = True

    def trailing_checksum(self) -> tuple[str, str] | None:
        return self._body.trailing_checksum()


class FromFile(Body):
    """*size* bytes of an open local file, from where it stands; read in a thread. It may be read again."""

    def __init__(self, file: BinaryIO, size: int, progress: Progress) -> None:
        self._file = file
        self._start = file.tell()
        self._size = size
        self._told = 0
        self._progress = progress

    async def __aiter__(self) -> AsyncIterator[Buffer]:
        left = self._size
        await asyncio.to_thread(self._file.seek, self._start)
        if self._told:
            self._progress(-self._told)
            self._told = 0
        while left:
            piece = await asyncio.to_thread(self._file.read, min(left, PIECE_BYTES))
            if not piece:
                return  # shorter than it was: the promised size does not hold, and nothing is stored
            left -= len(piece)
            yield piece
            self._told += len(piece)
            self._progress(len(piece))


def flat(value: Any) -> memoryview:
    """Anything bytes-like as plain bytes, without copying them where they lie in a row."""
    view = memoryview(value)
    return view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())


async def read_all(opened: Opened) -> bytes:
    """What was opened, as one value."""
    if opened.whole is not None:
        return bytes(opened.whole)
    async with aclosing(opened.chunks) as chunks:  # type: ignore[type-var]
        return b"".join([bytes(piece) async for piece in chunks])


async def read_into(opened: Opened, file: Any, progress: Progress) -> None:
    """Write what was opened into a file-like object, in a thread."""
    if opened.whole is not None:
        await asyncio.to_thread(file.write, bytes(opened.whole))
        progress(opened.length)
        return
    async with aclosing(opened.chunks) as chunks:  # type: ignore[type-var]
        async for piece in chunks:
            await asyncio.to_thread(file.write, piece)
            progress(len(piece))
