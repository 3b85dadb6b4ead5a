"""What all operations share: the parts of the site that they use, and the check that the caller may use a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from gateway import failpoints
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.read.reader import Reader
from gateway.blocks.types import Targets, WriteContext
from gateway.blocks.write.writer import Writer
from gateway.crypto.ring import ActiveKey
from gateway.engine.bucket_cache import BucketCache
from gateway.engine.types import NO_CONDITIONS, Caller, Conditions
from gateway.errors import AccessDenied, NoSuchBucket
from gateway.identity.credentials import CredentialCache
from gateway.journal.client import Journal
from gateway.journal.columns import Checksum, pack_list
from gateway.journal.commands import Command
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.tables import Bucket
from gateway.namespace.conditions import Preconditions
from gateway.namespace.read import lookups
from gateway.namespace.read.lookups import BucketAccess, BucketSummary

R = TypeVar("R")


class KeySource(Protocol):
    """Provides ring keys."""

    def active(self, tenant: int, /) -> ActiveKey:
        """Return the key that seals what *tenant* writes now."""
        ...


class WriteTargetSource(Protocol):
    """Chooses the backends of a write. The methods raise `Unavailable` if a policy cannot be used yet."""

    def for_write(self, bucket: str, key: bytes, size: int | None, user: str, /) -> Targets:
        """Return the targets of a write. *size*: None if it is not known yet."""
        ...

    @property
    def default(self) -> Targets:
        """The targets of the default policy."""
        ...

    @property
    def has_several_policies(self) -> bool:
        """Whether there are several policies."""
        ...


class EngineBase:
    """Base of the classes that each implement the operations of one kind of resource."""

    def __init__(
        self,
        *,
        journal: Journal,
        store: ReadStore,
        writer: Writer,
        reader: Reader,
        lookup: Lookup,
        keyring: KeySource,
        write_targets: WriteTargetSource,
        credentials: CredentialCache,
        region: str,
    ) -> None:
        self._journal = journal
        self._store = store
        self._buckets = BucketCache(store)
        self._writer = writer
        self._reader = reader
        self._lookup = lookup
        self._keyring = keyring
        self._write_targets = write_targets
        self._credentials = credentials
        self._region = region

    def _bucket_row(self, caller: Caller, name: str) -> Bucket:
        """Return the bucket's row, read from the table. Raises `NoSuchBucket`, and `AccessDenied` unless the caller
        owns it."""
        found = lookups.bucket(self._store, name)
        if found is None:
            raise NoSuchBucket(name)
        check_owner(caller, found)
        return found

    def _bucket_summary(self, caller: Caller, name: str) -> BucketSummary:
        """Return the few columns of a bucket that most operations need, from the cache. Raises as `_bucket_row`."""
        found = self._buckets.find(name)
        if found is None:
            raise NoSuchBucket(name)
        check_owner(caller, found)
        return found

    def _write_context(self, caller: Caller, bucket: BucketSummary, key: bytes, size: int | None) -> WriteContext:
        """Return the ring key and the targets for a write of *size* bytes; None if the size is not known yet."""
        targets = self._write_targets.for_write(bucket.name, key, size, caller.user)
        return WriteContext(self._keyring.active(bucket.tenant), targets, caller.user_id, may_attach=True)

    async def _send(self, command: Command[R]) -> R:
        """Send *command* to the committer and return its answer. Raises what it was refused with."""
        failpoints.reach("command-ready")
        answer = await self._journal.send(command)
        failpoints.reach("command-answered")
        return answer


def check_owner(caller: Caller, bucket: Bucket | BucketSummary | BucketAccess) -> None:
    """Raise `AccessDenied` unless the caller owns the bucket or may use it all the same."""
    if not caller.may_use(bucket.name, bucket.owner):
        raise AccessDenied(f"{caller.user} does not own the bucket {bucket.name}")


def preconditions(conditions: Conditions) -> Preconditions | None:
    """Return the conditions as commands take them; None if there are no conditions."""
    if conditions is NO_CONDITIONS or conditions == NO_CONDITIONS:
        return None
    return Preconditions(
        conditions.if_match,
        conditions.if_none_match,
        conditions.if_modified_since_ns,
        conditions.if_unmodified_since_ns,
        conditions.if_size,
        conditions.if_modified_at_ns,
    )


def pack_checksums(checksums: Sequence[Checksum]) -> bytes:
    """Pack checksums for the column of a file. Responses show the first one."""
    return pack_list(checksums)
