"""What the records of nodes do, independently of their names: content, attributes, headers and tags. Pure."""

from __future__ import annotations

from gateway.journal.apply.counts import count_content, count_versions
from gateway.journal.records.tree import (
    DirAttributesSet,
    DirXattrsSet,
    FileAttributesSet,
    FileContentSet,
    FileHeadersSet,
    FileMade,
    FileXattrsSet,
)
from gateway.journal.rows import Rows, require
from gateway.journal.tables import DIR, FILE, RELEASE_QUEUE, File, QueuedRelease, Shape


def file_made(record: FileMade, rows: Rows) -> None:
    rows.put(
        FILE,
        File(
            record.id, record.kind, 0, record.size, record.shape, record.content, record.etag, record.owner,
            record.at_ns, record.mode, record.uid, record.gid, record.mtime_ns, record.at_ns, record.at_ns, record.rdev,
            record.target, record.headers, record.checksums, record.tags, record.xattrs,
        ),
    )  # fmt: skip
    count_content(rows, record.shape, record.content, 1)


def file_attributes_set(record: FileAttributesSet, rows: Rows) -> None:
    rows.put(
        FILE,
        require(rows, FILE, (record.id,))._replace(
            mode=record.mode, uid=record.uid, gid=record.gid,
            mtime_ns=record.mtime_ns, ctime_ns=record.ctime_ns, atime_ns=record.atime_ns,
        ),
    )  # fmt: skip


def dir_attributes_set(record: DirAttributesSet, rows: Rows) -> None:
    rows.put(
        DIR,
        require(rows, DIR, (record.id,))._replace(
            mode=record.mode, uid=record.uid, gid=record.gid,
            mtime_ns=record.mtime_ns, ctime_ns=record.ctime_ns, atime_ns=record.atime_ns,
        ),
    )  # fmt: skip


def file_xattrs_set(record: FileXattrsSet, rows: Rows) -> None:
    row = require(rows, FILE, (record.id,))
    rows.put(FILE, row._replace(xattrs=record.xattrs, ctime_ns=record.ctime_ns))


def dir_xattrs_set(record: DirXattrsSet, rows: Rows) -> None:
    row = require(rows, DIR, (record.id,))
    rows.put(DIR, row._replace(xattrs=record.xattrs, ctime_ns=record.ctime_ns))


def file_headers_set(record: FileHeadersSet, rows: Rows) -> None:
    row = require(rows, FILE, (record.id,))
    rows.put(FILE, row._replace(headers=record.headers, tags=record.tags, ctime_ns=record.ctime_ns))


def file_content_set(record: FileContentSet, rows: Rows) -> None:
    old = require(rows, FILE, (record.id,))
    if old.shape != Shape.NONE:
        rows.put(RELEASE_QUEUE, QueuedRelease(record.freed, old.shape, old.content, 0))
    count_content(rows, record.shape, record.content, 1)
    rows.put(
        FILE,
        old._replace(
            size=record.size, shape=record.shape, content=record.content, etag=record.etag,
            checksums=record.checksums, mtime_ns=record.mtime_ns, ctime_ns=record.ctime_ns, written_ns=record.ctime_ns,
            rewritten=1,
        ),
    )  # fmt: skip
    count_versions(rows, record.bucket, objects=0, versions=0, size=(record.size - old.size) * old.links)
