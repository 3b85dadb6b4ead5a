"""Copying without bytes: the new node, or part, shares the source's content. Rows in memory only.

A copy touches the same handful of rows whatever its size: content is counted at the run or body that it is, not at
what lies below. Only a slice of a body (UploadPartCopy with a range) counts each run that the slice meets: the
worker finds these, and stores the bytes anew if they are very many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.errors import AccessDenied, Busy, InvalidArgument, InvalidRange
from gateway.journal.apply.bytes import slice_content
from gateway.journal.columns import Piece
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.bytes import BodyMade
from gateway.journal.records.uploads import PartPut
from gateway.journal.rows import RowKey, require
from gateway.journal.tables import BODY, FILE, RUN, Bucket, File, Shape
from gateway.namespace.commands.objects import DeleteObject, delete_object, existing, name_object
from gateway.namespace.commands.uploads import open_upload, want_part
from gateway.namespace.conditions import Preconditions, check_source, check_write
from gateway.namespace.keys import check_new_key
from gateway.namespace.paths import locate_key, object_state, prefetch_neighbours, version_state, weigh_key
from gateway.namespace.version_ids import s3_version_id


class Source(NamedTuple):
    """What is copied. *version* "" is the current one. *node*, unless 0, is the node that the worker looked at, and
    *content*, unless None, the run or body that it had: the copy is refused with `Busy` if there is another by now."""

    bucket: str
    key: bytes
    version: str = ""
    conditions: Preconditions | None = None
    node: int = 0
    content: int | None = None


class Copied(NamedTuple):
    """The answer of a command that copies or moves an object."""

    version: str | None
    """Of the new object, as S3 shows it; None in a bucket without versioning."""
    modified_ns: int
    etag: str
    size: int
    checksums: bytes
    """packed: list of `Checksum`."""
    source_version: str | None


@command(110, weight=weigh_key)
class CopyObject(Command[Copied]):
    """The source's content becomes the current version of *key*.

    *headers*, *tags*, *checksums* are packed; None takes the source's.
    Raises `NoSuchBucket`, `AccessDenied`, `InvalidKey`, `NoSuchKey`, `NoSuchVersion`, `DeleteMarker`,
    `PreconditionFailed`, `Busy`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    source: Source
    headers: bytes | None = None
    tags: bytes | None = None
    checksums: bytes | None = None
    conditions: Preconditions | None = None


def copy_object(asked: CopyObject, tx: Tx) -> Copied:
    check_new_key(asked.key)
    from_bucket, file, source_version = _source(tx, asked.source, asked.user, asked.root)
    location = locate_key(tx, asked.bucket, asked.key, asked.user, asked.root, _content_row(file))
    _same_tenant(from_bucket, location.bucket)
    if location.entry is not None:
        prefetch_neighbours(tx, location.entry)
    if asked.conditions is not None:
        check_write(asked.conditions, asked.key, object_state(tx, location.entry))
    checksums = file.checksums if asked.checksums is None else asked.checksums
    version, modified_ns = name_object(
        tx, location, size=file.size, shape=file.shape, content=file.content, etag=file.etag, owner=asked.user,
        headers=file.headers if asked.headers is None else asked.headers, checksums=checksums,
        tags=file.tags if asked.tags is None else asked.tags,
    )  # fmt: skip
    return Copied(version, modified_ns, file.etag, file.size, checksums, source_version)


def _source(tx: Tx, source: Source, user: int, root: bool) -> tuple[Bucket, File, str | None]:
    """The bucket, the node and the shown version of what is to be copied."""
    location = locate_key(tx, source.bucket, source.key, user, root)
    at = existing(tx, location, source.version)
    file = require(tx.rows, FILE, (at.node,))
    if source.conditions is not None:
        check_source(source.conditions, version_state(at, file))
    if (source.node and source.node != file.id) or source.content not in (None, file.content):
        raise Busy("the source changed while it was looked at")
    return location.bucket, file, s3_version_id(at.version, at.null, location.bucket.versioning)


def _content_row(file: File) -> list[RowKey]:
    match file.shape:
        case Shape.RUN:
            return [(RUN, (file.content,))]
        case Shape.BODY:
            return [(BODY, (file.content,))]
    return []


def _same_tenant(one: Bucket, other: Bucket) -> None:
    """Blocks are sealed with their tenant's key, so runs are never shared across tenants."""
    if one.tenant != other.tenant:
        raise AccessDenied("a copy within the journal stays with one tenant")


@command(112, weight=weigh_key)
class MoveObject(Command[Copied]):
    """The object at *from_key* of *from_bucket* becomes the current version of *key*, and goes where it stood, as by a
    DELETE: where that bucket has versions, a delete marker covers it. Answers as `CopyObject`.

    One command and not a copy with a removal behind it, so that no write to the source can fall between the two.
    Raises as `CopyObject`; `InvalidArgument` for a move of a key to itself."""

    bucket: str
    key: bytes
    user: int
    root: bool
    from_bucket: str
    from_key: bytes


def move_object(asked: MoveObject, tx: Tx) -> Copied:
    if (asked.bucket, asked.key) == (asked.from_bucket, asked.from_key):
        raise InvalidArgument(f"{asked.key!r} is moved to itself")
    source = Source(asked.from_bucket, asked.from_key)
    copied = copy_object(CopyObject(asked.bucket, asked.key, asked.user, asked.root, source), tx)
    delete_object(DeleteObject(asked.from_bucket, asked.from_key, asked.user, asked.root), tx)
    return copied


@command(111, weight=lambda asked: 2 + len(asked.pieces))
class CopyPart(Command[tuple[int, str | None]]):
    """A stretch of the source becomes a part: *length* plain bytes from *start* on, whose digests the front desk knows
    or has computed. Answers (LastModified in ns, the source's version or None).

    Raises as `CopyObject` and `PutPart`; `InvalidRange` for bytes that the source does not have."""

    bucket: str
    key: bytes
    user: int
    root: bool
    upload: str
    number: int
    source: Source
    start: int
    length: int
    etag: str
    """The stretch's MD5, hex."""
    crc64nvme: int
    checksum: str
    """Base64, of the upload's algorithm, or empty."""
    pieces: tuple[Piece, ...] = ()
    """The pieces of the source's body that make up the stretch, so that the committer need not look through all of
    them; `source.content` is that body. Empty if the source is a run, or is copied whole."""


def copy_part(asked: CopyPart, tx: Tx) -> tuple[int, str | None]:
    upload = open_upload(tx, asked.bucket, asked.key, asked.upload, asked.user, asked.root)
    bucket, file, source_version = _source(tx, asked.source, asked.user, asked.root)
    if asked.pieces and asked.source.content is None:
        raise InvalidArgument("the pieces are of no body")
    want_part(tx, upload.id, asked.number, [] if asked.pieces else _content_row(file))
    into = locate_key(tx, asked.bucket, asked.key, asked.user, asked.root).bucket
    _same_tenant(bucket, into)
    if asked.start < 0 or asked.length < 0 or asked.start + asked.length > file.size:
        raise InvalidRange(f"{asked.start}-{asked.start + asked.length - 1}", file.size)
    shape, content = share(tx, file, asked.start, asked.length, asked.pieces)
    tx.emit(
        PartPut(
            asked.bucket, asked.key, upload.id, asked.number, tx.new_id(), asked.length, int(shape), content,
            asked.etag, asked.crc64nvme, asked.checksum, tx.at_ns,
        )
    )  # fmt: skip
    return tx.at_ns, source_version


def share(tx: Tx, file: File, start: int, length: int, found: Sequence[Piece] = ()) -> tuple[int, int]:
    """Content that is *length* plain bytes of the file from *start* on: its own, or a body of slices of it. *found*:
    the pieces that make them up, if they are known; else they are looked up."""
    if length == 0:
        return Shape.NONE, 0
    if length == file.size:
        return file.shape, file.content
    pieces = found or slice_content(tx.rows, file.shape, file.content, start, length)
    if sum(piece.length for piece in pieces) != length:
        raise InvalidArgument("the pieces do not make up the stretch")
    tx.prefetch([(RUN, (run,)) for run in dict.fromkeys(piece.run for piece in pieces)])
    made = tx.new_id()
    tx.emit(BodyMade(made, tuple((int(Shape.RUN), *piece) for piece in pieces)))
    return Shape.BODY, made


HANDLERS: dict[type[Any], Any] = {CopyObject: copy_object, MoveObject: move_object, CopyPart: copy_part}
