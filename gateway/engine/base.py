"""What every part of the front desk holds, and the one question that all of them ask first: may this caller?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from gateway import failpoints
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.read.reader import Reader
from gateway.blocks.types import Targets, WriteContext
from gateway.blocks.write.writer import Writer
from gateway.crypto.ring import ActiveKey
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
from gateway.namespace.read.lookups import Holder, Owned

R = TypeVar("R")


class Keys(Protocol):
    """Where the ring key comes from that seals what a tenant writes now."""

    def active(self, tenant: int, /) -> ActiveKey: ...


class Placing(Protocol):
    """Where the policies want what is written. Both raise `Unavailable` for one that cannot be used yet."""

    def for_write(self, bucket: str, key: bytes, size: int | None, user: str, /) -> Targets: ...

    @property
    def default(self) -> Targets: ...

    @property
    def varied(self) -> bool:
        """There are several policies."""
        ...


class Counter:
    """The parts of the desk share these; each adds the verbs of one resource."""

    def __init__(
        self,
        *,
        journal: Journal,
        store: ReadStore,
        writer: Writer,
        reader: Reader,
        lookup: Lookup,
        ring: Keys,
        placing: Placing,
        credentials: CredentialCache,
        region: str,
    ) -> None:
        self._journal = journal
        self._store = store
        self._writer = writer
        self._reader = reader
        self._lookup = lookup
        self._ring = ring
        self._placing = placing
        self._credentials = credentials
        self._region = region

    def _bucket(self, caller: Caller, name: str) -> Bucket:
        """The bucket as it is now. Raises `NoSuchBucket`, and `AccessDenied` unless it is the caller's."""
        found = lookups.bucket(self._store, name)
        if found is None:
            raise NoSuchBucket(name)
        check_owner(caller, found)
        return found

    def _owned(self, caller: Caller, name: str) -> Owned:
        """As `_bucket`, for who needs no more."""
        found = lookups.owned(self._store, name)
        if found is None:
            raise NoSuchBucket(name)
        check_owner(caller, found)
        return found

    def _stamp(self, caller: Caller, bucket: Owned, key: bytes, size: int | None) -> WriteContext:
        """Under what *size* bytes of this key are written; None where nobody knows how many there will be."""
        targets = self._placing.for_write(bucket.name, key, size, caller.user)
        return WriteContext(self._ring.active(bucket.tenant), targets, caller.user_id)

    async def _send(self, command: Command[R]) -> R:
        failpoints.reach("command-ready")
        answer = await self._journal.send(command)
        failpoints.reach("command-answered")
        return answer


def check_owner(caller: Caller, bucket: Bucket | Owned | Holder) -> None:
    """Each user owns what it creates; another one gets `AccessDenied`, root never."""
    if bucket.owner != caller.user_id and not caller.root:
        raise AccessDenied(f"{caller.user} does not own the bucket {bucket.name}")


def preconditions(asked: Conditions) -> Preconditions | None:
    """As commands take them; None where nothing was asked."""
    if asked is NO_CONDITIONS or asked == NO_CONDITIONS:
        return None
    return Preconditions(
        asked.if_match,
        asked.if_none_match,
        asked.if_modified_since_ns,
        asked.if_unmodified_since_ns,
        asked.if_size,
        asked.if_modified_at_ns,
    )


def pack_checksums(checksums: Sequence[Checksum]) -> bytes:
    """For a file's column; the one to show stands first."""
    return pack_list(checksums)
