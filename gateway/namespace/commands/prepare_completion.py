"""Prepares the completion of a multipart upload, in the process that sends the command (`complete_prepared.py`).

It reads the upload's parts in slices, and computes what the commands need: the pieces of the body, the ETag and the
checksums. What takes long for many parts runs in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from gateway.errors import InvalidArgument, NoSuchUpload
from gateway.journal.columns import Checksum, Piece, pack_list, pack_ranges, unpack_pieces
from gateway.journal.tables import Part, Shape, Upload, UploadState
from gateway.namespace.commands.complete import (
    MOST_PIECES,
    CompleteUpload,
    check_expected,
    check_order,
    check_parts,
    part_list_digest,
    summarize_part,
)
from gateway.namespace.commands.complete_prepared import CompletePrepared, StagePieces
from gateway.namespace.conditions import ObjectState, check_write
from gateway.namespace.multipart_digests import multipart_checksums, multipart_etag
from gateway.namespace.read import lookups
from gateway.namespace.read.lookups import Reads, columns
from gateway.namespace.version_ids import parse_upload_id

T = TypeVar("T")

GATHERED = 500
"""How many parts or bodies one query reads."""
STAGED_PIECES = 200
"""How many pieces one `StagePieces` counts: a few milliseconds of the committer's time."""
PIECE_BYTES_MAX = 28
"""The most bytes of a packed piece."""
PART_BYTES = 1 << 10
"""About how much memory the completing process needs for one part."""
PIECE_BYTES = 420
"""About how much memory it needs for a piece of a copied part."""
PACKED_PIECE_BYTES = 12
"""About the fewest bytes of a packed piece."""
NO_PART = -1
"""An id that no part has."""


class Prepared(NamedTuple):
    """The commands that complete an upload, each of bounded work: the slices in order, then the completion."""

    slices: Sequence[StagePieces]
    completion: CompletePrepared


async def preparation_bytes(reads: Reads, command: CompleteUpload) -> int:
    """Return about how many bytes of memory `prepare_completion` needs at most."""
    upload, after, count, packed = parse_upload_id(command.upload), 0, 0, 0
    while True:
        rows = reads.query(
            "SELECT p.number, coalesce(length(b.pieces), 0) FROM part p "
            "LEFT JOIN body b ON p.shape = ? AND b.id = p.content WHERE p.upload = ? AND p.number > ? "
            "ORDER BY p.number LIMIT ?",
            (int(Shape.BODY), upload, after, GATHERED),
        )
        count += len(rows)
        packed += sum(int(length) for _, length in rows)
        if len(rows) < GATHERED:
            return count * PART_BYTES + min(packed // PACKED_PIECE_BYTES, MOST_PIECES) * PIECE_BYTES
        after = rows[-1][0]
        await asyncio.sleep(0)


async def prepare_completion(reads: Reads, command: CompleteUpload) -> Prepared | None:
    """Return commands with the effect of *command*, none of which reads a part; None if the parts change meanwhile.

    The commands check whether the user may use the bucket; the caller checks that before, too. Raises what
    `CompleteUpload` raises, and `InvalidArgument` for an object of more than `MOST_PIECES` pieces."""
    # Looked up before the upload: if that is still open afterwards, this completion has not made the object.
    current = _current(reads, command)
    upload = lookups.upload(reads, command.bucket, command.key, parse_upload_id(command.upload))
    if upload is None:
        raise NoSuchUpload(command.upload)
    if upload.state != UploadState.OPEN:
        return Prepared((), await asyncio.to_thread(_repeat, command))
    if current is not None:
        # A refusal costs less here than in `complete_prepared`, which checks again. Without an object nothing is
        # refused here: the look-up may have missed one that was replaced at that moment.
        check_write(command.conditions, command.key, current)
    by_number = await gather_parts(reads, upload)
    parts, checksums = await asyncio.to_thread(_check_parts, command, upload, by_number)
    copied = [part.content for part in parts if part.shape == Shape.BODY]
    if not copied:
        return await asyncio.to_thread(completion_commands, command, upload, parts, checksums, {})
    bodies = await _gather_bodies(reads, copied, MOST_PIECES + len(copied) - len(parts))
    if bodies is None:
        return None
    return await asyncio.to_thread(completion_commands, command, upload, parts, checksums, bodies)


def _current(reads: Reads, command: CompleteUpload) -> ObjectState | None:
    """Return the state of the object that the conditions are about; None without conditions or without an object."""
    found = None if command.conditions is None else lookups.find(reads, command.bucket, command.key, content=False)
    if found is None or found.file is None:
        return None
    return ObjectState(found.file.etag, found.file.size, found.modified_ns)


async def gather_parts(reads: Reads, upload: Upload) -> dict[int, Part]:
    """Return the upload's parts by number, read in slices. They are consistent only if the upload's `last_part` stays
    the same meanwhile."""
    found: dict[int, Part] = {}
    after = 0
    while True:
        rows = reads.query(
            f"SELECT {columns('p', Part)} FROM part p WHERE p.upload = ? AND p.number > ? ORDER BY p.number LIMIT ?",
            (upload.id, after, GATHERED),
        )
        parts = [Part._make(row) for row in rows]
        found.update((part.number, part) for part in parts)
        if len(rows) < GATHERED:
            return found
        after = parts[-1].number
        await asyncio.sleep(0)


async def _gather_bodies(reads: Reads, copied: Sequence[int], pieces_max: int) -> dict[int, bytes] | None:
    """Return the packed pieces of the bodies *copied*, which may name one several times; None if one was deleted.
    Raises `InvalidArgument` if they have more than *pieces_max* pieces together, before much more than that is read."""
    sizes: dict[int, int] = {}
    for some in _in_slices(dict.fromkeys(copied), GATHERED):
        marks = ", ".join("?" * len(some))
        sizes.update(reads.query(f"SELECT id, length(pieces) FROM body WHERE id IN ({marks})", some))
        await asyncio.sleep(0)
    if any(body not in sizes for body in copied):
        return None
    if sum(sizes[body] for body in copied) > MOST_PIECES * PIECE_BYTES_MAX:
        raise _too_many()
    found: dict[int, bytes] = {}
    for body in sizes:
        rows = reads.query("SELECT pieces FROM body WHERE id = ?", (body,))
        if not rows:
            return None
        found[body] = rows[0][0]
        await asyncio.sleep(0)
    counts = await asyncio.to_thread(lambda: {body: len(unpack_pieces(packed)) for body, packed in found.items()})
    if sum(counts[body] for body in copied) > pieces_max:
        raise _too_many()
    return found


def _too_many() -> InvalidArgument:
    return InvalidArgument(f"the object would have more than {MOST_PIECES} pieces")


def _check_parts(
    command: CompleteUpload, upload: Upload, by_number: Mapping[int, Part]
) -> tuple[list[Part], Sequence[Checksum]]:
    """Return the named parts and the object's checksums. Takes long for many parts: call it in a thread. Raises those
    errors of `CompleteUpload` that concern parts."""
    check_order(command.parts)
    parts = check_parts(command, upload, by_number.get)
    checksums = multipart_checksums(parts, upload.checksum, upload.checksum_type)
    check_expected(command, upload, checksums[0], sum(part.size for part in parts))
    return parts, checksums


def completion_commands(
    command: CompleteUpload,
    upload: Upload,
    parts: Sequence[Part],
    checksums: Iterable[Checksum],
    bodies: Mapping[int, bytes],
) -> Prepared:
    """Return the commands that complete the open *upload* of *parts*. *bodies*: the packed pieces of the parts that are
    bodies. Takes long for many parts: call it in a thread."""
    head = (command.bucket, command.key, command.user, command.root, command.upload)
    counted = list(_in_slices(_pieces_of(parts, bodies, (Shape.BODY,)), STAGED_PIECES))
    digest = _digest_of_slices(counted) if counted else b""
    completion = CompletePrepared(
        *(
            *head,
            part_list_digest(command.parts),
            upload.last_part,
            sum(part.size for part in parts),
            multipart_etag(parts),
        ),
        *(pack_list(checksums), pack_list(_pieces_of(parts, bodies, (Shape.RUN, Shape.BODY)))),
        *(
            pack_list(map(summarize_part, parts)),
            pack_ranges(part.number for part in parts if part.shape != Shape.BODY),
        ),
        conditions=command.conditions,
        staged=digest,
        slices=len(counted),
    )
    slices = [StagePieces(*head, upload.last_part, digest, nth, some) for nth, some in enumerate(counted)]
    return Prepared(slices, completion)


def _pieces_of(parts: Iterable[Part], bodies: Mapping[int, bytes], shapes: Sequence[Shape]) -> Iterator[Piece]:
    """Yield the pieces of those *parts* that have one of *shapes*."""
    for part in parts:
        if part.shape in shapes:
            if part.shape == Shape.RUN:
                yield Piece(part.content, 0, part.size)
            else:
                yield from unpack_pieces(bodies[part.content])


def _digest_of_slices(slices: Iterable[tuple[Piece, ...]]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for each in slices:
        found.update(pack_list(each))
    return found.digest()


def _in_slices(values: Iterable[T], length: int) -> Iterator[tuple[T, ...]]:
    left = iter(values)
    while some := tuple(islice(left, length)):
        yield some


def _repeat(command: CompleteUpload) -> CompletePrepared:
    """Return the command for an upload that is already completed: it answers the repeated request and changes
    nothing."""
    head = (command.bucket, command.key, command.user, command.root, command.upload, part_list_digest(command.parts))
    return CompletePrepared(*head, NO_PART, 0, "", b"", b"", b"", b"")
