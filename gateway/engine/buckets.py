"""Buckets: make, look at, list, delete, and their versioning."""

from __future__ import annotations

from gateway.engine.base import Counter
from gateway.engine.types import BucketInfo, Caller
from gateway.errors import NoSuchUser
from gateway.identity.credentials import Credential
from gateway.journal.tables import Bucket
from gateway.namespace.bucket_names import check_bucket_name
from gateway.namespace.commands.buckets import DropBucket, MakeBucket, SetVersioning
from gateway.namespace.read import holdings, lookups


class Buckets(Counter):
    def credential(self, access_key: str) -> tuple[str, Caller] | None:
        """The secret of an access key, and who it stands for."""
        found: Credential | None = self._credentials.find(access_key)
        if found is None:
            return None
        return found.secret, Caller(found.user, found.user_id, found.tenant, found.root)

    def user_name(self, user_id: int) -> str | None:
        """The name of a user, None for one that is gone."""
        return lookups.user_name(self._store, user_id)

    async def create_bucket(self, caller: Caller, name: str, region: str) -> BucketInfo:
        """Make a bucket that the caller owns. Raises `InvalidBucketName`, `BucketOwned`, `BucketExists`."""
        check_bucket_name(name)
        made_ns = await self._send(
            MakeBucket(
                name, caller.user_id, caller.user, caller.tenant, region or self._region, self._placing.default.policy
            )
        )
        return BucketInfo(name, region or self._region, made_ns, caller.user_id, 0)

    async def head_bucket(self, caller: Caller, name: str) -> BucketInfo:
        """Raises `NoSuchBucket`, `AccessDenied`."""
        return _info(self._bucket(caller, name))

    async def delete_bucket(self, caller: Caller, name: str) -> None:
        """Raises `NoSuchBucket`, `AccessDenied`, `BucketNotEmpty`."""
        found = self._bucket(caller, name)
        owner = lookups.user_name(self._store, found.owner)
        if owner is None:
            raise NoSuchUser(str(found.owner))
        await self._send(DropBucket(name, caller.user_id, caller.root, owner))

    async def list_buckets(
        self, caller: Caller, prefix: str = "", after: str = "", limit: int = 10_000
    ) -> tuple[list[BucketInfo], str | None]:
        """The caller's buckets (root sees all) by name, and what `after` takes to go on, None behind the last."""
        owner = None if caller.root else caller.user_id
        found, following = holdings.list_buckets(self._store, owner, prefix, after, limit)
        return [_info(each) for each in found], following

    async def set_versioning(self, caller: Caller, bucket: str, versioning: int) -> None:
        """Raises `NoSuchBucket`, `AccessDenied`."""
        await self._send(SetVersioning(bucket, caller.user_id, caller.root, int(versioning)))


def _info(bucket: Bucket) -> BucketInfo:
    return BucketInfo(bucket.name, bucket.region, bucket.made_ns, bucket.owner, bucket.versioning)
