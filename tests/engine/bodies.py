"""Bodies for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.engine.types import Body, Buffer, Caller, ExpectedDigests, ObjectMeta, Stored


class Bytes(Body):
    """*data* in pieces of *piece* bytes."""

    def __init__(self, data: bytes, piece: int = 65536) -> None:
        self._data = data
        self._piece = piece

    async def __aiter__(self) -> AsyncIterator[Buffer]:  # type: ignore[override]
        for at in range(0, len(self._data), self._piece):
            yield self._data[at : at + self._piece]


async def put(engine, caller: Caller, key: bytes, data: bytes, bucket: str = "tree") -> Stored:
    return await engine.put(caller, bucket, key, Bytes(data), ExpectedDigests(size=len(data)), ObjectMeta())


async def get(engine, caller: Caller, key: bytes, bucket: str = "tree") -> bytes:
    opened = await engine.open(caller, bucket, key)
    if opened.whole is not None:
        return bytes(opened.whole)
    return b"".join([bytes(piece) async for piece in opened.chunks])
