"""Checking that backends have a block that they confirmed, before good copies are given up for it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from backends import errors as backend_errors
from backends.base import Buffer, Stat, crc32c_of
from gateway.blocks.types import Target, block_path


class ExpectedBlock(NamedTuple):
    """A block that backends should have."""

    id: bytes
    size: int
    crc32c: int


class Confirmation(NamedTuple):
    """What the backends answered. If none of them failed, those that are not in `absent` have the block."""

    absent: frozenset[int]
    """The ids of the backends that do not have the block, or not all of it."""
    failed: Mapping[int, backend_errors.BackendError]
    """The backends that could not be asked now, by id, and their errors."""


async def confirm_copies(block: ExpectedBlock, targets: Sequence[Target]) -> Confirmation:
    """Ask each of *targets* whether it has *block*.

    All are asked for its size at once; then one copy is read back and compared by CRC32C. Another backend has the block
    if it states the MD5 of those bytes, or no MD5; if it states another one, its copy is read back, too, since some
    servers state something else as the MD5. Once a backend has failed, nothing is read back any more, since all have to
    be asked again in any case. Copies are read into memory as a whole, one at a time."""
    answers = await asyncio.gather(*(_stat(block, target) for target in targets))
    stats = list(zip(targets, answers, strict=True))
    absent = {target.id for target, stat in stats if stat is None}
    failed = {target.id: stat for target, stat in stats if isinstance(stat, backend_errors.BackendError)}
    md5 = ""
    for target, stat in stats:
        if failed:
            break
        if not isinstance(stat, Stat) or (md5 and stat.md5 in ("", md5)):
            continue
        result = await _read_back(block, target)
        if isinstance(result, backend_errors.BackendError):
            failed[target.id] = result
        elif result is None:
            absent.add(target.id)
        else:
            md5 = result
    return Confirmation(frozenset(absent), failed)


async def _stat(block: ExpectedBlock, target: Target) -> Stat | backend_errors.BackendError | None:
    """Return what *target* states of the block; None if it has none of that size; or the error."""
    try:
        stat = await target.backend.stat(block_path(block.id))
    except (backend_errors.NotFound, backend_errors.Corrupted):
        return None
    except backend_errors.BackendError as error:
        return error
    return stat if stat.size == block.size else None


async def _read_back(block: ExpectedBlock, target: Target) -> str | backend_errors.BackendError | None:
    """Return the MD5 of the copy on *target*; None if that is not the block; or the error."""
    try:
        copy = await target.backend.get(block_path(block.id))
    except (backend_errors.NotFound, backend_errors.Corrupted):
        return None
    except backend_errors.BackendError as error:
        return error
    return None if crc32c_of([copy]) != block.crc32c else await asyncio.to_thread(_md5, copy)


def _md5(copy: Buffer) -> str:
    return hashlib.md5(copy, usedforsecurity=False).hexdigest()
