"""The dicts in which fsspec describes a file, a directory or a bucket, with the keys that users know from other file
systems."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gateway.engine.types import BucketInfo, Listed, ObjectInfo
from gateway.posix.metadata import META
from gateway.posix.paths import format_path

Info = dict[str, Any]
"""`name` (the path), `size` in bytes, `type` ("file" or "directory"). A file also has `ETag`, `LastModified` (aware,
UTC) and `mtime` (the same in seconds); if the file itself was requested, `ContentType`, `VersionId`, `metadata`."""

SECOND_NS = 1_000_000_000


def to_datetime(at_ns: int) -> datetime:
    """Convert nanoseconds to a datetime, with microseconds."""
    return datetime.fromtimestamp(at_ns // SECOND_NS, UTC).replace(microsecond=at_ns % SECOND_NS // 1000)


def directory_info(path: str) -> Info:
    """Return the info of a directory."""
    return {"name": path, "size": 0, "type": "directory"}


def bucket_info(bucket: BucketInfo) -> Info:
    """Return the info of a bucket."""
    return {**directory_info(bucket.name), "created": to_datetime(bucket.made_ns)}


def _file_info(path: str, size: int, etag: str, modified_ns: int) -> Info:
    return {
        "name": path,
        "size": size,
        "type": "file",
        "ETag": etag,
        "LastModified": to_datetime(modified_ns),
        "mtime": modified_ns / SECOND_NS,
    }


def listed_info(bucket: str, listed: Listed) -> Info:
    """Return the info of an object in a listing."""
    return _file_info(format_path(bucket, listed.key), listed.size, listed.etag, listed.modified_ns)


def object_info(bucket: str, info: ObjectInfo) -> Info:
    """Return the info of an object."""
    return _file_info(format_path(bucket, info.key), info.size, info.etag, info.modified_ns) | {
        "ContentType": info.headers.get("content-type", "binary/octet-stream"),
        "VersionId": info.version,
        "metadata": {name.removeprefix(META): value for name, value in info.headers.items() if name.startswith(META)},
    }
