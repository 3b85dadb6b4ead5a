"""The plainer listings: buckets, multipart uploads, parts, and what a directory holds with its attributes."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from gateway.errors import NoSuchUpload
from gateway.journal.tables import Bucket, Dir, File, UploadState
from gateway.namespace.keys import behind, rolled_up, successor
from gateway.namespace.read.lookups import Reads, columns, upload
from gateway.namespace.read.pages import PartInfo, PartPage, UploadInfo, UploadPage
from gateway.namespace.read.tree_walk import FIRST_BATCH, SLICE
from gateway.namespace.version_ids import parse_upload, spell

_NEWEST = 1 << 62


def list_buckets(
    reads: Reads, owner: int | None = None, prefix: str = "", after: str = "", limit: int = 10_000
) -> tuple[list[Bucket], str | None]:
    """Buckets in order of their names, those of *owner* only unless it is None; and the name to go on behind."""
    high = successor(prefix.encode())
    bound = "" if high is None else "AND b.name < ?4"
    mine = "" if owner is None else "AND b.owner = ?3"
    rows = reads.query(
        f"SELECT {columns('b', Bucket)} FROM bucket b WHERE b.name >= ?1 AND b.name > ?2 {mine} {bound} "
        "ORDER BY b.name LIMIT ?5",
        (prefix, after, owner, high.decode() if high is not None else None, limit + 1),
    )
    found = [Bucket._make(row) for row in rows[:limit]]
    return found, found[-1].name if len(rows) > limit and found else None


_UPLOADS = (
    "SELECT key, id, owner, made_ns, checksum, checksum_type FROM upload "
    "WHERE bucket = ? AND state = 0 AND (key, id) >= (?, ?) ORDER BY key, id LIMIT ?"
)


async def list_uploads(
    reads: Reads, bucket: Bucket, prefix: bytes = b"", delimiter: bytes = b"", after_key: bytes = b"",
    after_upload: str = "", limit: int = 1000,
) -> UploadPage:  # fmt: skip
    """Open uploads by key, those of a key as they began. Behind *after_key*, or, with *after_upload*, behind that
    upload of it. Raises `NoSuchUpload` for what is no upload id."""
    uploads: list[UploadInfo] = []
    prefixes: list[bytes] = []
    at = _first_upload(prefix, delimiter, after_key, after_upload)
    batch = FIRST_BATCH if delimiter else SLICE
    while at is not None and limit > 0:
        rows = reads.query(_UPLOADS, (bucket.name, *at, batch))
        ended = len(rows) < batch
        batch, at = _tell_uploads(rows, bucket.id, prefix, delimiter, uploads, prefixes, limit, batch)
        if len(uploads) + len(prefixes) > limit:
            return _cut_uploads(uploads, prefixes)
        if ended and at == _behind_last(rows):
            break
        await asyncio.sleep(0)
    return UploadPage(uploads, prefixes, None, None)


_At = tuple[bytes, int]


def _first_upload(prefix: bytes, delimiter: bytes, after_key: bytes, after_upload: str) -> _At | None:
    if after_key < prefix:
        return prefix, 0
    if not after_key.startswith(prefix):
        return None
    rolled = rolled_up(after_key, prefix, delimiter)
    if rolled is not None:
        following = successor(rolled)
        return None if following is None else (following, 0)
    if after_upload and after_key:
        return after_key, parse_upload(after_upload) + 1
    return (behind(after_key) if after_key else b""), 0


def _behind_last(rows: list[tuple[Any, ...]]) -> _At | None:
    return (rows[-1][0], rows[-1][1] + 1) if rows else None


def _tell_uploads(
    rows: list[tuple[Any, ...]], bucket: int, prefix: bytes, delimiter: bytes, uploads: list[UploadInfo],
    prefixes: list[bytes], limit: int, batch: int,
) -> tuple[int, _At | None]:  # fmt: skip
    """Adds what the rows stand for. Answers the size of the next batch and where it begins, None at the end. What began
    before the bucket *bucket* is one's that is gone, and waits to be cut off."""
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
        rolled = rolled_up(key, prefix, delimiter)
        if rolled is not None:
            prefixes.append(rolled)
        else:
            uploads.append(UploadInfo(key, spell(number), owner, made_ns, checksum, kind))
    if rolled is not None and rows[-1][0].startswith(rolled):
        following = successor(rolled)
        return FIRST_BATCH, None if following is None else (following, 0)
    return min(batch * 4, SLICE), _behind_last(rows)


def _cut_uploads(uploads: list[UploadInfo], prefixes: list[bytes]) -> UploadPage:
    """One item more than asked for was found: it goes, and the page says where it ends."""
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
    """The parts of an open upload behind *after_number*. Raises `NoSuchUpload`."""
    row = upload(reads, bucket.name, key, parse_upload(upload_id))
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


class Held(NamedTuple):
    """What a directory holds under a name: a directory (its name with a slash), or a file."""

    name: bytes
    directory: Dir | None
    file: File | None


_DIR_COLUMNS = len(Dir._fields)


def read_directory(reads: Reads, directory: int, after: bytes = b"", limit: int = SLICE) -> list[Held]:
    """Live entries behind the name *after*, with their attributes, in order of their names as the tree has them; the
    empty name, which makes the directory, is not among them. Fewer than *limit*: there are no more."""
    rows = reads.query(
        f"SELECT e.name, {columns('d', Dir)}, {columns('f', File)} FROM entry e "
        "LEFT JOIN dir d ON d.id = CASE WHEN e.version = 0 THEN e.node END "
        "LEFT JOIN file f ON f.id = CASE WHEN e.version THEN e.node END "
        "WHERE e.parent = ? AND e.dead = 0 AND e.name > ? ORDER BY e.name LIMIT ?",
        (directory, after, limit),
    )
    found = []
    for row in rows:
        is_dir = row[1] is not None
        found.append(
            Held(
                row[0],
                Dir._make(row[1 : 1 + _DIR_COLUMNS]) if is_dir else None,
                None if is_dir else File._make(row[1 + _DIR_COLUMNS :]),
            )
        )
    return found
