"""Verification of a whole copy of a block: its header, every frame of every extent that lives in it, its checksum."""

from __future__ import annotations

import asyncio

from backends.base import Buffer, crc32c_of
from gateway import errors
from gateway.blocks.protocols import Tables
from gateway.crypto.sealing import HEADER_BYTES, BlockKeys, check_header, frames_of, sealed_length
from gateway.journal.columns import unpack_extents

RUNS = 64
"""Runs that are looked up, and whose extents are opened, between two turns of the event loop. A pack may have thousands
of them."""
_RUNS = (
    "SELECT m.run, r.extents FROM member m JOIN run r ON r.id = m.run WHERE m.block = ? AND m.run > ? "
    "ORDER BY m.run LIMIT ?"
)


async def verify_copy(store: Tables, keys: BlockKeys, block: bytes, ring_key: int, crc32c: int, copy: Buffer) -> int:
    """Check that *copy* is the block with the id *block*, sealed under the ring key *ring_key*.

    Returns how many frames were opened. Raises `Corrupted`."""
    sealed = memoryview(copy)
    opener = keys.opener(ring_key, block)
    check_header(sealed[:HEADER_BYTES], block, ring_key, opener.mode)
    opened, last = 0, 0
    while True:
        runs = store.query(_RUNS, (block, last, RUNS))
        for last, packed in runs:  # noqa: B007 (the next page begins after it)
            for extent in unpack_extents(packed):
                if extent.block == block:
                    frames = sealed[extent.offset : extent.offset + sealed_length(extent.length)]
                    opener.open(frames, extent.length, extent.frame)
                    opened += frames_of(extent.length)
        if len(runs) < RUNS:
            break
        await asyncio.sleep(0)
    if crc32c_of([sealed]) != crc32c:
        raise errors.Corrupted("its checksum is not the one that was stored, though all extents that live in it open")
    return opened
