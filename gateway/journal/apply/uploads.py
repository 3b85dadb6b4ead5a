"""What the records of multipart uploads do. Pure."""

from __future__ import annotations

from typing import assert_never

from gateway.journal.apply.counts import count_content
from gateway.journal.columns import Piece, Staged, in_ranges, pack, pack_list, unpack, unpack_pieces, unpack_staged
from gateway.journal.records.uploads import (
    PartPut,
    PartsDropped,
    PartsJoined,
    PartsTakenOver,
    PiecesStaged,
    UploadEnded,
    UploadForgotten,
    UploadMade,
    UploadRecord,
    UploadsAborted,
)
from gateway.journal.rows import Rows, require
from gateway.journal.tables import (
    BODY,
    BUCKET,
    DELETED_BUCKET,
    PART,
    RELEASE_QUEUE,
    UPLOAD,
    Body,
    Part,
    QueuedRelease,
    Shape,
    Upload,
    UploadState,
)


def apply_uploads(record: UploadRecord, rows: Rows) -> None:
    match record:
        case PartPut():
            _part_put(record, rows)
        case PartsJoined():
            _parts_joined(record, rows)
        case PartsTakenOver():
            _parts_taken_over(record, rows)
        case UploadMade():
            _upload_made(record, rows)
        case UploadEnded():
            _upload_ended(record, rows)
        case PartsDropped():
            _parts_dropped(record, rows)
        case UploadForgotten():
            _upload_forgotten(record, rows)
        case UploadsAborted():
            _uploads_aborted(record, rows)
        case PiecesStaged():
            _pieces_staged(record, rows)
        case _:
            assert_never(record)


def _upload_made(record: UploadMade, rows: Rows) -> None:
    rows.put(
        UPLOAD,
        Upload(
            record.bucket, record.key, record.id, UploadState.OPEN, record.owner, record.at_ns, 0, 0,
            record.checksum, record.checksum_type, record.headers, record.tags, b"",
            record.site_ns or record.at_ns,
        ),
    )  # fmt: skip
    _count_uploads(rows, record.bucket, 1)


def _count_uploads(rows: Rows, bucket: str, by: int) -> None:
    row = require(rows, BUCKET, (bucket,))
    rows.put(BUCKET, row._replace(uploads=row.uploads + by))


def _count_parts(rows: Rows, key: tuple[str, bytes, int], by: int) -> None:
    row = require(rows, UPLOAD, key)
    rows.put(UPLOAD, row._replace(parts=row.parts + by))


def _part_put(record: PartPut, rows: Rows) -> None:
    old = rows.get(PART, (record.upload, record.number))
    if old is not None:
        _queue_release(rows, old)
    upload = require(rows, UPLOAD, (record.bucket, record.key, record.upload))
    rows.put(UPLOAD, upload._replace(parts=upload.parts + (old is None), last_part=record.id))
    count_content(rows, record.shape, record.content, 1)
    rows.put(
        PART,
        Part(
            record.upload, record.number, record.id, record.size, record.shape, record.content, record.etag,
            record.crc64nvme.to_bytes(8, "big"), record.checksum, record.at_ns,
        ),
    )  # fmt: skip


def _queue_release(rows: Rows, part: Part) -> None:
    if part.shape != Shape.NONE:
        rows.put(RELEASE_QUEUE, QueuedRelease(part.id, part.shape, part.content, 0))


def _parts_joined(record: PartsJoined, rows: Rows) -> None:
    """The count on a run passes from the part to the piece, so the run's row does not change. A part that is a body of
    its own (copied from slices) is replaced by its pieces: these are counted, and the body is queued for release."""
    joined: list[Piece] = []
    for number in record.numbers:
        part = require(rows, PART, (record.upload, number))
        rows.drop(PART, (record.upload, number))
        if part.shape == Shape.RUN:
            joined.append(Piece(part.content, 0, part.size))
        elif part.shape == Shape.BODY:
            inner = unpack_pieces(require(rows, BODY, (part.content,)).pieces)
            for piece in inner:
                count_content(rows, Shape.RUN, piece.run, 1)
            joined.extend(inner)
            _queue_release(rows, part)
    size = sum(piece.length for piece in joined)
    rows.put(BODY, Body(record.id, 0, size, pack_list(joined), pack_list(record.facts)))
    key = (record.bucket, record.key, record.upload)
    _count_parts(rows, key, -len(record.numbers))
    _queue_release_of_staged(rows, key)


def _pieces_staged(record: PiecesStaged, rows: Rows) -> None:
    key = (record.bucket, record.key, record.upload)
    if unpack_staged(require(rows, UPLOAD, key).staged).digest != record.digest:
        _queue_release_of_staged(rows, key)
    upload = require(rows, UPLOAD, key)
    bodies = (*unpack_staged(upload.staged).bodies, record.id)
    rows.put(UPLOAD, upload._replace(staged=pack(Staged(record.digest, bodies))))
    count_content(rows, Shape.BODY, record.id, 1)


def _queue_release_of_staged(rows: Rows, key: tuple[str, bytes, int]) -> None:
    upload = require(rows, UPLOAD, key)
    if upload.staged:
        for body in unpack_staged(upload.staged).bodies:
            rows.put(RELEASE_QUEUE, QueuedRelease(body, Shape.BODY, body, 0))
        rows.put(UPLOAD, upload._replace(staged=b""))


def _parts_taken_over(record: PartsTakenOver, rows: Rows) -> None:
    """The counts on the runs pass to the new body, so the rows of the runs do not change. They pass from the parts,
    whose rows exist until they are dropped, and from the staged bodies, whose rows are dropped at once."""
    rows.put(BODY, Body(record.id, 0, record.size, record.pieces, record.facts))
    upload = require(rows, UPLOAD, (record.bucket, record.key, record.upload))
    if record.with_staged:
        for body in unpack_staged(upload.staged).bodies:
            rows.drop(BODY, (body,))
        upload = upload._replace(staged=b"")
    rows.put(UPLOAD, upload._replace(joined=record.joined))


def _upload_ended(record: UploadEnded, rows: Rows) -> None:
    upload = require(rows, UPLOAD, (record.bucket, record.key, record.id))
    ended = upload._replace(state=record.state, result=record.result, ended_ns=record.at_ns)
    _end_upload(ended._replace(site_ns=record.site_ns or record.at_ns), rows)
    _count_uploads(rows, record.bucket, -1)


def _end_upload(upload: Upload, rows: Rows) -> None:
    """Put the row of an ended upload. Parts that it still has are queued, under the upload's id, to be dropped."""
    rows.put(UPLOAD, upload._replace(last_part=0))
    if upload.parts:
        rows.put(RELEASE_QUEUE, QueuedRelease(upload.id, int(Shape.NONE), 0, 0))


def _uploads_aborted(record: UploadsAborted, rows: Rows) -> None:
    for at in record.uploads:
        upload = require(rows, UPLOAD, (record.name, at.key, at.id))
        ended = upload._replace(state=UploadState.ABORTED, ended_ns=record.at_ns)
        _end_upload(ended._replace(site_ns=record.site_ns or record.at_ns), rows)
    bucket = require(rows, DELETED_BUCKET, (record.bucket,))
    if bucket.uploads > len(record.uploads):
        rows.put(DELETED_BUCKET, bucket._replace(uploads=bucket.uploads - len(record.uploads)))
    else:
        rows.drop(DELETED_BUCKET, (record.bucket,))


def _parts_dropped(record: PartsDropped, rows: Rows) -> None:
    key = (record.bucket, record.key, record.upload)
    joined = unpack(require(rows, UPLOAD, key).joined) or ()
    for number in record.numbers:
        part = require(rows, PART, (record.upload, number))
        rows.drop(PART, (record.upload, number))
        if not in_ranges(number, joined):
            _queue_release(rows, part)
    _count_parts(rows, key, -len(record.numbers))
    if require(rows, UPLOAD, key).parts == 0:
        rows.drop(RELEASE_QUEUE, (record.upload,))
        _queue_release_of_staged(rows, key)


def _upload_forgotten(record: UploadForgotten, rows: Rows) -> None:
    rows.drop(UPLOAD, (record.bucket, record.key, record.id))
