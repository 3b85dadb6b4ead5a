"""What the records of buckets and of their trees do; the records of nodes alone are in `nodes.py`. Pure.

These counts are exact, so no command scans: a directory's live entries, entries and subdirectories; a bucket's objects,
versions and bytes; a file's links. Only a change between no live entry and one is passed on to the directories above.
"""

from __future__ import annotations

from typing import assert_never

from gateway.journal.apply import nodes
from gateway.journal.apply.counts import add_link, count_entry, count_versions, remove_link
from gateway.journal.columns import pack_map, unpack_map
from gateway.journal.records.tree import (
    BucketDeleted,
    BucketDeletedWithUploads,
    BucketDocumentRemoved,
    BucketDocumentSet,
    BucketMade,
    BucketOwnerSet,
    BucketSettingsSet,
    BucketVersioningSet,
    DirAttributesSet,
    DirDeleted,
    DirHeightRaised,
    DirMade,
    DirXattrsSet,
    EntryMoved,
    FileAttributesSet,
    FileContentSet,
    FileHeadersSet,
    FileMade,
    FileXattrsSet,
    NamePut,
    TreeRecord,
    VersionDeleted,
)
from gateway.journal.rows import Rows, require
from gateway.journal.tables import (
    BUCKET,
    BUCKET_DOCUMENTS,
    DELETED_BUCKET,
    DIR,
    ENTRY,
    FILE,
    USER,
    VERSION,
    Bucket,
    BucketDocuments,
    DeletedBucket,
    Dir,
    Entry,
    Version,
)

DIR_MODE = 0o755


def apply_tree(record: TreeRecord, rows: Rows) -> None:
    match record:
        case NamePut():
            _name_put(record, rows)
        case FileMade():
            nodes.file_made(record, rows)
        case VersionDeleted():
            _version_deleted(record, rows)
        case DirMade():
            _dir_made(record, rows)
        case DirDeleted():
            _dir_deleted(record, rows)
        case EntryMoved():
            _entry_moved(record, rows)
        case FileAttributesSet():
            nodes.file_attributes_set(record, rows)
        case DirAttributesSet():
            nodes.dir_attributes_set(record, rows)
        case FileXattrsSet():
            nodes.file_xattrs_set(record, rows)
        case DirHeightRaised():
            _dir_height_raised(record, rows)
        case DirXattrsSet():
            nodes.dir_xattrs_set(record, rows)
        case FileHeadersSet():
            nodes.file_headers_set(record, rows)
        case FileContentSet():
            nodes.file_content_set(record, rows)
        case BucketMade():
            _bucket_made(record, rows)
        case BucketDeleted():
            _bucket_deleted(record, rows)
        case BucketDeletedWithUploads():
            _bucket_deleted_with_uploads(record, rows)
        case BucketVersioningSet():
            _bucket_versioning_set(record, rows)
        case BucketSettingsSet():
            _bucket_settings_set(record, rows)
        case BucketOwnerSet():
            _owner_set(record, rows)
        case BucketDocumentSet():
            _document_set(record, rows)
        case BucketDocumentRemoved():
            _document_removed(record, rows)
        case _:
            assert_never(record)


def _bucket_made(record: BucketMade, rows: Rows) -> None:
    rows.put(
        BUCKET,
        Bucket(
            record.name, record.id, record.tenant, record.owner_id, record.root, record.region, 0, record.policy,
            0, 0, 0, 0, b"", record.at_ns,
        ),
    )  # fmt: skip
    at_ns = record.at_ns
    rows.put(DIR, Dir(record.root, record.name, 0, b"", 0, 0, 0, DIR_MODE, 0, 0, at_ns, at_ns, at_ns, b""))
    owner = require(rows, USER, (record.owner,))
    rows.put(USER, owner._replace(buckets=owner.buckets + 1))


def _bucket_deleted(record: BucketDeleted | BucketDeletedWithUploads, rows: Rows) -> None:
    bucket = require(rows, BUCKET, (record.name,))
    rows.drop(DIR, (bucket.root,))
    rows.drop(BUCKET, (record.name,))
    if rows.get(BUCKET_DOCUMENTS, (bucket.id,)) is not None:
        rows.drop(BUCKET_DOCUMENTS, (bucket.id,))
    owner = require(rows, USER, (record.owner,))
    rows.put(USER, owner._replace(buckets=owner.buckets - 1))


def _bucket_deleted_with_uploads(record: BucketDeletedWithUploads, rows: Rows) -> None:
    bucket = require(rows, BUCKET, (record.name,))
    rows.put(DELETED_BUCKET, DeletedBucket(bucket.id, bucket.name, record.before, bucket.uploads))
    _bucket_deleted(record, rows)


def _bucket_versioning_set(record: BucketVersioningSet, rows: Rows) -> None:
    rows.put(BUCKET, require(rows, BUCKET, (record.name,))._replace(versioning=record.versioning))


def _bucket_settings_set(record: BucketSettingsSet, rows: Rows) -> None:
    rows.put(BUCKET, require(rows, BUCKET, (record.name,))._replace(settings=record.settings))


def _owner_set(record: BucketOwnerSet, rows: Rows) -> None:
    rows.put(BUCKET, require(rows, BUCKET, (record.name,))._replace(owner=record.owner_id))
    for name, change in ((record.former_owner, -1), (record.owner, 1)):
        user = require(rows, USER, (name,))
        rows.put(USER, user._replace(buckets=user.buckets + change))


def _document_set(record: BucketDocumentSet, rows: Rows) -> None:
    bucket = require(rows, BUCKET, (record.bucket,)).id
    former = rows.get(BUCKET_DOCUMENTS, (bucket,))
    documents = unpack_map(former.documents) if former is not None else {}
    rows.put(BUCKET_DOCUMENTS, BucketDocuments(bucket, pack_map({**documents, record.kind: record.document})))


def _document_removed(record: BucketDocumentRemoved, rows: Rows) -> None:
    bucket = require(rows, BUCKET, (record.bucket,)).id
    documents = unpack_map(require(rows, BUCKET_DOCUMENTS, (bucket,)).documents)
    del documents[record.kind]
    if documents:
        rows.put(BUCKET_DOCUMENTS, BucketDocuments(bucket, pack_map(documents)))
    else:
        rows.drop(BUCKET_DOCUMENTS, (bucket,))


def _dir_made(record: DirMade, rows: Rows) -> None:
    parent = require(rows, DIR, (record.parent,))
    at_ns = record.at_ns
    rows.put(ENTRY, Entry(record.parent, record.name, 1, record.id, 0, 0, 0, 0, at_ns))
    rows.put(
        DIR,
        Dir(
            record.id, parent.bucket, record.parent, record.name, 0, 0, 0, record.mode, record.uid, record.gid,
            at_ns, at_ns, at_ns, b"",
        ),
    )  # fmt: skip
    count_entry(rows, record.parent, live=0, entries=1, subdirs=1, at_ns=at_ns)


def _dir_deleted(record: DirDeleted, rows: Rows) -> None:
    entry = require(rows, ENTRY, (record.parent, record.name))
    rows.drop(ENTRY, (record.parent, record.name))
    rows.drop(DIR, (entry.node,))
    live = 0 if entry.dead else -1
    count_entry(rows, record.parent, live=live, entries=-1, subdirs=-1, at_ns=record.at_ns)


def _dir_height_raised(record: DirHeightRaised, rows: Rows) -> None:
    height = record.height
    row = require(rows, DIR, (record.id,))
    while row.parent and row.height < height:
        rows.put(DIR, row._replace(height=height))
        row = require(rows, DIR, (row.parent,))
        height += 1


def _name_put(record: NamePut, rows: Rows) -> None:
    parent, name, version = record.parent, record.name, record.version
    directory = require(rows, DIR, (parent,))
    old = rows.get(ENTRY, (parent, name))
    shown = add_link(rows, record.node, record.at_ns)
    older, null_version = 0, 0
    was_live = False
    if old is not None:
        was_live = not old.dead
        older, null_version = old.older, old.null_version
        if record.keep:
            _archive(rows, old, newer=version)
            older = old.version
        else:
            if older:
                below = require(rows, VERSION, (parent, name, older))
                rows.put(VERSION, below._replace(newer=version))
            if old.null:
                null_version = 0
    if record.null:
        null_version = version
    dead = 1 if record.node == 0 else 0
    rows.put(
        ENTRY,
        Entry(parent, name, dead, record.node, version, record.null, older, null_version, record.at_ns, *shown),
    )
    lost = 0
    if old is not None and not record.keep:
        lost = remove_link(rows, old.node, record.at_ns)
    kept = 1 if old is None or record.keep else 0
    is_live = not dead
    gained = shown[0] - lost
    count_versions(rows, directory.bucket, objects=int(is_live) - int(was_live), versions=kept, size=gained)
    live, entries = int(is_live) - int(was_live), 0 if old is not None else 1
    count_entry(rows, parent, live=live, entries=entries, subdirs=0, at_ns=record.at_ns)


def _archive(rows: Rows, old: Entry, newer: int) -> None:
    """Make the version that was current the newest noncurrent one."""
    rows.put(
        VERSION,
        Version(
            old.parent, old.name, old.version, old.node, old.null, newer, old.older, old.modified_ns,
            old.size, old.etag, old.owner, old.checksum,
        ),
    )  # fmt: skip
    if old.older:
        below = require(rows, VERSION, (old.parent, old.name, old.older))
        rows.put(VERSION, below._replace(newer=old.version))


def _version_deleted(record: VersionDeleted, rows: Rows) -> None:
    entry = require(rows, ENTRY, (record.parent, record.name))
    if entry.version == record.version:
        _current_deleted(record, entry, rows)
    else:
        _noncurrent_deleted(record, entry, rows)


def _current_deleted(record: VersionDeleted, entry: Entry, rows: Rows) -> None:
    parent, name = record.parent, record.name
    directory = require(rows, DIR, (parent,))
    was_live, is_live = not entry.dead, False
    if entry.older:
        promoted = require(rows, VERSION, (parent, name, entry.older))
        rows.drop(VERSION, (parent, name, promoted.version))
        null_version = 0 if entry.null else entry.null_version
        dead = 1 if promoted.node == 0 else 0
        is_live = not dead
        rows.put(
            ENTRY,
            Entry(
                parent, name, dead, promoted.node, promoted.version, promoted.null, promoted.older, null_version,
                promoted.modified_ns, promoted.size, promoted.etag, promoted.owner, promoted.checksum,
            ),
        )  # fmt: skip
        if promoted.older:
            below = require(rows, VERSION, (parent, name, promoted.older))
            rows.put(VERSION, below._replace(newer=promoted.version))
    else:
        rows.drop(ENTRY, (parent, name))
    lost = remove_link(rows, entry.node, record.at_ns)
    live = int(is_live) - int(was_live)
    count_versions(rows, directory.bucket, objects=live, versions=-1, size=-lost)
    entries = 0 if entry.older else -1
    count_entry(rows, parent, live=live, entries=entries, subdirs=0, at_ns=record.at_ns)


def _noncurrent_deleted(record: VersionDeleted, entry: Entry, rows: Rows) -> None:
    parent, name = record.parent, record.name
    deleted = require(rows, VERSION, (parent, name, record.version))
    rows.drop(VERSION, (parent, name, record.version))
    if deleted.older:
        below = require(rows, VERSION, (parent, name, deleted.older))
        rows.put(VERSION, below._replace(newer=deleted.newer))
    if entry.older == deleted.version:
        entry = entry._replace(older=deleted.older)
    else:
        above = require(rows, VERSION, (parent, name, deleted.newer))
        rows.put(VERSION, above._replace(older=deleted.older))
    if entry.null_version == deleted.version:
        entry = entry._replace(null_version=0)
    rows.put(ENTRY, entry)
    bucket = require(rows, DIR, (parent,)).bucket
    lost = remove_link(rows, deleted.node, record.at_ns)
    count_versions(rows, bucket, objects=0, versions=-1, size=-lost)


def _entry_moved(record: EntryMoved, rows: Rows) -> None:
    entry = require(rows, ENTRY, (record.parent, record.name))
    is_dir = 1 if record.name.endswith(b"/") else 0
    live = 0 if entry.dead else 1
    rows.drop(ENTRY, (record.parent, record.name))
    count_entry(rows, record.parent, live=-live, entries=-1, subdirs=-is_dir, at_ns=record.at_ns)
    # a key that a move created is new there, also for a client that sends If-Modified-Since
    rows.put(ENTRY, entry._replace(parent=record.to_parent, name=record.to_name, modified_ns=record.at_ns))
    count_entry(rows, record.to_parent, live=live, entries=1, subdirs=is_dir, at_ns=record.at_ns)
    if is_dir:
        moved = require(rows, DIR, (entry.node,))
        rows.put(DIR, moved._replace(parent=record.to_parent, name=record.to_name, ctime_ns=record.at_ns))
    elif entry.node:
        file = require(rows, FILE, (entry.node,))
        rows.put(FILE, file._replace(ctime_ns=record.at_ns))
