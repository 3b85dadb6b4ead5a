"""The copy source header of CopyObject and UploadPartCopy. Pure."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from s3api.errors import S3Error
from s3api.format.request_target import to_bytes

SOURCE = "x-amz-copy-source"


class CopySource(NamedTuple):
    """The object that x-amz-copy-source names."""

    bucket: str
    key: bytes
    version: str | None


def copy_source(header: str) -> CopySource:
    """Parse `[/]bucket/key[?versionId=id]`. It is encoded like a form: `+` is a space, unlike in a request's path.

    Raises S3Error InvalidArgument, NotImplemented."""
    path, _, version = header.partition("?versionId=")
    raw = unquote_to_bytes(to_bytes(path).replace(b"+", b" ")).removeprefix(b"/")
    bucket, slash, key = raw.partition(b"/")
    if not bucket or not slash or not key or not bucket.isascii() or "?" in version:
        raise S3Error(
            "InvalidArgument",
            "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
            ArgumentName=SOURCE,
            ArgumentValue=header,
        )
    if bucket.startswith(b"arn:"):
        raise S3Error("NotImplemented", "Access points are not implemented.", Header=SOURCE)
    return CopySource(bucket.decode(), key, version or None)
