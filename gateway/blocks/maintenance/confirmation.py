"""Whether backends have what they confirmed: asked before something that is good is given up for it."""

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
    """What backends said about a block. Where none of them failed, those that are not absent have it."""

    absent: frozenset[int]
    """The backends, by id, that do not have the block, or not whole."""
    failed: Mapping[int, backend_errors.BackendError]
    """The backends that could not be asked now, and why."""


async def confirm_copies(block: ExpectedBlock, targets: Sequence[Target]) -> Confirmation:
    """Ask each of *targets* for *block*.

    All are asked at once for its size; then one copy is read back byte for byte. The others have the block if they tell
    the MD5 of those bytes, or none; where the MD5 differs, which says nothing by itself, their copy is read as well.
    Once a backend has failed nothing is read any more: all of them have to be asked again in any case. Reads whole
    copies into memory, one at a time."""
    answers = await asyncio.gather(*(_size_and_md5(block, target) for target in targets))
    told = list(zip(targets, answers, strict=True))
    absent = {target.id for target, answer in told if answer is None}
    failed = {target.id: answer for target, answer in told if isinstance(answer, backend_errors.BackendError)}
    md5 = ""
    for target, answer in told:
        if failed:
            break
        if not isinstance(answer, Stat) or (md5 and answer.md5 in ("", md5)):
            continue
        found = await _read_back(block, target)
        if isinstance(found, backend_errors.BackendError):
            failed[target.id] = found
        elif found is None:
            absent.add(target.id)
        else:
            md5 = found
    return Confirmation(frozenset(absent), failed)


async def _size_and_md5(block: ExpectedBlock, target: Target) -> Stat | backend_errors.BackendError | None:
    """What *target* tells of a value of the right size; None if it has none."""
    try:
        found = await target.backend.stat(block_path(block.id))
    except (backend_errors.NotFound, backend_errors.Corrupted):
        return None
    except backend_errors.BackendError as error:
        return error
    return found if found.size == block.size else None


async def _read_back(block: ExpectedBlock, target: Target) -> str | backend_errors.BackendError | None:
    """The MD5 of the copy on *target*; None if it is not the block."""
    try:
        copy = await target.backend.get(block_path(block.id))
    except (backend_errors.NotFound, backend_errors.Corrupted):
        return None
    except backend_errors.BackendError as error:
        return error
    return None if crc32c_of([copy]) != block.crc32c else await asyncio.to_thread(_md5, copy)


def _md5(copy: Buffer) -> str:
    return hashlib.md5(copy, usedforsecurity=False).hexdigest()
