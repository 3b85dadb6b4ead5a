"""Commands on buckets. They work on rows in memory only."""

from __future__ import annotations

from typing import Any

from gateway.errors import BucketExists, BucketNotEmpty, BucketOwned, Busy, InvalidArgument, NoSuchUser
from gateway.journal.columns import unpack_map
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.tree import (
    BucketDeleted,
    BucketDeletedWithUploads,
    BucketDocumentRemoved,
    BucketDocumentSet,
    BucketMade,
    BucketOwnerSet,
    BucketSettingsSet,
    BucketVersioningSet,
)
from gateway.journal.rows import require
from gateway.journal.tables import BUCKET, BUCKET_DOCUMENTS, DIR, USER, DocumentKind, User, Versioning
from gateway.namespace.paths import bucket_of

LEAVING_FEATURE = 3
"""The journal's feature level that is needed to delete a bucket while uploads into it are open."""
OWNER_FEATURE = 12
"""The journal's feature level that is needed to give a bucket another owner."""
DOCUMENTS_FEATURE = 13
"""The journal's feature level that is needed for the documents of buckets."""
DOCUMENT_BYTES_MAX = 64 << 10
"""The most bytes of one document. S3's largest are CORS rules, with 64 KiB."""


@command(105)
class MakeBucket(Command[int]):
    """Make an empty bucket that belongs to *owner* (a user's name; *user* is its id). The engine has checked the
    bucket's name. Answers the time of creation in ns.

    Raises `BucketOwned`, `BucketExists`, `NoSuchUser`."""

    bucket: str
    user: int
    owner: str
    tenant: int
    region: str
    policy: int


def make_bucket(command: MakeBucket, tx: Tx) -> int:
    tx.prefetch([(BUCKET, (command.bucket,)), (USER, (command.owner,))])
    existing = tx.get(BUCKET, (command.bucket,))
    if existing is not None:
        raise (BucketOwned if existing.owner == command.user else BucketExists)(command.bucket)
    owner = tx.get(USER, (command.owner,))
    if owner is None or owner.id != command.user:
        raise NoSuchUser(command.owner)
    tx.emit(
        BucketMade(
            command.bucket, tx.new_id(), tx.new_id(), command.tenant, command.owner, command.user, command.region,
            command.policy, tx.at_ns,
        )
    )  # fmt: skip
    return tx.at_ns


@command(106, frees=True)
class DropBucket(Command[None]):
    """Delete an empty bucket. *owner* is the name of its owner, who need not be the caller. Answers None.

    Open uploads do not prevent this. Clients cannot reach them any more, and `CutUploadsOff` aborts them afterwards, a
    bounded number at a time. Raises `BucketNotEmpty` if the bucket has a version of any object."""

    bucket: str
    user: int
    root: bool
    owner: str


def drop_bucket(command: DropBucket, tx: Tx) -> None:
    tx.prefetch([(BUCKET, (command.bucket,)), (USER, (command.owner,))])
    bucket = bucket_of(tx, command.bucket, command.user, command.root)
    owner = tx.get(USER, (command.owner,))
    if owner is None or owner.id != bucket.owner:
        raise NoSuchUser(command.owner)
    tx.get(BUCKET_DOCUMENTS, (bucket.id,))
    if bucket.versions or require(tx.rows, DIR, (bucket.root,)).entries:
        raise BucketNotEmpty(command.bucket)
    if not bucket.uploads:
        tx.emit(BucketDeleted(command.bucket, command.owner))
        return
    tx.need_feature(LEAVING_FEATURE)
    tx.emit(BucketDeletedWithUploads(command.bucket, command.owner, tx.new_id()))


@command(107)
class SetVersioning(Command[None]):
    """Set versioning to ENABLED or SUSPENDED; it can never be OFF again. Answers None. Raises `InvalidArgument`."""

    bucket: str
    user: int
    root: bool
    versioning: int


def set_versioning(command: SetVersioning, tx: Tx) -> None:
    bucket = bucket_of(tx, command.bucket, command.user, command.root)
    if command.versioning == bucket.versioning:
        return
    if command.versioning not in (Versioning.ENABLED, Versioning.SUSPENDED):
        raise InvalidArgument("the versioning of a bucket can be enabled or suspended, but not removed")
    tx.emit(BucketVersioningSet(command.bucket, command.versioning))


@command(108)
class SetBucketSettings(Command[None]):
    """Replace the bucket's settings by a packed map. Answers None."""

    bucket: str
    user: int
    root: bool
    settings: bytes


def set_bucket_settings(command: SetBucketSettings, tx: Tx) -> None:
    bucket_of(tx, command.bucket, command.user, command.root)
    tx.emit(BucketSettingsSet(command.bucket, command.settings))


@command(170)
class SetBucketDocument(Command[None]):
    """Store the document *kind* (a `tables.DocumentKind`) of a bucket, in the place of the former one. The engine has
    checked the document. Answers None.

    Raises `NoSuchBucket`, `AccessDenied`, and `InvalidArgument` for an unknown kind or a document that is empty or
    longer than `DOCUMENT_BYTES_MAX`."""

    bucket: str
    user: int
    root: bool
    kind: int
    document: bytes


def set_bucket_document(command: SetBucketDocument, tx: Tx) -> None:
    bucket = bucket_of(tx, command.bucket, command.user, command.root)
    if command.kind not in DocumentKind.__members__.values():
        raise InvalidArgument(f"a bucket has no document of kind {command.kind}")
    if not 0 < len(command.document) <= DOCUMENT_BYTES_MAX:
        raise InvalidArgument(f"a document of {len(command.document)} bytes; 1 to {DOCUMENT_BYTES_MAX} are allowed")
    found = tx.get(BUCKET_DOCUMENTS, (bucket.id,))
    if found is not None and unpack_map(found.documents).get(command.kind) == command.document:
        return
    tx.need_feature(DOCUMENTS_FEATURE)
    tx.emit(BucketDocumentSet(command.bucket, command.kind, command.document))


@command(171, frees=True)
class RemoveBucketDocument(Command[None]):
    """Remove the document *kind* of a bucket, if it has one. Answers None. Raises `NoSuchBucket`, `AccessDenied`."""

    bucket: str
    user: int
    root: bool
    kind: int


def remove_bucket_document(command: RemoveBucketDocument, tx: Tx) -> None:
    bucket = bucket_of(tx, command.bucket, command.user, command.root)
    found = tx.get(BUCKET_DOCUMENTS, (bucket.id,))
    if found is not None and command.kind in unpack_map(found.documents):
        tx.emit(BucketDocumentRemoved(command.bucket, command.kind))


@command(172)
class TransferBucket(Command[None]):
    """Give a bucket another owner. *former_owner* and *owner* are names of users. Answers None.

    Its policy and PublicAccessBlock are removed, since the former owner may have allowed something to itself. The
    owners of objects stay as they are. Raises `NoSuchBucket`, `NoSuchUser`, and `Busy` if *former_owner* is no
    longer the bucket's owner."""

    bucket: str
    former_owner: str
    owner: str


def transfer_bucket(command: TransferBucket, tx: Tx) -> None:
    tx.prefetch([(BUCKET, (command.bucket,)), (USER, (command.former_owner,)), (USER, (command.owner,))])
    bucket = bucket_of(tx, command.bucket, 0, root=True)
    former, owner = _user(tx, command.former_owner), _user(tx, command.owner)
    if former.id != bucket.owner:
        raise Busy(f"the owner of {command.bucket} has just changed")
    if owner.id != former.id:
        tx.need_feature(OWNER_FEATURE)
        found = tx.get(BUCKET_DOCUMENTS, (bucket.id,))
        kinds = unpack_map(found.documents) if found is not None else {}
        for kind in (DocumentKind.POLICY, DocumentKind.PUBLIC_ACCESS_BLOCK):
            if kind in kinds:
                tx.emit(BucketDocumentRemoved(command.bucket, int(kind)))
        tx.emit(BucketOwnerSet(command.bucket, command.former_owner, command.owner, owner.id))


def _user(tx: Tx, name: str) -> User:
    user = tx.get(USER, (name,))
    if user is None:
        raise NoSuchUser(name)
    return user


HANDLERS: dict[type[Any], Any] = {
    MakeBucket: make_bucket,
    DropBucket: drop_bucket,
    SetVersioning: set_versioning,
    SetBucketSettings: set_bucket_settings,
    SetBucketDocument: set_bucket_document,
    RemoveBucketDocument: remove_bucket_document,
    TransferBucket: transfer_bucket,
}
