"""What fsspec is told of a file, a directory or a bucket: a dict, with the keys that its users know from elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gateway.engine.types import BucketInfo, Listed, ObjectInfo
from gateway.posix.metadata import META
from gateway.posix.paths import format_path

Info = dict[str, Any]
"""`name` (the path), `size` in bytes, `type` ("file" or "directory"); of a file also `ETag`, `LastModified` (aware,
UTC) and `mtime` (the same in seconds); where the file itself was asked for, `ContentType`, `VersionId`, `metadata`."""

SECOND_NS = 1_000_000_000


def when(at_ns: int) -> datetime:
    """A time as Python has it: to the microsecond."""
    return datetime.fromtimestamp(at_ns // SECOND_NS, UTC).replace(microsecond=at_ns % SECOND_NS // 1000)


def directory(path: str) -> Info:
    return {"name": path, "size": 0, "type": "directory"}


def of_bucket(bucket: BucketInfo) -> Info:
    return {**directory(bucket.name), "created": when(bucket.made_ns)}


def _file(path: str, size: int, etag: str, modified_ns: int) -> Info:
    return {
        "name": path,
        "size": size,
        "type": "file",
        "ETag": etag,
        "LastModified": when(modified_ns),
        "mtime": modified_ns / SECOND_NS,
    }


def of_listed(bucket: str, found: Listed) -> Info:
    return _file(format_path(bucket, found.key), found.size, found.etag, found.modified_ns)


def of_object(bucket: str, found: ObjectInfo) -> Info:
    return _file(format_path(bucket, found.key), found.size, found.etag, found.modified_ns) | {
        "ContentType": found.headers.get("content-type", "binary/octet-stream"),
        "VersionId": found.version,
        "metadata": {name.removeprefix(META): value for name, value in found.headers.items() if name.startswith(META)},
    }
