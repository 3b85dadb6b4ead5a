"""What the file system asks of whoever holds the tree: few verbs over plain values, each one trip at most.

In process they are answered by a site's front desk (`in_process.py`), over HTTP by a gateway (`http_api.py`).
They raise `gateway.errors`, and nothing here knows fsspec. Keys and paths are bytes without a leading slash; a
directory's path has no slash at its end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.engine.types import (
    NO_CONDITIONS,
    Body,
    BucketInfo,
    ByteRange,
    Conditions,
    Meta,
    ObjectInfo,
    Opened,
    Page,
    PartInfo,
    Stored,
    WantedPart,
)
from gateway.errors import EntrepotError
from gateway.journal.columns import PartFact


@dataclass(frozen=True, slots=True)
class Directory:
    """What `look` finds where a directory stands."""

    made: bool
    """Somebody made it; otherwise S3's keys imply it, and it goes with the last of them."""


class Verbs(ABC):
    """The tree, as one user sees it. For one event loop; safe for many concurrent calls."""

    @abstractmethod
    async def compound(self, calls: Sequence[tuple[str, tuple[Any, ...]]], *, stop: bool = False) -> list[Any]:
        """Several verbs by name, with their arguments, in as few trips as may be: run in their order, each with its own
        result, or the `EntrepotError` that it was refused with; None stands for those behind the first one that was
        refused, with *stop*."""

    @abstractmethod
    async def buckets(self, after: str = "") -> tuple[list[BucketInfo], str | None]:
        """A page of the user's buckets, by name, and what *after* takes to go on; None behind the last."""

    @abstractmethod
    async def bucket(self, name: str) -> BucketInfo:
        """Raises `NoSuchBucket`, `AccessDenied`."""

    @abstractmethod
    async def make_bucket(self, name: str) -> None:
        """Raises `BucketOwned`, `BucketExists`, `InvalidBucketName`."""

    @abstractmethod
    async def drop_bucket(self, name: str) -> None:
        """Raises `NoSuchBucket`, `BucketNotEmpty`, `AccessDenied`."""

    @abstractmethod
    async def look(self, bucket: str, key: bytes) -> ObjectInfo | Directory:
        """What stands at *key*: where an object and a directory do, the object. Raises `NoSuchName`."""

    @abstractmethod
    async def page(self, bucket: str, prefix: bytes, delimiter: bytes = b"", after: bytes = b"") -> Page:
        """A page of keys behind *after* that begin with *prefix*, rolled up at *delimiter*."""

    @abstractmethod
    async def open(
        self, bucket: str, key: bytes, wanted: ByteRange | None = None, conditions: Conditions = NO_CONDITIONS
    ) -> Opened:
        """An object's bytes, or a range of them. Raises `NoSuchKey`, `PreconditionFailed`, `InvalidRange`."""

    @abstractmethod
    async def put(
        self, bucket: str, key: bytes, body: Body, size: int, meta: Meta, conditions: Conditions = NO_CONDITIONS
    ) -> Stored:
        """Store an object of *size* bytes, durably. Raises `PreconditionFailed`, `IncompleteBody`."""

    @abstractmethod
    async def copy(
        self, bucket: str, key: bytes, to_bucket: str, to_key: bytes, meta: Meta | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> Stored:  # fmt: skip
        """Give an object's bytes another name; none are moved. *meta* None takes over the source's. *conditions*
        speak of the source."""

    @abstractmethod
    async def move(self, bucket: str, key: bytes, to_bucket: str, to_key: bytes) -> None:
        """Give an object another name instead of its own, in one step: no write to either name is lost between.
        Raises `NoSuchKey`."""

    @abstractmethod
    async def remove(self, bucket: str, keys: Sequence[bytes], *, must_exist: bool) -> list[EntrepotError | None]:
        """Remove up to a thousand keys in one command; for each of them None, or what it was refused with."""

    @abstractmethod
    async def rename(self, bucket: str, path: bytes, to_path: bytes, *, directory: bool) -> None:
        """As rename(2): one record, whatever lies below. *directory*: what is meant, where both stand. The directory
        above *to_path* stands already.

        Raises `InvalidArgument` for what has no name in POSIX, `NoSuchName`, `IsADirectory`, `NotADirectory`,
        `DirectoryNotEmpty`, `Cycle`."""

    @abstractmethod
    async def mkdir(self, bucket: str, path: bytes) -> None:
        """Raises `NameExists`, and `NoSuchName` without the directory above."""

    @abstractmethod
    async def rmdir(self, bucket: str, path: bytes) -> None:
        """Raises `DirectoryNotEmpty`, `NotADirectory`, `NoSuchName`."""

    @abstractmethod
    async def begin_upload(self, bucket: str, key: bytes, meta: Meta) -> str:
        """Begin to write an object in parts. Answers the upload's id."""

    @abstractmethod
    async def put_part(self, bucket: str, key: bytes, upload: str, number: int, body: Body, size: int) -> PartInfo:
        """Store a part, durably. Every one but the last has at least 5 MiB."""

    @abstractmethod
    async def copy_part(
        self, bucket: str, key: bytes, upload: str, number: int, source: bytes, wanted: ByteRange, etag: str
    ) -> PartInfo:
        """A stretch of the object *source* of that bucket, while its ETag is *etag*, becomes a part."""

    @abstractmethod
    async def tags(self, bucket: str, key: bytes) -> Mapping[str, str]:
        """An object's tags. Raises `NoSuchKey`."""

    @abstractmethod
    async def parts(self, bucket: str, key: bytes) -> Sequence[PartFact]:
        """The parts that an object was uploaded in; none where it came in one piece."""

    @abstractmethod
    async def complete_upload(
        self, bucket: str, key: bytes, upload: str, parts: list[WantedPart], conditions: Conditions = NO_CONDITIONS
    ) -> Stored:
        """Make the object of its parts. Raises `PreconditionFailed`."""

    @abstractmethod
    async def abort_upload(self, bucket: str, key: bytes, upload: str) -> None:
        """Raises `NoSuchUpload`."""
