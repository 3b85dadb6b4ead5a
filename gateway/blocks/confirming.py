"""Whether backends have what they confirmed: asked before something that is good is given up for it."""

from __future__ import annotations

from collections.abc import Sequence

from backends import errors as backend_errors
from backends.base import crc32c_of
from gateway.blocks.values import Target, block_key
from gateway.journal.records.bytes import NewBlock


async def is_there(block: NewBlock, targets: Sequence[Target]) -> bool:
    """Whether each of *targets* tells the size of *block*, and the first one gives it back byte for byte. False where
    one cannot be asked. Reads the whole block into memory."""
    key = block_key(block.id)
    try:
        for target in targets:
            if (await target.backend.stat(key)).size != block.size:
                return False
        return bool(targets) and crc32c_of([await targets[0].backend.get(key)]) == block.crc32c
    except backend_errors.BackendError:
        return False
