"""The interface between a file system and the tree: a small set of methods over plain values.

Two classes implement it: `in_process.InProcessApi` over a site's engine, and `rpc.client.RpcClient` over a gateway,
where each call is at most one request. The methods raise errors of `gateway.errors`. Keys and paths are bytes without
a leading slash; the path of a directory has no trailing slash. Nothing here depends on fsspec.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from gateway.engine.types import (
    NO_CONDITIONS,
    Body,
    BucketInfo,
    ByteRange,
    Conditions,
    ObjectInfo,
    ObjectMeta,
    Opened,
    Page,
    PartInfo,
    Stored,
    WantedPart,
)
from gateway.errors import EntrepotError
from gateway.journal.columns import PartSummary


@dataclass(frozen=True, slots=True)
class Directory:
    """What `look` returns for a directory."""

    made: bool
    """Whether somebody created it. Otherwise only keys imply it, and it disappears with the last of them."""


class FileApi(ABC):
    """The tree, as one user sees it. For one event loop; safe for many concurrent calls."""

    @abstractmethod
    async def compound(self, calls: Sequence[tuple[str, tuple[Any, ...]]], *, stop: bool = False) -> list[Any]:
        """Call several methods, given by name and with all their arguments, in order and in few requests.

        Returns for each call its result, or the `EntrepotError` that it was refused with. With *stop*, the calls after
        the first refused one are not run, and have None."""

    @abstractmethod
    async def buckets(self, after: str = "") -> tuple[list[BucketInfo], str | None]:
        """Return a page of the user's buckets by name, and the *after* of the next page: None after the last one."""

    @abstractmethod
    async def bucket(self, name: str) -> BucketInfo:
        """Return a bucket. Raises `NoSuchBucket`, `AccessDenied`."""

    @abstractmethod
    async def make_bucket(self, name: str) -> None:
        """Create a bucket. Raises `BucketOwned`, `BucketExists`, `InvalidBucketName`."""

    @abstractmethod
    async def drop_bucket(self, name: str) -> None:
        """Delete an empty bucket. Raises `NoSuchBucket`, `BucketNotEmpty`, `AccessDenied`."""

    @abstractmethod
    async def look(self, bucket: str, key: bytes) -> ObjectInfo | Directory:
        """Return the object at *key*, or the directory if there is no object. Raises `NoSuchName`."""

    @abstractmethod
    async def page(self, bucket: str, prefix: bytes, delimiter: bytes = b"", after: bytes = b"") -> Page:
        """Return a page of the keys after *after* that begin with *prefix*, grouped at *delimiter*."""

    @abstractmethod
    async def open(
        self, bucket: str, key: bytes, wanted: ByteRange | None = None, conditions: Conditions = NO_CONDITIONS
    ) -> Opened:
        """Open an object, or a range of it, for reading. Raises `NoSuchKey`, `PreconditionFailed`, `InvalidRange`."""

    @abstractmethod
    async def put(
        self, bucket: str, key: bytes, body: Body, size: int, meta: ObjectMeta, conditions: Conditions = NO_CONDITIONS
    ) -> Stored:
        """Store an object of *size* bytes durably. Raises `PreconditionFailed`, `IncompleteBody`."""

    @abstractmethod
    async def copy(
        self, bucket: str, key: bytes, to_bucket: str, to_key: bytes, meta: ObjectMeta | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> Stored:  # fmt: skip
        """Copy an object without copying its bytes. *meta*: None keeps the metadata of the source. *conditions* apply
        to the source."""

    @abstractmethod
    async def move(self, bucket: str, key: bytes, to_bucket: str, to_key: bytes) -> None:
        """Move an object to another key atomically: no concurrent write to either key is lost. Raises `NoSuchKey`."""

    @abstractmethod
    async def remove(self, bucket: str, keys: Sequence[bytes], *, must_exist: bool) -> list[EntrepotError | None]:
        """Delete up to a thousand keys. Returns for each key None, or the error that it was refused with."""

    @abstractmethod
    async def rename(self, bucket: str, path: bytes, to_path: bytes, *, directory: bool) -> None:
        """Rename a file or a directory as rename(2) does, with one record, however much is below it.

        *directory*: whether *path* means the directory or the object, if both exist. The parent of *to_path* must
        exist. Raises `InvalidArgument` for a name that POSIX does not have, `NoSuchName`, `IsADirectory`,
        `NotADirectory`, `DirectoryNotEmpty`, `Cycle`."""

    @abstractmethod
    async def mkdir(self, bucket: str, path: bytes) -> None:
        """Create a directory. Raises `NameExists`, and `NoSuchName` if its parent does not exist."""

    @abstractmethod
    async def rmdir(self, bucket: str, path: bytes) -> None:
        """Remove an empty directory. Raises `DirectoryNotEmpty`, `NotADirectory`, `NoSuchName`."""

    @abstractmethod
    async def begin_upload(self, bucket: str, key: bytes, meta: ObjectMeta) -> str:
        """Begin a multipart upload. Returns its id."""

    @abstractmethod
    async def put_part(self, bucket: str, key: bytes, upload: str, number: int, body: Body, size: int) -> PartInfo:
        """Store a part of *size* bytes durably. Every part except the last has at least 5 MiB."""

    @abstractmethod
    async def copy_part(
        self, bucket: str, key: bytes, upload: str, number: int, source: bytes, wanted: ByteRange, etag: str
    ) -> PartInfo:
        """Make a range of the object *source* in the same bucket a part, on condition that its ETag is *etag*."""

    @abstractmethod
    async def tags(self, bucket: str, key: bytes) -> Mapping[str, str]:
        """Return an object's tags. Raises `NoSuchKey`."""

    @abstractmethod
    async def parts(self, bucket: str, key: bytes) -> Sequence[PartSummary]:
        """Return the parts that an object was uploaded in; none if it was stored by `put`."""

    @abstractmethod
    async def complete_upload(
        self, bucket: str, key: bytes, upload: str, parts: list[WantedPart], conditions: Conditions = NO_CONDITIONS
    ) -> Stored:
        """Make the object of its parts. Raises `PreconditionFailed`."""

    @abstractmethod
    async def abort_upload(self, bucket: str, key: bytes, upload: str) -> None:
        """Drop an upload and its parts. Raises `NoSuchUpload`."""


@cache
def parameters(method: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a method's positional parameters, and those of its keyword-only ones, which come after."""
    _, *own = inspect.signature(getattr(FileApi, method)).parameters.values()
    keyword_only = tuple(each.name for each in own if each.kind is each.KEYWORD_ONLY)
    return tuple(each.name for each in own if each.kind is not each.KEYWORD_ONLY), keyword_only


async def call_method(api: FileApi, method: str, arguments: Sequence[Any]) -> Any:
    """Call a method by name. *arguments*: values for all its parameters in their order, keyword-only ones included."""
    positional, keyword_only = parameters(method)
    count = len(positional)
    by_name = dict(zip(keyword_only, arguments[count:], strict=True))
    return await getattr(api, method)(*arguments[:count], **by_name)
