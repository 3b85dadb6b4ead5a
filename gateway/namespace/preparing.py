"""Completing an upload of many parts, without holding the committer up.

One command that looks at thousands of parts would hold it up for as long as all those rows take. So the process that
asks looks at the parts itself, in slices (`gather_parts`), and prepares all that follows from them (`prepared`): the
body's packed columns, ETag and checksums. One command, `CompletePrepared`, makes the object of that, on condition that
no part has come since (the upload's `last_part`); it looks at no part. The parts' rows are dropped afterwards, in
slices, as those of an aborted upload.

**The crash argument.** What is prepared is in memory alone: killed before the command is durable, the upload is open
and whole. The command makes the object and ends the upload in one batch. From then on the parts' rows hold nothing
(`Upload.joined`); killed before they are dropped, the upload's row in `freed` says that they are to be.
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
"""Parts that are read at once."""
NO_PART = -1
"""No part's id."""
PREPARED_FEATURE = 9
"""The journal's level that completions need whose parts are dropped afterwards."""


@command(127, weight=weigh_key)
class CompletePrepared:
    """The current version of *key* is made of what was prepared of the upload's parts; as of `PartsTakenOver`.

    Answers as `CompleteUpload`, and None where a part has come since they were looked at: then nothing was done.
    Raises `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `PreconditionFailed`, `NoSuchKey`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    upload: str
    digest: bytes
    """`digest_of` what the client named."""
    last_part: int
    """Of the upload's row, when its parts were looked at."""
    size: int
    etag: str
    checksums: bytes
    """packed."""
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


# ---- for the process that asks ---------------------------------------------------------------------------------------


async def prepared(reads: Reads, asked: CompleteUpload) -> CompletePrepared | None:
    """The command that does what *asked* does without looking at parts; None where only *asked* itself can. Whether the
    caller may use the bucket is checked by the command, and better before. Raises as `CompleteUpload`."""
    upload = reading.upload(reads, asked.bucket, asked.key, parse_upload(asked.upload))
    if upload is None:
        raise NoSuchUpload(asked.upload)
    if upload.state != UploadState.OPEN:
        return await asyncio.to_thread(_repeat, asked)
    return await asyncio.to_thread(_prepare, asked, upload, await gather_parts(reads, upload))


async def gather_parts(reads: Reads, upload: Upload) -> dict[int, Part]:
    """The upload's parts by number, read in slices: they are of one moment only if `last_part` does not change."""
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
    """The command that completes the open *upload* of the parts *standing*. Takes a while where they are many: for a
    thread. None where a part is a body of its own, whose runs have to be counted: then *asked* itself is to be sent.
    Raises as `CompleteUpload` where it is about parts."""
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
    """The command that answers a repeat of a completion, and does nothing else."""
    head = (asked.bucket, asked.key, asked.user, asked.root, asked.upload, digest_of(asked.parts))
    return CompletePrepared(*head, NO_PART, 0, "", b"", b"", b"", b"")


HANDLERS: dict[type[Any], Any] = {CompletePrepared: complete_prepared}
