"""Completing a multipart upload of many parts without delaying the committer's other commands.

A command that read the rows of thousands of parts would occupy the committer for as long as reading them takes. So the
calling process reads the parts itself, in slices (`gather_parts`). From them it computes the body's packed columns,
ETag and checksums (`prepared`). It then sends one command, `CompletePrepared`, which makes the object from these values
and reads no part. The command does nothing if a part was added after the process read them; it compares the upload's
`last_part` to find out. The rows of the parts are deleted afterwards, in slices, like those of an aborted upload.

The new body holds a count on the run of each of its pieces. A part that is a run passes its own count on. A part that
was copied from several runs, or from a range of one, is a body of its own, which may be shared, so the runs of its
pieces have to be counted anew: thousands of rows. That happens before, in slices: each `StagePieces` makes a *staged
body* of some of these pieces, which counts their runs, and which the upload holds. `CompletePrepared` takes over what
the staged bodies hold.

**The crash argument.** The prepared values are in memory alone. After a kill before `CompletePrepared` is durable, the
upload is still open and complete. The command makes the object and ends the upload in one batch. From then on the rows
of the parts named in `Upload.joined` own no content. After a kill before the parts' rows are deleted, the upload's row
in `freed` says that they are still to be deleted. A staged body counts its runs while these live (a run that is gone is
not counted but refused), so counts are right after each slice. What a completion has staged stays with the upload
until a completion takes it over, one that needs other pieces replaces it, or the upload's last part is deleted: then
`freed` has the staged bodies. A repeated completion that needs the same pieces goes on where the first one stopped.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from gateway.errors import InvalidArgument, NoSuchUpload
from gateway.journal.columns import Checksum, Piece, pack_list, pack_ranges, unpack_pieces, unpack_staged
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.bytes import BodyMade
from gateway.journal.records.uploads import PartsTakenOver, PiecesStaged
from gateway.journal.tables import RUN, Part, Shape, Upload, UploadState
from gateway.namespace.commands.complete import (
    MOST_PIECES,
    CompletedObject,
    CompleteUpload,
    check_expected,
    check_order,
    check_parts,
    finish_upload,
    part_list_digest,
    repeat_result,
    summarize_part,
)
from gateway.namespace.commands.uploads import any_upload
from gateway.namespace.conditions import ObjectState, Preconditions, check_write
from gateway.namespace.multipart_digests import multipart_checksums, multipart_etag
from gateway.namespace.paths import locate_key, object_state, prefetch_neighbours, weigh_key
from gateway.namespace.read import lookups
from gateway.namespace.read.lookups import Reads, columns
from gateway.namespace.version_ids import parse_upload_id

T = TypeVar("T")

GATHERED = 500
"""How many parts or bodies one query reads."""
STAGED_PIECES = 200
"""How many pieces one `StagePieces` counts: a few milliseconds of the committer's time."""
PIECE_BYTES_MAX = 28
"""How many bytes a packed piece takes at most."""
WEIGHT_BYTES = 1 << 10
"""The committer needs about as long for so many bytes of a command as for one row."""
PART_BYTES = 1 << 10
"""About how much memory the completing process needs for one part,"""
PIECE_BYTES = 420
"""and for a piece of a copied part,"""
PACKED_PIECE_BYTES = 12
"""which takes at least about so many bytes as it is packed."""
NO_PART = -1
"""An id that no part has."""
PREPARED_FEATURE = 9
"""The journal's feature level that `CompletePrepared` needs: parts' rows are deleted after the completion."""
STAGED_FEATURE = 10
"""The level that `StagePieces` needs."""


@command(128, weight=lambda asked: len(asked.pieces))
class StagePieces(Command[int | None]):
    """Count the runs of the *nth* slice of the pieces that a completion needs counted. Emits `BodyMade` and
    `PiecesStaged`.

    Answers how many slices the upload has staged under *digest*, which is more than *nth*. Answers None if the upload
    has changed: it was completed, a part was added, or slices before this one are missing. Repeating a slice is
    harmless. Raises `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    upload: str
    last_part: int
    """As in `CompletePrepared`."""
    digest: bytes
    """BLAKE2b-128 over all slices."""
    nth: int
    pieces: tuple[Piece, ...]


def stage_pieces(asked: StagePieces, tx: Tx) -> int | None:
    upload = any_upload(tx, asked.bucket, asked.key, asked.upload, asked.user, asked.root)
    if upload.state != UploadState.OPEN or upload.last_part != asked.last_part:
        return None
    before = unpack_staged(upload.staged)
    done = len(before.bodies) if before.digest == asked.digest else 0
    if asked.nth != done:
        return done if asked.nth < done else None
    wanted = [(RUN, (run,)) for run in dict.fromkeys(piece.run for piece in asked.pieces)]
    tx.prefetch(wanted)
    if any(tx.get(*run) is None for run in wanted):
        return None
    tx.need_feature(STAGED_FEATURE)
    made = tx.new_id()
    tx.emit(BodyMade(made, tuple((int(Shape.RUN), *piece) for piece in asked.pieces)))
    tx.emit(PiecesStaged(asked.bucket, asked.key, upload.id, asked.digest, made))
    return done + 1


def _weigh(asked: CompletePrepared) -> int:
    return weigh_key(asked) + asked.slices + (len(asked.pieces) + len(asked.facts)) // WEIGHT_BYTES


@command(127, weight=_weigh)
class CompletePrepared(Command[CompletedObject | None]):
    """Make the current version of *key* from values that the caller computed from the upload's parts. Emits
    `PartsTakenOver`.

    Answers as `CompleteUpload` does, or None if a part was added after the caller read them, or what it has staged is
    not there any more: then nothing is changed.
    Raises `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `PreconditionFailed`, `NoSuchKey`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    upload: str
    digest: bytes
    """`part_list_digest` the list of parts that the client sent."""
    last_part: int
    """`last_part` of the upload's row when the caller read its parts."""
    size: int
    etag: str
    checksums: bytes
    """The object's checksums, packed."""
    pieces: bytes
    facts: bytes
    joined: bytes
    conditions: Preconditions | None = None
    staged: bytes = b""
    """`StagePieces.digest`, if pieces had to be staged,"""
    slices: int = 0
    """and in how many slices."""


def complete_prepared(asked: CompletePrepared, tx: Tx) -> CompletedObject | None:
    upload = any_upload(tx, asked.bucket, asked.key, asked.upload, asked.user, asked.root)
    if upload.state != UploadState.OPEN:
        return repeat_result(asked, asked.digest, upload, tx)
    if upload.last_part != asked.last_part:
        return None
    before = unpack_staged(upload.staged)
    if asked.slices and (before.digest, len(before.bodies)) != (asked.staged, asked.slices):
        return None
    location = locate_key(tx, asked.bucket, asked.key, asked.user, asked.root)
    if location.entry is not None:
        prefetch_neighbours(tx, location.entry)
    if asked.conditions is not None:
        check_write(asked.conditions, asked.key, object_state(tx, location.entry))
    tx.need_feature(PREPARED_FEATURE)
    body = tx.new_id()
    tx.emit(
        PartsTakenOver(
            asked.bucket, asked.key, upload.id, body, asked.size, asked.pieces, asked.facts, asked.joined,
            asked.slices > 0,
        )
    )  # fmt: skip
    return finish_upload(asked, upload, location, body, asked.size, asked.etag, asked.checksums, asked.digest, tx)


# ---- in the calling process ------------------------------------------------------------------------------------------


class Prepared(NamedTuple):
    """The commands that complete an upload, each of bounded work: the slices in order, then the completion."""

    slices: Sequence[StagePieces]
    completion: CompletePrepared


async def memory_bytes(reads: Reads, asked: CompleteUpload) -> int:
    """About how much memory `prepared` needs at most."""
    upload, after, count, packed = parse_upload_id(asked.upload), 0, 0, 0
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


async def prepared(reads: Reads, asked: CompleteUpload) -> Prepared | None:
    """The commands that have the effect of *asked*, none of which reads a part. None if the parts change meanwhile. The
    commands check whether the user may use the bucket; callers should check that before, too. Raises what
    `CompleteUpload` raises, and `InvalidArgument` for an object of more than `MOST_PIECES` pieces."""
    # Looked up before the upload: if that is still open afterwards, this completion has not made the object.
    current = _current(reads, asked)
    upload = lookups.upload(reads, asked.bucket, asked.key, parse_upload_id(asked.upload))
    if upload is None:
        raise NoSuchUpload(asked.upload)
    if upload.state != UploadState.OPEN:
        return Prepared((), await asyncio.to_thread(_repeat, asked))
    if current is not None:
        # A refusal costs less here than in `complete_prepared`, which checks again. That nothing was found proves
        # nothing: an object may be replaced during the look.
        check_write(asked.conditions, asked.key, current)
    standing = await gather_parts(reads, upload)
    parts, checksums = await asyncio.to_thread(_check_parts, asked, upload, standing)
    copied = [part.content for part in parts if part.shape == Shape.BODY]
    if not copied:
        return await asyncio.to_thread(commands, asked, upload, parts, checksums, {})
    bodies = await _gather_bodies(reads, copied, MOST_PIECES + len(copied) - len(parts))
    if bodies is None:
        return None
    return await asyncio.to_thread(commands, asked, upload, parts, checksums, bodies)


def _current(reads: Reads, asked: CompleteUpload) -> ObjectState | None:
    """What the conditions look at; None if there are none, or no object."""
    found = None if asked.conditions is None else lookups.find(reads, asked.bucket, asked.key, content=False)
    if found is None or found.file is None:
        return None
    return ObjectState(found.file.etag, found.file.size, found.modified_ns)


async def gather_parts(reads: Reads, upload: Upload) -> dict[int, Part]:
    """The upload's parts by number, read in slices. They are a consistent snapshot only if the upload's `last_part`
    does not change meanwhile."""
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
    """The packed pieces of the bodies *copied*, which may name one several times; None if one is gone. Raises
    `InvalidArgument` if they have more than *pieces_max* pieces together, before it reads much more than that."""
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
    asked: CompleteUpload, upload: Upload, standing: Mapping[int, Part]
) -> tuple[list[Part], Sequence[Checksum]]:
    """The named parts and the object's checksums. Takes a while for many parts, so callers run it in a thread. Raises
    those errors of `CompleteUpload` that concern parts."""
    check_order(asked.parts)
    parts = check_parts(asked, upload, standing.get)
    checksums = multipart_checksums(parts, upload.checksum, upload.checksum_type)
    check_expected(asked, upload, checksums[0], sum(part.size for part in parts))
    return parts, checksums


def commands(
    asked: CompleteUpload,
    upload: Upload,
    parts: Sequence[Part],
    checksums: Iterable[Checksum],
    bodies: Mapping[int, bytes],
) -> Prepared:
    """The commands that complete the open *upload* of *parts*. *bodies* has the packed pieces of the parts that are
    bodies. Takes a while for many parts, so callers run it in a thread."""
    head = (asked.bucket, asked.key, asked.user, asked.root, asked.upload)
    counted = list(_in_slices(_pieces_of(parts, bodies, (Shape.BODY,)), STAGED_PIECES))
    digest = _digest_of_slices(counted) if counted else b""
    completion = CompletePrepared(
        *(
            *head,
            part_list_digest(asked.parts),
            upload.last_part,
            sum(part.size for part in parts),
            multipart_etag(parts),
        ),
        *(pack_list(checksums), pack_list(_pieces_of(parts, bodies, (Shape.RUN, Shape.BODY)))),
        *(
            pack_list(map(summarize_part, parts)),
            pack_ranges(part.number for part in parts if part.shape != Shape.BODY),
        ),
        conditions=asked.conditions,
        staged=digest,
        slices=len(counted),
    )
    slices = [StagePieces(*head, upload.last_part, digest, nth, some) for nth, some in enumerate(counted)]
    return Prepared(slices, completion)


def _pieces_of(parts: Iterable[Part], bodies: Mapping[int, bytes], shapes: Sequence[Shape]) -> Iterator[Piece]:
    """The pieces of those *parts* that have one of *shapes*."""
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


def _repeat(asked: CompleteUpload) -> CompletePrepared:
    """The command for an upload that is already completed: it answers the repeated request and changes nothing."""
    head = (asked.bucket, asked.key, asked.user, asked.root, asked.upload, part_list_digest(asked.parts))
    return CompletePrepared(*head, NO_PART, 0, "", b"", b"", b"", b"")


HANDLERS: dict[type[Any], Any] = {CompletePrepared: complete_prepared, StagePieces: stage_pieces}
