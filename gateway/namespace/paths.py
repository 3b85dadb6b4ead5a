"""Find the rows of a bucket and a key for commands. Works on rows in memory only.

Each step prefetches the rows that it is going to look up (`Tx.prefetch`), and requests a path of many directories as a
whole (`Descent`, `Climb`). So a command whose rows are not in memory needs few rounds, however deep its key is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.errors import AccessDenied, NoSuchBucket
from gateway.journal.commands import Tx
from gateway.journal.records.tree import DirDeleted, DirMade
from gateway.journal.rows import LEVELS_MAX, Climb, Descent, Overlay, RowKey, RowsNotLoaded, require
from gateway.journal.tables import BLOCK, BUCKET, DIR, ENTRY, FILE, VERSION, Bucket, Dir, Entry, File, Version
from gateway.namespace.conditions import ObjectState
from gateway.namespace.depth import LOW, note_height
from gateway.namespace.keys import SLASH, split

IMPLIED_MODE = 0o755
FEW_LEVELS = 4
"""A path of fewer directories is loaded level by level, together with those of other commands."""


class KeyLocation(NamedTuple):
    """The position of a key in the tree, whether it exists or not."""

    bucket: Bucket
    key: bytes
    parent: int
    """The deepest of the key's directories that exists."""
    unmade: tuple[bytes, ...]
    """The names of those that do not, below it."""
    name: bytes
    entry: Entry | None
    """None if the name, or one of its directories, does not exist."""


def bucket_of(tx: Tx, name: str, user: int, root: bool) -> Bucket:
    """Return the bucket if *user* may use it. Raises `NoSuchBucket`, `AccessDenied`."""
    bucket = tx.get(BUCKET, (name,))
    if bucket is None:
        raise NoSuchBucket(name)
    if bucket.owner != user and not root:
        raise AccessDenied(f"the bucket {name} belongs to somebody else")
    return bucket


def descend(tx: Tx, bucket: Bucket, key: bytes) -> KeyLocation:
    """Return the location of *key*. Also looks up the row of each directory, since changes of counts propagate up."""
    names = split(key)
    parent = bucket.root
    last = len(names) - 1
    for depth, name in enumerate(names):
        try:
            tx.get(DIR, (parent,))
            entry = tx.get(ENTRY, (parent, name))
        except RowsNotLoaded:
            if last - depth >= FEW_LEVELS:
                raise RowsNotLoaded((Descent(parent, tuple(names[depth : depth + LEVELS_MAX])),)) from None
            tx.prefetch([(DIR, (parent,)), (ENTRY, (parent, name))])
            raise
        if depth == last:
            return KeyLocation(bucket, key, parent, (), name, entry)
        if entry is None:
            return KeyLocation(bucket, key, parent, tuple(names[depth:last]), names[last], None)
        parent = entry.node
    raise AssertionError("a key has at least one name")


def locate_key(tx: Tx, name: str, key: bytes, user: int, root: bool, also: list[RowKey] | None = None) -> KeyLocation:
    """Return the location of *key* in the bucket *name*. Rows that are missing on the path are requested together with
    *also*, which the command looks up in any case."""
    try:
        bucket = bucket_of(tx, name, user, root)
        location = descend(tx, bucket, key)
    except RowsNotLoaded as missing:
        if also:
            tx.prefetch([*missing.wanted, *also])
        raise
    if also:
        tx.prefetch(also)
    return location


def rows_to_prefetch(commands: Sequence[Any], rows: Overlay) -> list[RowKey]:
    """Return the rows that *commands* on a `bucket` and a `key` will look up: entries whose directories are in memory,
    the nodes of these entries, and the blocks that the commands name. A `Prefetcher` (`journal/commands.py`)."""
    wanted: list[RowKey] = []
    parents: dict[tuple[str, bytes], int] = {}
    for each in commands:
        key = each.key
        end = key.rfind(SLASH) + 1
        path = (each.bucket, key[:end])
        parent = parents.get(path)
        if parent is None:
            parent = parents[path] = _known_directory(rows, *path)
        if parent:
            name = (ENTRY, (parent, key[end:]))
            if rows.is_loaded(name):
                entry = rows.get(*name)
                if entry is not None and entry.node and not rows.is_loaded(node := (FILE, (entry.node,))):
                    wanted.append(node)
            else:
                wanted.append(name)
        brought = [(BLOCK, (block.id,)) for block in getattr(each, "blocks", ())]
        wanted += [block for block in brought if not rows.is_loaded(block)]
    return wanted


def _known_directory(rows: Overlay, bucket: str, path: bytes) -> int:
    """Return the directory of this path; 0 if there is none, or if a row of the path is not in memory."""
    try:
        row = rows.get(BUCKET, (bucket,))
        parent = 0 if row is None else row.root
        for name in split(path)[:-1]:
            entry = rows.get(ENTRY, (parent, name)) if parent else None
            parent = 0 if entry is None else entry.node
    except RowsNotLoaded:
        return 0
    return parent


def weigh_key(command: Any) -> int:
    """Return the weight of a command on a `key`, with the `extents` that it may name (`journal/commands.py`)."""
    return 1 + int(command.key.count(SLASH)) + len(getattr(command, "extents", ()))


def ensure_parents(tx: Tx, location: KeyLocation) -> int:
    """Make the missing directories of a key as implied ones. Returns the directory that contains the key's name."""
    above = parent = location.parent
    for name in location.unmade:
        above, parent = parent, make_dir(tx, parent, name)
    if location.unmade and location.key.count(SLASH) >= LOW:
        note_height(tx, above, 1)
    return parent


def make_dir(tx: Tx, parent: int, name: bytes, mode: int = IMPLIED_MODE, uid: int = 0, gid: int = 0) -> int:
    made = tx.new_id()
    tx.emit(DirMade(parent, name, made, mode, uid, gid, tx.at_ns))
    return made


def delete_empty_implied(tx: Tx, directory: int) -> None:
    """Delete implied directories that have become empty, upwards. A made directory contains its entry with the empty
    name, so it is kept."""
    while True:
        row = require(tx.rows, DIR, (directory,))
        if row.entries or not row.parent:
            return
        tx.prefetch([(DIR, (row.parent,)), (ENTRY, (row.parent, row.name))])
        tx.emit(DirDeleted(row.parent, row.name, tx.at_ns))
        directory = row.parent


def directory(tx: Tx, bucket: Bucket, node: int) -> Dir | None:
    """The directory *node*, if there is one in *bucket*."""
    row = tx.get(DIR, (node,))
    return row if row is not None and row.bucket == bucket.name else None


def load_climb(tx: Tx, node: int) -> int:
    """Load what a change of live counts may climb through. Returns how many directories *node* is below the root."""
    levels = 0
    while True:
        try:
            row = require(tx.rows, DIR, (node,))
            if not row.parent:
                return levels
            tx.get(ENTRY, (row.parent, row.name))
        except RowsNotLoaded as missing:
            raise RowsNotLoaded((*missing.wanted, Climb(node))) from None
        node = row.parent
        levels += 1


def current_file(tx: Tx, entry: Entry | None) -> File | None:
    """The node of the current version; None for no entry and for a delete marker."""
    return require(tx.rows, FILE, (entry.node,)) if entry is not None and entry.node else None


def object_state(tx: Tx, entry: Entry | None) -> ObjectState | None:
    """Return the values of the current version that conditions are compared with."""
    file = current_file(tx, entry)
    return None if file is None or entry is None else version_state(entry, file)


def version_state(at: Entry | Version, file: File) -> ObjectState:
    return ObjectState(file.etag, file.size, max(at.modified_ns, file.written_ns))


def prefetch_neighbours(tx: Tx, entry: Entry) -> None:
    """Prefetch all rows that replacing or removing the current version changes: its node and the adjacent versions."""
    if not entry.older and (entry.null or not entry.null_version):  # as where there was never any versioning
        if entry.node:
            tx.get(FILE, (entry.node,))
        return
    wanted: list[RowKey] = []
    if entry.node:
        wanted.append((FILE, (entry.node,)))
    if entry.older:
        wanted.append((VERSION, (entry.parent, entry.name, entry.older)))
    if entry.null_version and not entry.null and entry.null_version != entry.older:
        wanted.append((VERSION, (entry.parent, entry.name, entry.null_version)))
    if wanted:
        tx.prefetch(wanted)
