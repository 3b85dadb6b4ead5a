"""Copies within the journal: the new node or part shares the source's content, and no bytes are read or written.

A copy changes a few rows, whatever its size: it adds one to the reference count of the source's run or body, and none
to those of the runs of a body. Only a slice of a body (UploadPartCopy with a range) adds a count to each run that the
slice overlaps. The worker looks these runs up, and copies the bytes instead if there are very many. Works on rows in
memory only.
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
from gateway.namespace.commands.uploads import open_upload, prefetch_part
from gateway.namespace.conditions import Preconditions, check_source, check_write
from gateway.namespace.keys import check_new_key
from gateway.namespace.paths import locate_key, object_state, prefetch_neighbours, version_state, weigh_key
from gateway.namespace.version_ids import s3_version_id


class Source(NamedTuple):
    """The source of a copy. An empty *version* means the current one. *node* and *content* are those
    that the worker has read; the copy is refused with `Busy` if the source has others now. 0 and None: any."""

    bucket: str
    key: bytes
    version: str = ""
    conditions: Preconditions | None = None
    node: int = 0
    content: int | None = None


class Copied(NamedTuple):
    """The answer of a command that copies or moves an object."""

    version: str | None
    """The version of the new object, as S3 shows it; None in a bucket without versioning."""
    modified_ns: int
    etag: str
    size: int
    checksums: bytes
    """packed: list of `Checksum`."""
    source_version: str | None


@command(110, weight=weigh_key)
class CopyObject(Command[Copied]):
    """Make the source's content the current version of *key*. Answers `Copied`.

    *headers*, *tags* and *checksums* are packed; None means those of the source.
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


def copy_object(command: CopyObject, tx: Tx) -> Copied:
    check_new_key(command.key)
    from_bucket, file, source_version = _source(tx, command.source, command.user, command.root)
    location = locate_key(tx, command.bucket, command.key, command.user, command.root, _content_row(file))
    _same_tenant(from_bucket, location.bucket)
    if location.entry is not None:
        prefetch_neighbours(tx, location.entry)
    if command.conditions is not None:
        check_write(command.conditions, command.key, object_state(tx, location.entry))
    checksums = file.checksums if command.checksums is None else command.checksums
    version, modified_ns = name_object(
        tx, location, size=file.size, shape=file.shape, content=file.content, etag=file.etag, owner=command.user,
        headers=file.headers if command.headers is None else command.headers, checksums=checksums,
        tags=file.tags if command.tags is None else command.tags,
    )  # fmt: skip
    return Copied(version, modified_ns, file.etag, file.size, checksums, source_version)


def _source(tx: Tx, source: Source, user: int, root: bool) -> tuple[Bucket, File, str | None]:
    """Return the bucket, the node, and the version as S3 shows it, of the source. Raises as `CopyObject`."""
    location = locate_key(tx, source.bucket, source.key, user, root)
    at = existing(tx, location, source.version)
    file = require(tx.rows, FILE, (at.node,))
    if source.conditions is not None:
        check_source(source.conditions, version_state(at, file))
    if (source.node and source.node != file.id) or source.content not in (None, file.content):
        raise Busy("the source changed after it was read")  # the engine reads it again
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
        raise AccessDenied("an object cannot be copied to a bucket of another tenant")


@command(112, weight=weigh_key)
class MoveObject(Command[Copied]):
    """Make the object at *from_key* of *from_bucket* the current version of *key*, and delete *from_key* as a DELETE
    does: a bucket with versioning gets a delete marker. Answers as `CopyObject`.

    This is one command, and not a copy followed by a deletion, so that no write to the source comes between the two.
    Raises as `CopyObject`, and `InvalidArgument` if both names are the same."""

    bucket: str
    key: bytes
    user: int
    root: bool
    from_bucket: str
    from_key: bytes


def move_object(command: MoveObject, tx: Tx) -> Copied:
    if (command.bucket, command.key) == (command.from_bucket, command.from_key):
        raise InvalidArgument(f"{command.key!r} cannot be moved to itself")
    source = Source(command.from_bucket, command.from_key)
    copied = copy_object(CopyObject(command.bucket, command.key, command.user, command.root, source), tx)
    delete_object(DeleteObject(command.from_bucket, command.from_key, command.user, command.root), tx)
    return copied


@command(111, weight=lambda command: 2 + len(command.pieces))
class CopyPart(Command[tuple[int, str | None]]):
    """Make a range of the source a part of an upload: *length* plain bytes from *start* on. The worker knows or has
    computed the digests of the range. Answers (LastModified in ns, the source's version or None).

    Raises as `CopyObject` and `PutPart`, and `InvalidRange` if the source does not have these bytes."""

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
    """The MD5 of the range, in hex."""
    crc64nvme: int
    checksum: str
    """By the upload's algorithm, in Base64; empty if the upload has none."""
    pieces: tuple[Piece, ...] = ()
    """The pieces of the source's body that make up the range, so that the committer need not search all of them;
    `source.content` is that body. Empty if the source is a run, or is copied whole."""


def copy_part(command: CopyPart, tx: Tx) -> tuple[int, str | None]:
    upload = open_upload(tx, command.bucket, command.key, command.upload, command.user, command.root)
    bucket, file, source_version = _source(tx, command.source, command.user, command.root)
    if command.pieces and command.source.content is None:
        raise InvalidArgument("pieces are given without the body that they belong to")
    prefetch_part(tx, upload.id, command.number, [] if command.pieces else _content_row(file))
    to_bucket = locate_key(tx, command.bucket, command.key, command.user, command.root).bucket
    _same_tenant(bucket, to_bucket)
    if command.start < 0 or command.length < 0 or command.start + command.length > file.size:
        raise InvalidRange(f"{command.start}-{command.start + command.length - 1}", file.size)
    shape, content = share(tx, file, command.start, command.length, command.pieces)
    tx.emit(
        PartPut(
            command.bucket, command.key, upload.id, command.number, tx.new_id(), command.length, int(shape), content,
            command.etag, command.crc64nvme, command.checksum, tx.at_ns,
        )
    )  # fmt: skip
    return tx.at_ns, source_version


def share(tx: Tx, file: File, start: int, length: int, known: Sequence[Piece] = ()) -> tuple[int, int]:
    """Return the shape and id of content that consists of *length* plain bytes of the file from *start* on: the file's
    own, or a new body of slices of it. *known*: the pieces of that range; if empty, they are looked up."""
    if length == 0:
        return Shape.NONE, 0
    if length == file.size:
        return file.shape, file.content
    pieces = known or slice_content(tx.rows, file.shape, file.content, start, length)
    if sum(piece.length for piece in pieces) != length:
        raise InvalidArgument("the pieces do not make up the range")
    tx.prefetch([(RUN, (run,)) for run in dict.fromkeys(piece.run for piece in pieces)])
    made = tx.new_id()
    tx.emit(BodyMade(made, tuple((int(Shape.RUN), *piece) for piece in pieces)))
    return Shape.BODY, made


HANDLERS: dict[type[Any], Any] = {CopyObject: copy_object, MoveObject: move_object, CopyPart: copy_part}
