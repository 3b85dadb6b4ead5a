"""Commands on S3's objects: put, delete, set tags and headers. They work on rows in memory only.

The bytes of an object are stored before the command that names them is sent. Each command carries its user, and is
checked against the bucket's owner here, since the owner may have changed since the worker checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from gateway.errors import DeleteMarker, InvalidArgument, NoSuchKey, NoSuchVersion, Refused
from gateway.journal.columns import Extent
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.bytes import NewBlock, RunMade
from gateway.journal.records.tree import DirDeleted, FileHeadersSet, FileMade
from gateway.journal.rows import LoadRequest, RowKey, RowsNotLoaded, require
from gateway.journal.tables import BLOCK, ENTRY, FILE, Bucket, Entry, FileKind, Shape, Version
from gateway.namespace.conditions import Preconditions, check_write
from gateway.namespace.keys import SLASH, check_existing_key, check_new_key
from gateway.namespace.paths import (
    KeyLocation,
    bucket_of,
    descend,
    ensure_parents,
    locate_key,
    object_state,
    prefetch_neighbours,
    rows_to_prefetch,
    version_state,
    weigh_key,
)
from gateway.namespace.version_ids import s3_version_id, version_id_text
from gateway.namespace.versioning import put_name, remove_name, remove_version, version_of

FILE_MODE = 0o644


class Written(NamedTuple):
    """The answer of a command that puts a version of a key."""

    version: str | None
    """As S3 shows it; None in a bucket without versioning."""
    modified_ns: int
    """LastModified."""


class Removed(NamedTuple):
    """The answer of a command that deletes a key or a version of it."""

    version: str | None
    """As S3 shows it, or None."""
    delete_marker: bool
    """Whether a delete marker was made or removed."""


@command(100, prefetch=rows_to_prefetch, weight=weigh_key)
class PutObject(Command[Written]):
    """Make the bytes in *extents* the current version of *key*. Answers `Written`.

    Raises `NoSuchBucket`, `AccessDenied`, `InvalidKey`, `PreconditionFailed`, `NoSuchKey` (If-Match on an absent key).
    """

    bucket: str
    key: bytes
    user: int
    root: bool
    size: int
    etag: str
    extents: tuple[Extent, ...]
    blocks: tuple[NewBlock, ...]
    """Describes each block that contains the extents."""
    policy: int
    headers: bytes
    """packed, as in `File`; so are the next two."""
    checksums: bytes
    tags: bytes
    conditions: Preconditions | None = None


def put_object(command: PutObject, tx: Tx) -> Written:
    check_new_key(command.key)
    also: list[RowKey] = [(BLOCK, (block.id,)) for block in command.blocks]
    location = locate_key(tx, command.bucket, command.key, command.user, command.root, also)
    if location.entry is not None:
        prefetch_neighbours(tx, location.entry)
    if command.conditions is not None:
        check_write(command.conditions, command.key, object_state(tx, location.entry))
    shape, content = Shape.NONE, 0
    if command.extents:
        shape, content = Shape.RUN, tx.new_id()
        tx.emit(RunMade(content, command.policy, command.extents, command.blocks))
    return name_object(
        tx, location, size=command.size, shape=shape, content=content, etag=command.etag, owner=command.user,
        headers=command.headers, checksums=command.checksums, tags=command.tags,
    )  # fmt: skip


def name_object(
    tx: Tx, location: KeyLocation, *, size: int, shape: int, content: int, etag: str, owner: int,
    headers: bytes, checksums: bytes, tags: bytes,
) -> Written:  # fmt: skip
    """Make a new node with these attributes, and make it the current version of the key at *location*."""
    parent = ensure_parents(tx, location)
    node = tx.new_id()
    kind = FileKind.FILE if location.name else FileKind.MARKER
    tx.emit(
        FileMade(
            node, int(kind), size, int(shape), content, etag, owner, FILE_MODE, 0, 0, tx.at_ns, tx.at_ns, 0, b"",
            headers, checksums, tags, b"",
        )
    )  # fmt: skip
    version, null = put_name(tx, location.bucket, parent, location.name, location.entry, node)
    return Written(s3_version_id(version, null, location.bucket.versioning), tx.at_ns)


@command(101, frees=True, prefetch=rows_to_prefetch, weight=weigh_key)
class DeleteObject(Command[Removed]):
    """Delete the key, or one *version* of it: "" for the key, otherwise a version id as S3 shows it. Answers `Removed`.

    Raises `NoSuchBucket`, `AccessDenied`, `PreconditionFailed`, `InvalidArgument` (not a version id)."""

    bucket: str
    key: bytes
    user: int
    root: bool
    version: str = ""
    conditions: Preconditions | None = None


def delete_object(command: DeleteObject, tx: Tx) -> Removed:
    check_existing_key(command.key)
    location = locate_key(tx, command.bucket, command.key, command.user, command.root)
    return _delete(tx, location, command.version, command.conditions)


def _delete(tx: Tx, location: KeyLocation, version: str, conditions: Preconditions | None) -> Removed:
    if location.entry is not None and (version or conditions is not None or location.bucket.versioning):
        prefetch_neighbours(tx, location.entry)  # otherwise `remove_name` does that
    if version:
        if conditions is not None:
            at = version_of(tx, location.entry, version)
            file = tx.get(FILE, (at.node,)) if at is not None and at.node else None
            check_write(
                conditions, location.key, version_state(at, file) if at is not None and file is not None else None
            )
        return Removed(*remove_version(tx, location, version))
    if conditions is not None:
        check_write(conditions, location.key, object_state(tx, location.entry))
    if location.entry is None:
        check_new_key(location.key)  # no delete marker under a key that no object may have
    return Removed(*remove_name(tx, location))


class Doomed(NamedTuple):
    """One of the keys of a `DeleteObjects`. The fields are those of a `DeleteObject`."""

    key: bytes
    version: str = ""
    conditions: Preconditions | None = None


SLICE_WEIGHT = 512
"""The maximum weight of a `DeleteObjects` of several keys, which occupies the committer for a few milliseconds."""


def weigh_doomed(doomed: Doomed) -> int:
    """Return about how many rows the deletion of one key looks up."""
    return 2 + doomed.key.count(SLASH)


def slices(wanted: Iterable[Doomed]) -> Iterator[tuple[Doomed, ...]]:
    """Cut a long list into slices, in its order, each of which fits into one `DeleteObjects`."""
    some: list[Doomed] = []
    weight = 0
    for doomed in wanted:
        more = weigh_doomed(doomed)
        if some and weight + more > SLICE_WEIGHT:
            yield tuple(some)
            some, weight = [], 0
        some.append(doomed)
        weight += more
    if some:
        yield tuple(some)


@command(102, frees=True, weight=lambda command: sum(map(weigh_doomed, command.wanted)))
class DeleteObjects(Command[Sequence[tuple[Any, ...]]]):
    """Delete many keys in one command, each with its own outcome: at most those of one slice (`slices`).

    Answers a list: ("", version, delete marker) for a deleted key, as in `Removed`, or (the error's wire code,
    *arguments) for a refused one. Raises `InvalidArgument` for a list that is longer than a slice."""

    bucket: str
    user: int
    root: bool
    wanted: tuple[Doomed, ...]


def delete_objects(command: DeleteObjects, tx: Tx) -> list[tuple[Any, ...]]:
    if len(command.wanted) > 1 and sum(map(weigh_doomed, command.wanted)) > SLICE_WEIGHT:
        raise InvalidArgument("a deletion of this many keys must be cut into slices")
    bucket = bucket_of(tx, command.bucket, command.user, command.root)
    parents = _load_directories(tx, bucket, [doomed.key for doomed in command.wanted])
    outcomes: list[tuple[Any, ...]] = []
    for key, version, conditions in command.wanted:
        try:
            check_existing_key(key)
            end = key.rfind(SLASH) + 1
            parent = parents.get(key[:end])
            if parent:
                location = KeyLocation(bucket, key, parent, (), key[end:], tx.get(ENTRY, (parent, key[end:])))
            else:
                location = descend(tx, bucket, key)
            removed = _delete(tx, location, version, conditions)
        except Refused as refused:
            outcomes.append((refused.wire_code, *refused.args))
        else:
            outcomes.append(("", *removed))
            if tx.records and type(tx.records[-1]) is DirDeleted:
                parents.clear()  # the deleted directory may be one of them
    return outcomes


def _load_directories(tx: Tx, bucket: Bucket, keys: list[bytes]) -> dict[bytes, int]:
    """Load the directories and entries of *keys*. Returns the directories by path; 0 for one that does not exist.

    The missing rows of all keys are requested together, level by level, and a directory that several keys share is
    looked up once. Raises `RowsNotLoaded`."""
    missing: list[LoadRequest] = []
    parents: dict[bytes, int] = {}
    for key in keys:
        end = key.rfind(SLASH) + 1
        path = key[:end]
        try:
            parent = parents.get(path)
            if parent is None:
                location = descend(tx, bucket, key)
                parent = parents[path] = 0 if location.unmade else location.parent
            entry = tx.get(ENTRY, (parent, key[end:])) if parent else None
            if entry is not None:
                prefetch_neighbours(tx, entry)
        except RowsNotLoaded as these:
            missing.extend(these.wanted)
    if missing:
        raise RowsNotLoaded(dict.fromkeys(missing))
    return parents


@command(103, weight=weigh_key)
class SetTags(Command[str | None]):
    """Replace the tags (packed) of a version's node, which all names of the node share. Answers the version as S3 shows
    it.

    Raises `NoSuchKey`, `NoSuchVersion`, `DeleteMarker`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    version: str
    tags: bytes


def set_tags(command: SetTags, tx: Tx) -> str | None:
    location = locate_key(tx, command.bucket, command.key, command.user, command.root)
    at = existing(tx, location, command.version)
    file = require(tx.rows, FILE, (at.node,))
    tx.emit(FileHeadersSet(file.id, file.headers, command.tags, tx.at_ns))
    return s3_version_id(at.version, at.null, location.bucket.versioning)


@command(104, weight=weigh_key)
class SetHeaders(Command[str | None]):
    """Replace the content headers and user metadata (packed) of a version's node, in place. Answers and raises as
    `SetTags`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    version: str
    headers: bytes


def set_headers(command: SetHeaders, tx: Tx) -> str | None:
    location = locate_key(tx, command.bucket, command.key, command.user, command.root)
    at = existing(tx, location, command.version)
    file = require(tx.rows, FILE, (at.node,))
    tx.emit(FileHeadersSet(file.id, command.headers, file.tags, tx.at_ns))
    return s3_version_id(at.version, at.null, location.bucket.versioning)


def existing(tx: Tx, location: KeyLocation, version: str) -> Entry | Version:
    """Return the current version, or the version with the id *version*, which must not be a delete marker.

    Raises `NoSuchKey`, `NoSuchVersion`, `DeleteMarker` (for a version that was given by its id)."""
    if not version:
        if location.entry is None or not location.entry.node:
            raise NoSuchKey(location.key)
        return location.entry
    at = version_of(tx, location.entry, version)
    if at is None:
        raise NoSuchVersion(location.key, version)
    if not at.node:
        current = location.entry is not None and at.version == location.entry.version
        raise DeleteMarker(location.key, version_id_text(at.version, at.null), current)
    return at


HANDLERS: dict[type[Any], Any] = {
    PutObject: put_object,
    DeleteObject: delete_object,
    DeleteObjects: delete_objects,
    SetTags: set_tags,
    SetHeaders: set_headers,
}
