"""Listings of multipart uploads and of an upload's parts."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.errors import NoSuchUpload
from gateway.journal.tables import Bucket, UploadState
from gateway.namespace.keys import common_prefix, key_after, successor
from gateway.namespace.read.lookups import Reads, upload
from gateway.namespace.read.pages import PartInfo, PartPage, UploadInfo, UploadPage
from gateway.namespace.read.tree_walk import FIRST_BATCH, SLICE
from gateway.namespace.version_ids import encode_version_id, parse_upload_id

_UPLOADS = (
    "SELECT key, id, owner, made_ns, checksum, checksum_type FROM upload "
    "WHERE bucket = ? AND state = 0 AND (key, id) >= (?, ?) ORDER BY key, id LIMIT ?"
)


async def list_uploads(
    reads: Reads, bucket: Bucket, prefix: bytes = b"", delimiter: bytes = b"", after_key: bytes = b"",
    after_upload: str = "", limit: int = 1000,
) -> UploadPage:  # fmt: skip
    """List open uploads, sorted by key and then by creation, after *after_key* or, with *after_upload*, after that
    upload of it. Raises `NoSuchUpload` for an invalid upload id."""
    uploads: list[UploadInfo] = []
    prefixes: list[bytes] = []
    at = _first_upload(prefix, delimiter, after_key, after_upload)
    batch = FIRST_BATCH if delimiter else SLICE
    while at is not None and limit > 0:
        rows = reads.query(_UPLOADS, (bucket.name, *at, batch))
        ended = len(rows) < batch
        batch, at = _add_uploads(rows, bucket.id, prefix, delimiter, uploads, prefixes, limit, batch)
        if len(uploads) + len(prefixes) > limit:
            return _cut_uploads(uploads, prefixes)
        if ended and at == _after_last(rows):
            break
        await asyncio.sleep(0)
    return UploadPage(uploads, prefixes, None, None)


_UploadPosition = tuple[bytes, int]


def _first_upload(prefix: bytes, delimiter: bytes, after_key: bytes, after_upload: str) -> _UploadPosition | None:
    if after_key < prefix:
        return prefix, 0
    if not after_key.startswith(prefix):
        return None
    rolled = common_prefix(after_key, prefix, delimiter)
    if rolled is not None:
        following = successor(rolled)
        return None if following is None else (following, 0)
    if after_upload and after_key:
        return after_key, parse_upload_id(after_upload) + 1
    return (key_after(after_key) if after_key else b""), 0


def _after_last(rows: list[tuple[Any, ...]]) -> _UploadPosition | None:
    return (rows[-1][0], rows[-1][1] + 1) if rows else None


def _add_uploads(
    rows: list[tuple[Any, ...]], bucket: int, prefix: bytes, delimiter: bytes, uploads: list[UploadInfo],
    prefixes: list[bytes], limit: int, batch: int,
) -> tuple[int, _UploadPosition | None]:  # fmt: skip
    """Add the rows' uploads and prefixes. Returns the size of the next batch and where it begins, None at the end.
    Uploads with an id below *bucket* belong to a deleted bucket of that name and are skipped."""
    rolled: bytes | None = None
    for key, number, owner, made_ns, checksum, kind in rows:
        if rolled is not None and key.startswith(rolled):
            continue
        if not key.startswith(prefix):
            return batch, None
        if len(uploads) + len(prefixes) > limit:
            break
        if number < bucket:
            continue
        rolled = common_prefix(key, prefix, delimiter)
        if rolled is not None:
            prefixes.append(rolled)
        else:
            uploads.append(UploadInfo(key, encode_version_id(number), owner, made_ns, checksum, kind))
    if rolled is not None and rows[-1][0].startswith(rolled):
        following = successor(rolled)
        return FIRST_BATCH, None if following is None else (following, 0)
    return min(batch * 4, SLICE), _after_last(rows)


def _cut_uploads(uploads: list[UploadInfo], prefixes: list[bytes]) -> UploadPage:
    """Remove the one item beyond the limit and return the page with the position to continue after."""
    if not prefixes or (uploads and uploads[-1].key > prefixes[-1]):
        uploads.pop()
    else:
        prefixes.pop()
    if uploads and (not prefixes or uploads[-1].key > prefixes[-1]):
        return UploadPage(uploads, prefixes, uploads[-1].key, uploads[-1].upload)
    return UploadPage(uploads, prefixes, prefixes[-1] if prefixes else b"", None)


def list_parts(
    reads: Reads, bucket: Bucket, key: bytes, upload_id: str, after_number: int = 0, limit: int = 1000
) -> PartPage:
    """List the parts of an open upload after *after_number*. Raises `NoSuchUpload`."""
    row = upload(reads, bucket.name, key, parse_upload_id(upload_id))
    if row is None or row.state != UploadState.OPEN:
        raise NoSuchUpload(upload_id)
    rows = reads.query(
        "SELECT number, size, etag, modified_ns, checksum FROM part WHERE upload = ? AND number > ? "
        "ORDER BY number LIMIT ?",
        (row.id, after_number, limit + 1),
    )
    info = UploadInfo(key, upload_id, row.owner, row.made_ns, row.checksum, row.checksum_type)
    parts = [PartInfo._make(each) for each in rows[:limit]]
    return PartPage(info, parts, parts[-1].number if len(rows) > limit and parts else None)
