"""Put and remove names by the rules of the bucket's versioning. Works on rows in memory only.

Off: a name has one version, `null`, which a put replaces. Enabled: each put and each removal adds a version. Suspended:
a put, or a removal, which adds a `null` delete marker, replaces the null version, wherever it is among the versions of
the name; the other versions stay.
"""

from __future__ import annotations

from gateway.journal.commands import Tx
from gateway.journal.records.tree import NamePut, VersionDeleted
from gateway.journal.rows import RowKey
from gateway.journal.tables import FILE, VERSION, Bucket, Entry, Version, Versioning
from gateway.namespace.paths import KeyLocation, delete_empty_implied, ensure_parents, prefetch_neighbours
from gateway.namespace.version_ids import parse_version_id, s3_version_id, version_id_text


def put_name(tx: Tx, bucket: Bucket, parent: int, name: bytes, entry: Entry | None, node: int) -> tuple[int, int]:
    """Make *node* (0: a delete marker) the current version of *name*. Returns (version id, 1 if it is the null version,
    otherwise 0)."""
    if entry is not None:
        prefetch_neighbours(tx, entry)
    version = tx.new_id()
    null = 0 if bucket.versioning == Versioning.ENABLED else 1
    keep = 1 if entry is not None and not (null and entry.null) else 0
    if entry is not None and null and keep and entry.null_version:
        drop_version(tx, entry, entry.null_version)
    tx.emit(NamePut(parent, name, node, version, null, keep, tx.at_ns))
    return version, null


def remove_name(tx: Tx, location: KeyLocation, *, keep_directories: bool = False) -> tuple[str | None, bool]:
    """Remove a name as S3's DELETE without a version id does, and the empty directories that only it implied, unless
    *keep_directories*. Returns the version as S3 shows it, and whether a delete marker was made. To remove an absent
    name is no error."""
    bucket, entry = location.bucket, location.entry
    if bucket.versioning != Versioning.OFF:
        parent = ensure_parents(tx, location)
        version, null = put_name(tx, bucket, parent, location.name, entry, 0)
        return s3_version_id(version, null, bucket.versioning), True
    if entry is not None:
        drop_version(tx, entry, entry.version)
        if not keep_directories:
            delete_empty_implied(tx, entry.parent)
    return None, False


def version_of(tx: Tx, entry: Entry | None, version_id: str) -> Entry | Version | None:
    """Return the version of a name with the id *version_id*, or None. Raises `InvalidArgument` if that is not a version
    id."""
    version = parse_version_id(version_id)
    if entry is None:
        return None
    if version is None:
        version = entry.null_version
    if version == entry.version:
        return entry
    return tx.get(VERSION, (entry.parent, entry.name, version)) if version else None


def remove_version(tx: Tx, location: KeyLocation, version_id: str) -> tuple[str | None, bool]:
    """Delete one version permanently. Returns (its id, whether it was a delete marker)."""
    at = version_of(tx, location.entry, version_id)
    if at is None or location.entry is None:
        return version_id, False
    drop_version(tx, location.entry, at.version)
    delete_empty_implied(tx, at.parent)
    return version_id_text(at.version, at.null), at.node == 0


def drop_version(tx: Tx, entry: Entry, version: int) -> None:
    """Delete a version of the entry's name, current or not."""
    parent, name = entry.parent, entry.name
    if version == entry.version:
        prefetch_neighbours(tx, entry)
        if entry.older:
            _prefetch_older(tx, entry.older, entry)
    else:
        row = tx.get(VERSION, (parent, name, version))
        assert row is not None, "the command found it"
        wanted: list[RowKey] = [(VERSION, (parent, name, at)) for at in (row.older,) if at]
        if row.newer != entry.version:
            wanted.append((VERSION, (parent, name, row.newer)))
        if row.node:
            wanted.append((FILE, (row.node,)))
        tx.prefetch(wanted)
    tx.emit(VersionDeleted(parent, name, version, tx.at_ns))


def _prefetch_older(tx: Tx, version: int, entry: Entry) -> None:
    """Prefetch the next older version, which becomes the current one, and the version below it, whose link changes."""
    next_older = tx.get(VERSION, (entry.parent, entry.name, version))
    if next_older is not None and next_older.older:
        tx.prefetch([(VERSION, (entry.parent, entry.name, next_older.older))])
