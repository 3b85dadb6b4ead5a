"""Whether backends have what they confirmed: asked before something that is good is given up for it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from backends import errors as backend_errors
from backends.base import Buffer, crc32c_of
from gateway.blocks.values import Target, block_key


class Awaited(NamedTuple):
    """A block that backends should have."""

    id: bytes
    size: int
    crc32c: int


async def is_there(block: Awaited, targets: Sequence[Target]) -> bool | None:
    """Whether each of *targets* has *block*: it tells the right size, and one gives the block back byte for byte. The
    others tell the MD5 of those bytes, if they tell one; where it differs, which says nothing by itself, their copy is
    read as well. None where one cannot be asked now. Reads whole copies into memory."""
    key = block_key(block.id)
    md5 = ""
    try:
        for target in targets:
            found = await target.backend.stat(key)
            if found.size != block.size:
                return False
            if md5 and found.md5 in ("", md5):
                continue
            copy = await target.backend.get(key)
            if crc32c_of([copy]) != block.crc32c:
                return False
            md5 = await asyncio.to_thread(_md5, copy)
    except (backend_errors.NotFound, backend_errors.Damaged):
        return False
    except backend_errors.BackendError:
        return None
    return bool(targets)


def _md5(copy: Buffer) -> str:
    return hashlib.md5(copy, usedforsecurity=False).hexdigest()
