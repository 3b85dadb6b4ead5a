"""Commands on multipart uploads, except completion (`complete.py`). They work on rows in memory only.

An upload is open until it is completed or aborted. Its row is kept for a while after that, so that a repeated
completion gets the same answer. Parts that no object took over are deleted afterwards, a bounded number at a time.

An upload's row has its bucket's name, which another bucket may have later; but ids ascend, so an upload whose id is
below the bucket's belongs to a deleted bucket. Code that finds an upload by name must compare the two.
"""

from __future__ import annotations

from typing import Any

from gateway.errors import InvalidArgument, NoSuchUpload
from gateway.journal.columns import Extent, UploadAt
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.bytes import NewBlock, RunMade
from gateway.journal.records.uploads import (
    PartPut,
    PartsDropped,
    UploadEnded,
    UploadForgotten,
    UploadMade,
    UploadsAborted,
)
from gateway.journal.rows import RowKey
from gateway.journal.tables import BLOCK, BUCKET, DELETED_BUCKET, PART, UPLOAD, Shape, Upload, UploadState
from gateway.namespace.keys import check_new_key
from gateway.namespace.paths import bucket_of, weigh_key
from gateway.namespace.version_ids import encode_version_id, parse_upload_id

PARTS = 10_000
"""The highest part number; the lowest is 1."""


@command(120)
class CreateUpload(Command[str]):
    """Begin an upload for *key*. Answers its id as text. Raises `NoSuchBucket`, `AccessDenied`, `InvalidKey`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    checksum: str
    """The algorithm of its parts' checksums, or empty."""
    checksum_type: str
    """COMPOSITE, FULL_OBJECT, or empty."""
    headers: bytes
    """packed, as in `File`; so are *tags*."""
    tags: bytes


def create_upload(command: CreateUpload, tx: Tx) -> str:
    check_new_key(command.key)
    bucket_of(tx, command.bucket, command.user, command.root)
    made = tx.new_id()
    tx.emit(
        UploadMade(
            command.bucket, command.key, made, command.user, command.checksum, command.checksum_type, command.headers,
            command.tags, tx.at_ns, tx.site_ns,
        )
    )  # fmt: skip
    return encode_version_id(made)


def any_upload(
    tx: Tx, name: str, key: bytes, upload: str, user: int, root: bool, also: list[RowKey] | None = None
) -> Upload:
    """Return the upload, open or ended, in a bucket that *user* may use. The rows of *also* are loaded with it.

    Raises `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`."""
    at = (UPLOAD, (name, key, number_of(tx, name, upload, user, root)))
    tx.prefetch([(BUCKET, (name,)), at, *(also or ())])
    bucket = bucket_of(tx, name, user, root)
    row = tx.get(*at)
    if row is None or row.id < bucket.id:  # it belongs to a deleted bucket of that name
        raise NoSuchUpload(upload)
    return row


def number_of(tx: Tx, name: str, upload: str, user: int, root: bool) -> int:
    """Return the id of an upload from its text. Raises `NoSuchUpload` for a text that is no id, and before that the
    errors about the bucket, as `any_upload` does."""
    try:
        return parse_upload_id(upload)
    except NoSuchUpload:
        tx.prefetch([(BUCKET, (name,))])
        bucket_of(tx, name, user, root)
        raise


def open_upload(
    tx: Tx, name: str, key: bytes, upload: str, user: int, root: bool, also: list[RowKey] | None = None
) -> Upload:
    """Return an open upload. Raises as `any_upload`, and `NoSuchUpload` for an upload that has ended."""
    row = any_upload(tx, name, key, upload, user, root, also)
    if row.state != UploadState.OPEN:
        raise NoSuchUpload(upload)
    return row


def prefetch_part(tx: Tx, upload: int, number: int, also: list[RowKey] | None = None) -> None:
    """Prefetch the part that is to be replaced. Raises `InvalidArgument` for a number that no part may have."""
    if not 1 <= number <= PARTS:
        raise InvalidArgument(f"a part number must be 1 to {PARTS}, not {number}")
    tx.prefetch([(PART, (upload, number)), *(also or ())])


@command(121, weight=weigh_key)
class PutPart(Command[int]):
    """Make the bytes in *extents* a part, which replaces one of the same number. Answers LastModified in ns.

    Raises `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `InvalidArgument`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    upload: str
    number: int
    size: int
    etag: str
    """The MD5 of the part, in hex."""
    extents: tuple[Extent, ...]
    blocks: tuple[NewBlock, ...]
    policy: int
    crc64nvme: int
    checksum: str
    """By the upload's algorithm, in Base64; empty if the upload has none."""


def put_part(command: PutPart, tx: Tx) -> int:
    also: list[RowKey] = [(BLOCK, (block.id,)) for block in command.blocks]
    also.append((PART, (parse_upload_id(command.upload), command.number)))
    upload = open_upload(tx, command.bucket, command.key, command.upload, command.user, command.root, also)
    prefetch_part(tx, upload.id, command.number)
    shape, content = Shape.NONE, 0
    if command.extents:
        shape, content = Shape.RUN, tx.new_id()
        tx.emit(RunMade(content, command.policy, command.extents, command.blocks))
    tx.emit(
        PartPut(
            command.bucket, command.key, upload.id, command.number, tx.new_id(), command.size, int(shape), content,
            command.etag, command.crc64nvme, command.checksum, tx.at_ns,
        )
    )  # fmt: skip
    return tx.at_ns


@command(123, frees=True)
class AbortUpload(Command[None]):
    """End the upload; its parts are deleted afterwards. Answers None. Raises `NoSuchBucket`, `AccessDenied`,
    `NoSuchUpload`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    upload: str


def abort_upload(command: AbortUpload, tx: Tx) -> None:
    upload = open_upload(tx, command.bucket, command.key, command.upload, command.user, command.root)
    tx.emit(UploadEnded(command.bucket, command.key, upload.id, int(UploadState.ABORTED), b"", tx.at_ns, tx.site_ns))


@command(124, frees=True, weight=lambda command: len(command.numbers))
class DropParts(Command[int]):
    """Delete these parts of an ended upload and release their contents. The release worker sends it. Answers how many
    parts are left.

    Parts that were deleted already are skipped. Raises `InvalidArgument` while the upload is open."""

    bucket: str
    key: bytes
    upload: int
    numbers: tuple[int, ...]


def drop_parts(command: DropParts, tx: Tx) -> int:
    tx.prefetch(
        [
            (UPLOAD, (command.bucket, command.key, command.upload)),
            *((PART, (command.upload, n)) for n in command.numbers),
        ]
    )
    row = tx.get(UPLOAD, (command.bucket, command.key, command.upload))
    if row is None:
        return 0
    if row.state == UploadState.OPEN:
        raise InvalidArgument("parts of an open upload cannot be deleted")
    present = tuple(n for n in dict.fromkeys(command.numbers) if tx.get(PART, (command.upload, n)) is not None)
    if present:
        tx.emit(PartsDropped(command.bucket, command.key, command.upload, present))
    return row.parts - len(present)


@command(125, frees=True)
class ForgetUpload(Command[bool]):
    """Delete the row of an ended upload without parts; a repeated completion fails from then on. The release worker
    sends it. Answers whether the row is deleted now."""

    bucket: str
    key: bytes
    upload: int


def forget_upload(command: ForgetUpload, tx: Tx) -> bool:
    row = tx.get(UPLOAD, (command.bucket, command.key, command.upload))
    if row is None:
        return True
    if row.state == UploadState.OPEN or row.parts:
        return False
    tx.emit(UploadForgotten(command.bucket, command.key, command.upload))
    return True


@command(126, frees=True, weight=lambda command: len(command.uploads))
class CutUploadsOff(Command[int]):
    """Abort these uploads of the deleted bucket with the id *bucket*; their parts are deleted afterwards. The expiry
    worker sends it. Answers how many other uploads of the bucket are still open. Ended uploads are skipped."""

    bucket: int
    uploads: tuple[UploadAt, ...]


def cut_uploads_off(command: CutUploadsOff, tx: Tx) -> int:
    gone = tx.get(DELETED_BUCKET, (command.bucket,))
    if gone is None:
        return 0
    tx.prefetch([(UPLOAD, (gone.name, *at)) for at in command.uploads])
    its_own = (at for at in dict.fromkeys(command.uploads) if gone.id < at.id < gone.before)
    rows = ((at, tx.get(UPLOAD, (gone.name, *at))) for at in its_own)
    still_open = tuple(at for at, row in rows if row is not None and row.state == UploadState.OPEN)
    if still_open:
        tx.emit(UploadsAborted(gone.id, gone.name, still_open, tx.at_ns, tx.site_ns))
    return gone.uploads - len(still_open)


HANDLERS: dict[type[Any], Any] = {
    CreateUpload: create_upload,
    PutPart: put_part,
    AbortUpload: abort_upload,
    DropParts: drop_parts,
    ForgetUpload: forget_upload,
    CutUploadsOff: cut_uploads_off,
}
