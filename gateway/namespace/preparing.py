"""Completing a multipart upload of many parts without delaying the committer's other commands.

A command that read the rows of thousands of parts would occupy the committer for as long as reading them takes. So the
calling process reads the parts itself, in slices (`gather_parts`). From them it computes the body's packed columns,
ETag and checksums (`prepared`). It then sends one command, `CompletePrepared`, which makes the object from these values
and reads no part. The command does nothing if a part was added after the process read them; it compares the upload's
`last_part` to find out. The rows of the parts are deleted afterwards, in slices, like those of an aborted upload.

**The crash argument.** The prepared values are in memory alone. After a kill before the command is durable, the upload
is still open and complete. The command makes the object and ends the upload in one batch. From then on the parts' rows
own no bytes (`Upload.joined`). After a kill before these rows are deleted, the upload's row in `freed` says that they
are still to be deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from gateway.errors import NoSuchUpload
from gateway.journal.commands import Tx, command
from gateway.journal.packed import Piece, pack_all, pack_ranges
from gateway.journal.records.uploads import PartsTakenOver
from gateway.journal.tables import Part, Shape, Upload, UploadState
from gateway.namespace import reading
from gateway.namespace.completing import (
    CompleteUpload,
    Finished,
    check_order,
    check_promised,
    digest_of,
    fact_of,
    finish,
    judged,
    repeated,
)
from gateway.namespace.conditions import Preconditions, check_write
from gateway.namespace.paths import find, seen, want_neighbours, weigh_key
from gateway.namespace.reading import Reads, columns
from gateway.namespace.uploads import any_upload
from gateway.namespace.versions import parse_upload
from gateway.namespace.wholes import checksums_of, etag_of

GATHERED = 500
"""How many parts one query reads."""
NO_PART = -1
"""An id that no part has."""
PREPARED_FEATURE = 9
"""The journal's feature level that `CompletePrepared` needs: parts' rows are deleted after the completion."""


@command(127, weight=weigh_key)
class CompletePrepared:
    """Make the current version of *key* from values that the caller computed from the upload's parts. Emits
    `PartsTakenOver`.

    Answers as `CompleteUpload` does, or None if a part was added after the caller read them: then nothing is changed.
    Raises `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `PreconditionFailed`, `NoSuchKey`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    upload: str
    digest: bytes
    """`digest_of` the list of parts that the client sent."""
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


def complete_prepared(asked: CompletePrepared, tx: Tx) -> Finished | None:
    upload = any_upload(tx, asked.bucket, asked.key, asked.upload, asked.user, asked.root)
    if upload.state != UploadState.OPEN:
        return repeated(asked, asked.digest, upload, tx)
    if upload.last_part != asked.last_part:
        return None
    place = find(tx, asked.bucket, asked.key, asked.user, asked.root)
    if place.entry is not None:
        want_neighbours(tx, place.entry)
    if asked.conditions is not None:
        check_write(asked.conditions, asked.key, seen(tx, place.entry))
    tx.need_feature(PREPARED_FEATURE)
    body = tx.new_id()
    tx.emit(
        PartsTakenOver(
            asked.bucket, asked.key, upload.id, body, asked.size, asked.pieces, asked.facts, asked.joined
        )
    )  # fmt: skip
    return finish(asked, upload, place, body, asked.size, asked.etag, asked.checksums, asked.digest, tx)


# ---- in the calling process ------------------------------------------------------------------------------------------


async def prepared(reads: Reads, asked: CompleteUpload) -> CompletePrepared | None:
    """The `CompletePrepared` that has the effect of *asked* but reads no parts. None if the caller must send *asked*
    itself. The command checks whether the user may use the bucket; callers should check that before, too. Raises what
    `CompleteUpload` raises."""
    upload = reading.upload(reads, asked.bucket, asked.key, parse_upload(asked.upload))
    if upload is None:
        raise NoSuchUpload(asked.upload)
    if upload.state != UploadState.OPEN:
        return await asyncio.to_thread(_repeat, asked)
    return await asyncio.to_thread(_prepare, asked, upload, await gather_parts(reads, upload))


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


def _prepare(asked: CompleteUpload, upload: Upload, standing: Mapping[int, Part]) -> CompletePrepared | None:
    """The command that completes the open *upload* from its stored parts, *standing*. Takes a while for many parts, so
    callers run it in a thread. None if a part is a body of its own, whose runs have to be counted: then the caller
    sends *asked* itself. Raises those errors of `CompleteUpload` that concern parts."""
    check_order(asked.parts)
    parts = judged(asked, upload, standing.get)
    if any(part.shape == Shape.BODY for part in parts):
        return None
    checksums = checksums_of(parts, upload.checksum, upload.checksum_type)
    size = sum(part.size for part in parts)
    check_promised(asked, upload, checksums[0], size)
    return CompletePrepared(
        *(asked.bucket, asked.key, asked.user, asked.root, asked.upload, digest_of(asked.parts)),
        *(upload.last_part, size, etag_of(parts), pack_all(checksums)),
        pack_all(Piece(part.content, 0, part.size) for part in parts if part.shape == Shape.RUN),
        pack_all(map(fact_of, parts)),
        pack_ranges(part.number for part in parts),
        asked.conditions,
    )


def _repeat(asked: CompleteUpload) -> CompletePrepared:
    """The command for an upload that is already completed: it answers the repeated request and changes nothing."""
    head = (asked.bucket, asked.key, asked.user, asked.root, asked.upload, digest_of(asked.parts))
    return CompletePrepared(*head, NO_PART, 0, "", b"", b"", b"", b"")


HANDLERS: dict[type[Any], Any] = {CompletePrepared: complete_prepared}
