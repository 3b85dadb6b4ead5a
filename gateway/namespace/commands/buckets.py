"""Commands on buckets. They work on rows in memory only."""

from __future__ import annotations

from typing import Any

from gateway.errors import BucketExists, BucketNotEmpty, BucketOwned, InvalidArgument, NoSuchUser
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.tree import (
    BucketDeleted,
    BucketDeletedWithUploads,
    BucketMade,
    BucketSettingsSet,
    BucketVersioningSet,
)
from gateway.journal.rows import require
from gateway.journal.tables import BUCKET, DIR, USER, Versioning
from gateway.namespace.paths import bucket_of

LEAVING_FEATURE = 3
"""The journal's level that a bucket needs to go before the uploads into it."""


@command(105)
class MakeBucket(Command[int]):
    """An empty bucket that *owner* (a user's name; *user* is its id) owns. The engine
    checks the name before. Answers the time of creation in ns.

    Raises `BucketOwned`, `BucketExists`, `NoSuchUser`."""

    bucket: str
    user: int
    owner: str
    tenant: int
    region: str
    policy: int


def make_bucket(asked: MakeBucket, tx: Tx) -> int:
    tx.prefetch([(BUCKET, (asked.bucket,)), (USER, (asked.owner,))])
    there = tx.get(BUCKET, (asked.bucket,))
    if there is not None:
        raise (BucketOwned if there.owner == asked.user else BucketExists)(asked.bucket)
    owner = tx.get(USER, (asked.owner,))
    if owner is None or owner.id != asked.user:
        raise NoSuchUser(asked.owner)
    tx.emit(
        BucketMade(
            asked.bucket, tx.new_id(), tx.new_id(), asked.tenant, asked.owner, asked.user, asked.region, asked.policy,
            tx.at_ns,
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


def drop_bucket(asked: DropBucket, tx: Tx) -> None:
    tx.prefetch([(BUCKET, (asked.bucket,)), (USER, (asked.owner,))])
    bucket = bucket_of(tx, asked.bucket, asked.user, asked.root)
    owner = tx.get(USER, (asked.owner,))
    if owner is None or owner.id != bucket.owner:
        raise NoSuchUser(asked.owner)
    if bucket.versions or require(tx.rows, DIR, (bucket.root,)).entries:
        raise BucketNotEmpty(asked.bucket)
    if not bucket.uploads:
        tx.emit(BucketDeleted(asked.bucket, asked.owner))
        return
    tx.need_feature(LEAVING_FEATURE)
    tx.emit(BucketDeletedWithUploads(asked.bucket, asked.owner, tx.new_id()))


@command(107)
class SetVersioning(Command[None]):
    """Set versioning to ENABLED or SUSPENDED; it can never be OFF again. Answers None. Raises `InvalidArgument`."""

    bucket: str
    user: int
    root: bool
    versioning: int


def set_versioning(asked: SetVersioning, tx: Tx) -> None:
    bucket = bucket_of(tx, asked.bucket, asked.user, asked.root)
    if asked.versioning == bucket.versioning:
        return
    if asked.versioning not in (Versioning.ENABLED, Versioning.SUSPENDED):
        raise InvalidArgument("a bucket's versioning can be enabled or suspended, not taken away")
    tx.emit(BucketVersioningSet(asked.bucket, asked.versioning))


@command(108)
class SetBucketSettings(Command[None]):
    """The bucket's packed map of settings. Answers None."""

    bucket: str
    user: int
    root: bool
    settings: bytes


def set_bucket_settings(asked: SetBucketSettings, tx: Tx) -> None:
    bucket_of(tx, asked.bucket, asked.user, asked.root)
    tx.emit(BucketSettingsSet(asked.bucket, asked.settings))


HANDLERS: dict[type[Any], Any] = {
    MakeBucket: make_bucket,
    DropBucket: drop_bucket,
    SetVersioning: set_versioning,
    SetBucketSettings: set_bucket_settings,
}
