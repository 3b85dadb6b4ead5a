"""What buckets and users store, from the counters in the rows of buckets. No object is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.errors import NoSuchBucket, NoSuchUser

if TYPE_CHECKING:
    from gateway.journal.sqlite.read_store import ReadStore

_COLUMNS = "u.name, b.objects, b.versions, b.size, b.uploads FROM bucket b LEFT JOIN user u ON u.id = b.owner"
_SUMS = (
    "coalesce(sum(b.objects), 0), coalesce(sum(b.versions), 0), coalesce(sum(b.size), 0), coalesce(sum(b.uploads), 0)"
)


class BucketUsage(NamedTuple):
    """What one bucket stores."""

    bucket: str
    owner: str
    """The owner's name."""
    objects: int
    """Names whose current version is an object."""
    versions: int
    """Versions of all names, including delete markers."""
    bytes: int
    """Plain bytes of all versions, as clients sent them."""
    uploads: int
    """Open multipart uploads. Their parts are not counted in `bytes`."""


class UserUsage(NamedTuple):
    """What the buckets of one user store together. The numbers are those of `BucketUsage`."""

    user: str
    buckets: int
    objects: int
    versions: int
    bytes: int
    uploads: int


class LargestBuckets(NamedTuple):
    """The buckets that store most, and what all others store together."""

    largest: list[BucketUsage]
    other_objects: int
    other_bytes: int


def bucket_usage(store: ReadStore, bucket: str | None = None, user: str | None = None) -> list[BucketUsage]:
    """Return the usage of all buckets, of one bucket, or of one user's buckets; those with most bytes first.

    Raises `NoSuchBucket`, `NoSuchUser`."""
    statement = f"SELECT b.name, {_COLUMNS}"
    if bucket is not None:
        rows = store.query(f"{statement} WHERE b.name = ?", (bucket,))
        if not rows:
            raise NoSuchBucket(bucket)
    elif user is not None:
        rows = store.query(f"{statement} WHERE b.owner = ? ORDER BY b.size DESC, b.name", (_user_id(store, user),))
    else:
        rows = store.query(f"{statement} ORDER BY b.size DESC, b.name")
    return [BucketUsage(name, owner or "", *counts) for name, owner, *counts in rows]


def user_usage(store: ReadStore, user: str | None = None) -> list[UserUsage]:
    """Return the usage of each user, or of one; those with most bytes first. Raises `NoSuchUser`."""
    where = "" if user is None else f"WHERE u.id = {_user_id(store, user)}"
    rows = store.query(
        f"SELECT u.name, count(b.id), {_SUMS} FROM user u LEFT JOIN bucket b ON b.owner = u.id {where} "
        "GROUP BY u.id ORDER BY sum(b.size) DESC, u.name"
    )
    return [UserUsage._make(row) for row in rows]


def largest_buckets(store: ReadStore, count: int) -> LargestBuckets:
    """Return the *count* buckets with most bytes, and the sums of all others."""
    with store.snapshot():
        rows = store.query(f"SELECT b.name, {_COLUMNS} ORDER BY b.size DESC, b.name LIMIT ?", (count,))
        objects, size = store.query("SELECT coalesce(sum(objects), 0), coalesce(sum(size), 0) FROM bucket")[0]
    largest = [BucketUsage(name, owner or "", *counts) for name, owner, *counts in rows]
    return LargestBuckets(
        largest, objects - sum(each.objects for each in largest), size - sum(each.bytes for each in largest)
    )


def _user_id(store: ReadStore, name: str) -> int:
    rows = store.query("SELECT id FROM user WHERE name = ?", (name,))
    if not rows:
        raise NoSuchUser(name)
    return int(rows[0][0])
