"""Operations on buckets: create, head, list, delete, and set the versioning. And users, by access key or id."""

from __future__ import annotations

from gateway.engine.base import EngineBase
from gateway.engine.types import BucketInfo, Caller
from gateway.errors import NoSuchUser
from gateway.identity.credentials import Credential
from gateway.journal.tables import Bucket, DocumentKind
from gateway.namespace.bucket_names import check_bucket_name
from gateway.namespace.commands.buckets import (
    DropBucket,
    MakeBucket,
    RemoveBucketDocument,
    SetBucketDocument,
    SetVersioning,
)
from gateway.namespace.read import listing_buckets, lookups


class BucketOperations(EngineBase):
    def credential(self, access_key: str) -> tuple[str, Caller] | None:
        """Return the secret of an access key and its user; None if there is no such key, it has expired, or its user
        is disabled."""
        found: Credential | None = self._credentials.find(access_key)
        if found is None or not found.is_accepted(self._journal.timing.clock.wall_ns()):
            return None
        return found.secret, Caller(found.user, found.user_id, found.tenant, found.root)

    def user_name(self, user_id: int) -> str | None:
        """Return the name of a user; None if the user was deleted."""
        return lookups.user_name(self._store, user_id)

    async def create_bucket(self, caller: Caller, name: str, region: str) -> BucketInfo:
        """Create a bucket that the caller owns. Raises `InvalidBucketName`, `BucketOwned`, `BucketExists`."""
        check_bucket_name(name)
        made_ns = await self._send(
            MakeBucket(
                name,
                caller.user_id,
                caller.user,
                caller.tenant,
                region or self._region,
                self._write_targets.default.policy,
            )
        )
        return BucketInfo(name, region or self._region, made_ns, caller.user_id, 0)

    async def head_bucket(self, caller: Caller, name: str) -> BucketInfo:
        """Return the bucket. Raises `NoSuchBucket`, `AccessDenied`."""
        return _info(self._bucket_row(caller, name))

    async def delete_bucket(self, caller: Caller, name: str) -> None:
        """Delete an empty bucket, and the uploads into it. Raises `NoSuchBucket`, `AccessDenied`, `BucketNotEmpty`."""
        found = self._bucket_row(caller, name)
        owner = lookups.user_name(self._store, found.owner)
        if owner is None:
            raise NoSuchUser(str(found.owner))
        await self._send(DropBucket(name, *caller.acting_in(name), owner))

    async def list_buckets(
        self, caller: Caller, prefix: str = "", after: str = "", limit: int = 10_000
    ) -> tuple[list[BucketInfo], str | None]:
        """Return the caller's buckets, sorted by name (all buckets for a root user), and the value of *after* for the
        next page; None after the last page."""
        owner = None if caller.root else caller.user_id
        found, following = listing_buckets.list_buckets(self._store, owner, prefix, after, limit)
        return [_info(each) for each in found], following

    async def set_versioning(self, caller: Caller, bucket: str, versioning: int) -> None:
        """Set the versioning state. Raises `NoSuchBucket`, `AccessDenied`."""
        await self._send(SetVersioning(bucket, *caller.acting_in(bucket), int(versioning)))

    async def bucket_document(self, caller: Caller, bucket: str, kind: DocumentKind) -> bytes | None:
        """Return a document of the bucket; None if it has none of this kind. Raises `NoSuchBucket`, `AccessDenied`."""
        return self._bucket_summary(caller, bucket).documents.get(kind)

    def public_document(self, bucket: str, kind: DocumentKind) -> bytes | None:
        """Return a document that is no secret, such as CORS rules; None if there is none, or no such bucket."""
        found = self._buckets.find(bucket)
        return found.documents.get(kind) if found is not None else None

    async def set_bucket_document(self, caller: Caller, bucket: str, kind: DocumentKind, document: bytes) -> None:
        """Store a document of the bucket, which the caller has checked. Once this returns, all processes use it.

        Raises `NoSuchBucket`, `AccessDenied`, and `InvalidArgument` for an empty or too long document."""
        await self._send(SetBucketDocument(bucket, *caller.acting_in(bucket), int(kind), document))

    async def remove_bucket_document(self, caller: Caller, bucket: str, kind: DocumentKind) -> None:
        """Remove a document of the bucket, if it has one of this kind. Raises `NoSuchBucket`, `AccessDenied`."""
        await self._send(RemoveBucketDocument(bucket, *caller.acting_in(bucket), int(kind)))


def _info(bucket: Bucket) -> BucketInfo:
    return BucketInfo(bucket.name, bucket.region, bucket.made_ns, bucket.owner, bucket.versioning)
