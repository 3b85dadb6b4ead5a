"""Bucket policies: storing them, and deciding by them who may use a bucket.

Without a policy, a bucket's owner and root users may do everything there, and nobody else may do anything. A policy may
allow more to others, and deny something to everybody, except that the owner and root users can always read and replace
the policy itself. `s3api/authorize.py` asks before each
operation of S3, `gateway/posix/in_process.py` before each call of the file API.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import NamedTuple

from gateway.access.parse import parse_bucket_policy
from gateway.access.policy import Policy
from gateway.access.request import AccessRequest, Context, Values
from gateway.engine.buckets import BucketOperations
from gateway.engine.types import Caller, PublicAccessBlock
from gateway.errors import AccessDenied, NoSuchBucket
from gateway.journal.columns import pack, unpack, unpack_map
from gateway.journal.tables import DocumentKind
from gateway.namespace.read import lookups
from gateway.namespace.read.lookups import BucketSummary

POLICY_ACTIONS = frozenset({"s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"})
"""No policy denies these to the bucket's owner and to root users. Otherwise a wrong policy could not be replaced."""
_COMPILED_MAX = 128
"""Compiled policies that a process keeps. One takes some kilobytes, and at most some hundred."""

_NO_CONTEXT: Mapping[str, Values] = {}


class _StoredPolicy(NamedTuple):
    """A bucket policy as it is stored."""

    text: bytes
    users: Mapping[str, int]
    """The ids of the users that it names, as of when it was stored: a later user of the same name is another one."""


class BucketPolicyOperations(BucketOperations):
    """Bucket policies and PublicAccessBlock."""

    def granted_by_policy(
        self,
        caller: Caller,
        action: str,
        bucket: str,
        key: bytes | None = None,
        version: str | None = None,
        context: Context | None = None,
    ) -> int:
        """Return the id of the bucket's owner if its policy grants *action*, on the bucket or on *key* in it, to a
        caller who is not the owner: the caller may put both into `Caller.granted`. Otherwise return 0. Owners and root
        users need no grant, and the operation itself checks that its caller owns the bucket.

        *context*: the condition keys, in the place of `Caller.context`. Raises `AccessDenied` if the policy denies the
        action, also to the owner."""
        found = self._buckets.find(bucket)
        if found is None or DocumentKind.POLICY not in found.documents:
            return 0
        owns = caller.root or caller.user_id == found.owner
        if owns and action in POLICY_ACTIONS:
            return 0
        policy = _compiled(found.documents[DocumentKind.POLICY], bucket)
        if owns and not policy.denying:
            return 0
        arn = f"arn:aws:s3:::{bucket}"
        resource = arn if key is None else f"{arn}/{key.decode('utf-8', 'surrogateescape')}"
        tags = None if key is None else partial(self.stored_tags, bucket, key, version)
        request = AccessRequest(caller.user_id, action, resource, context or caller.context or _NO_CONTEXT, tags)
        if policy.denies(request):
            raise AccessDenied(f"the policy of {bucket} denies {action} to {caller.user or 'anonymous requests'}")
        granted = not owns and policy.allows(request) and not self._is_restricted(caller, found, policy)
        return found.owner if granted else 0

    def check_all_keys(self, caller: Caller, bucket: str) -> None:
        """Check that no policy keeps *caller* from any key of the bucket, for a command that changes keys without
        looking at each. Raises `AccessDenied`."""
        found = self._buckets.find(bucket)
        if found is None or DocumentKind.POLICY not in found.documents:
            return
        owns = caller.root or caller.user_id == found.owner
        if not owns or _compiled(found.documents[DocumentKind.POLICY], bucket).denying:
            raise AccessDenied(f"only the owner of {bucket} may do this, and only if its policy denies nothing")

    def _is_restricted(self, caller: Caller, bucket: BucketSummary, policy: Policy) -> bool:
        """Whether RestrictPublicBuckets keeps an anonymous caller from what a public policy allows."""
        return caller.user_id == 0 and _public_access_block(bucket).restrict_public_buckets and policy.is_public

    def stored_tags(self, bucket: str, key: bytes, version: str | None) -> Mapping[str, str]:
        """Return the tags of an object, for the conditions of policies; none if there is no such object."""
        try:
            found = lookups.find(self._store, bucket, key, version or "", content=False)
        except NoSuchBucket:
            return {}
        return unpack_map(found.file.tags) if found is not None and found.file is not None else {}

    async def get_bucket_policy(self, caller: Caller, bucket: str) -> bytes | None:
        """Return the text of the bucket's policy; None if it has none. Raises `NoSuchBucket`, `AccessDenied`."""
        stored = self._bucket_summary(caller, bucket).documents.get(DocumentKind.POLICY)
        return None if stored is None else _read_stored(stored).text

    async def bucket_policy_is_public(self, caller: Caller, bucket: str) -> bool | None:
        """Return whether the bucket's policy is public; None if it has none. Raises `NoSuchBucket`, `AccessDenied`."""
        stored = self._bucket_summary(caller, bucket).documents.get(DocumentKind.POLICY)
        return None if stored is None else _compiled(stored, bucket).is_public

    async def set_bucket_policy(self, caller: Caller, bucket: str, text: bytes) -> bool:
        """Store the bucket's policy. Returns False, and stores nothing, if the policy is public and PublicAccessBlock
        forbids that.

        Raises `MalformedPolicy`, `NoSuchBucket`, `AccessDenied`."""
        found = self._bucket_summary(caller, bucket)
        users: dict[str, int] = {}

        def user_id(name: str) -> int | None:
            user = lookups.user_id(self._store, name)
            if user is not None:
                users[name] = user
            return user

        policy = parse_bucket_policy(text, bucket, user_id)
        if policy.is_public and _public_access_block(found).block_public_policy:
            return False
        await self.set_bucket_document(caller, bucket, DocumentKind.POLICY, pack(_StoredPolicy(text, users)))
        return True

    async def remove_bucket_policy(self, caller: Caller, bucket: str) -> None:
        """Remove the bucket's policy, if it has one. Raises `NoSuchBucket`, `AccessDenied`."""
        self._bucket_summary(caller, bucket)
        await self.remove_bucket_document(caller, bucket, DocumentKind.POLICY)

    async def get_public_access_block(self, caller: Caller, bucket: str) -> PublicAccessBlock | None:
        """Return what is blocked; None if the configuration was removed. Raises `NoSuchBucket`, `AccessDenied`."""
        found = self._bucket_summary(caller, bucket)
        return (
            None if found.documents.get(DocumentKind.PUBLIC_ACCESS_BLOCK) == _REMOVED else _public_access_block(found)
        )

    async def set_public_access_block(self, caller: Caller, bucket: str, block: PublicAccessBlock | None) -> None:
        """Set what is blocked. None removes the configuration: nothing is blocked. Raises `NoSuchBucket`,
        `AccessDenied`."""
        document = _REMOVED if block is None else pack(tuple(block))
        await self.set_bucket_document(caller, bucket, DocumentKind.PUBLIC_ACCESS_BLOCK, document)


_REMOVED = pack(())
"""The document of a PublicAccessBlock that was removed. A bucket that never had one blocks everything, as in S3."""


def _public_access_block(bucket: BucketSummary) -> PublicAccessBlock:
    stored = bucket.documents.get(DocumentKind.PUBLIC_ACCESS_BLOCK)
    if stored is None:
        return PublicAccessBlock(True, True, True, True)
    return PublicAccessBlock(*unpack(stored)) if stored != _REMOVED else PublicAccessBlock(False, False, False, False)


def _read_stored(stored: bytes) -> _StoredPolicy:
    return _StoredPolicy._make(unpack(stored))


@lru_cache(_COMPILED_MAX)
def _compiled(stored: bytes, bucket: str) -> Policy:
    text, users = _read_stored(stored)
    return parse_bucket_policy(text, bucket, users.get)
