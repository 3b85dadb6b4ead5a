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
    """An upload for *key*. Answers its id as text. Raises `NoSuchBucket`, `AccessDenied`, `InvalidKey`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    checksum: str
    """The algorithm that its parts carry, or empty."""
    checksum_type: str
    """COMPOSITE, FULL_OBJECT, or empty."""
    headers: bytes
    """packed, as in `File`; so are *tags*."""
    tags: bytes


def create_upload(asked: CreateUpload, tx: Tx) -> str:
    check_new_key(asked.key)
    bucket_of(tx, asked.bucket, asked.user, asked.root)
    made = tx.new_id()
    tx.emit(
        UploadMade(
            asked.bucket, asked.key, made, asked.user, asked.checksum, asked.checksum_type, asked.headers, asked.tags,
            tx.at_ns, tx.site_ns,
        )
    )  # fmt: skip
    return encode_version_id(made)


def any_upload(
    tx: Tx, name: str, key: bytes, upload: str, user: int, root: bool, also: list[RowKey] | None = None
) -> Upload:
    """The upload, open or ended, in a bucket that *user* may use. *also* is loaded with it.

    Raises `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`."""
    at = (UPLOAD, (name, key, number_of(tx, name, upload, user, root)))
    tx.prefetch([(BUCKET, (name,)), at, *(also or ())])
    bucket = bucket_of(tx, name, user, root)
    row = tx.get(*at)
    if row is None or row.id < bucket.id:  # a bucket of that name that is gone had it
        raise NoSuchUpload(upload)
    return row


def number_of(tx: Tx, name: str, upload: str, user: int, root: bool) -> int:
    """The id of an upload. Raises `NoSuchUpload` for what cannot be one; but whether there is a bucket, and whose,
    comes first, as in `any_upload`."""
    try:
        return parse_upload_id(upload)
    except NoSuchUpload:
        tx.prefetch([(BUCKET, (name,))])
        bucket_of(tx, name, user, root)
        raise


def open_upload(
    tx: Tx, name: str, key: bytes, upload: str, user: int, root: bool, also: list[RowKey] | None = None
) -> Upload:
    """As `any_upload`; an ended one raises `NoSuchUpload` too."""
    row = any_upload(tx, name, key, upload, user, root, also)
    if row.state != UploadState.OPEN:
        raise NoSuchUpload(upload)
    return row


def want_part(tx: Tx, upload: int, number: int, also: list[RowKey] | None = None) -> None:
    """Ask for the part that is replaced. Raises `InvalidArgument` for a number that no part has."""
    if not 1 <= number <= PARTS:
        raise InvalidArgument(f"a part number is 1 to {PARTS}, not {number}")
    tx.prefetch([(PART, (upload, number)), *(also or ())])


@command(121, weight=weigh_key)
class PutPart(Command[int]):
    """The bytes in *extents* become a part, instead of one of the same number. Answers LastModified in ns.

    Raises `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `InvalidArgument`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    upload: str
    number: int
    size: int
    etag: str
    """MD5, hex."""
    extents: tuple[Extent, ...]
    blocks: tuple[NewBlock, ...]
    policy: int
    crc64nvme: int
    checksum: str
    """Base64, of the upload's algorithm, or empty."""


def put_part(asked: PutPart, tx: Tx) -> int:
    also: list[RowKey] = [(BLOCK, (block.id,)) for block in asked.blocks]
    also.append((PART, (parse_upload_id(asked.upload), asked.number)))
    upload = open_upload(tx, asked.bucket, asked.key, asked.upload, asked.user, asked.root, also)
    want_part(tx, upload.id, asked.number)
    shape, content = Shape.NONE, 0
    if asked.extents:
        shape, content = Shape.RUN, tx.new_id()
        tx.emit(RunMade(content, asked.policy, asked.extents, asked.blocks))
    tx.emit(
        PartPut(
            asked.bucket, asked.key, upload.id, asked.number, tx.new_id(), asked.size, int(shape), content, asked.etag,
            asked.crc64nvme, asked.checksum, tx.at_ns,
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


def abort_upload(asked: AbortUpload, tx: Tx) -> None:
    upload = open_upload(tx, asked.bucket, asked.key, asked.upload, asked.user, asked.root)
    tx.emit(UploadEnded(asked.bucket, asked.key, upload.id, int(UploadState.ABORTED), b"", tx.at_ns, tx.site_ns))


@command(124, frees=True, weight=lambda asked: len(asked.numbers))
class DropParts(Command[int]):
    """Delete these parts of an ended upload and release their contents. The release worker sends it. Answers how many
    parts are left.

    Parts that were deleted already are skipped. Raises `InvalidArgument` while the upload is open."""

    bucket: str
    key: bytes
    upload: int
    numbers: tuple[int, ...]


def drop_parts(asked: DropParts, tx: Tx) -> int:
    tx.prefetch(
        [(UPLOAD, (asked.bucket, asked.key, asked.upload)), *((PART, (asked.upload, n)) for n in asked.numbers)]
    )
    row = tx.get(UPLOAD, (asked.bucket, asked.key, asked.upload))
    if row is None:
        return 0
    if row.state == UploadState.OPEN:
        raise InvalidArgument("parts of an open upload are not dropped")
    there = tuple(n for n in dict.fromkeys(asked.numbers) if tx.get(PART, (asked.upload, n)) is not None)
    if there:
        tx.emit(PartsDropped(asked.bucket, asked.key, asked.upload, there))
    return row.parts - len(there)


@command(125, frees=True)
class ForgetUpload(Command[bool]):
    """Delete the row of an ended upload without parts; a repeated completion fails from then on. The release worker
    sends it. Answers whether the row is deleted now."""

    bucket: str
    key: bytes
    upload: int


def forget_upload(asked: ForgetUpload, tx: Tx) -> bool:
    row = tx.get(UPLOAD, (asked.bucket, asked.key, asked.upload))
    if row is None:
        return True
    if row.state == UploadState.OPEN or row.parts:
        return False
    tx.emit(UploadForgotten(asked.bucket, asked.key, asked.upload))
    return True


@command(126, frees=True, weight=lambda asked: len(asked.uploads))
class CutUploadsOff(Command[int]):
    """Abort these uploads of the deleted bucket with the id *bucket*; their parts are deleted afterwards. The expiry
    worker sends it. Answers how many other uploads of the bucket are still open. Ended uploads are skipped."""

    bucket: int
    uploads: tuple[UploadAt, ...]


def cut_uploads_off(asked: CutUploadsOff, tx: Tx) -> int:
    gone = tx.get(DELETED_BUCKET, (asked.bucket,))
    if gone is None:
        return 0
    tx.prefetch([(UPLOAD, (gone.name, *at)) for at in asked.uploads])
    its_own = (at for at in dict.fromkeys(asked.uploads) if gone.id < at.id < gone.before)
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
