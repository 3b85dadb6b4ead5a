"""Renaming by POSIX's rules, in O(1): one entry moves, whatever is below it. Works on rows in memory only.

Where versions are kept, a file's rename is what S3 would see: a new version at the new name, a delete marker at the
old one. A directory moves with its history.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Any

from gateway.errors import (
    Cycle,
    DirectoryNotEmpty,
    InvalidArgument,
    IsADirectory,
    NameExists,
    NameTooLong,
    NoSuchName,
    NotADirectory,
)
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.tree import EntryMoved
from gateway.journal.rows import require
from gateway.journal.tables import DIR, ENTRY, FILE, Bucket, Entry, Versioning
from gateway.namespace.commands.names import empty_out, take_name
from gateway.namespace.depth import check_move, height_of, note_height
from gateway.namespace.name_lookup import NameState, base_of, ensure_made, is_directory, look_up_name, open_directories
from gateway.namespace.paths import load_climb, prefetch_neighbours
from gateway.namespace.posix_names import NAME_BYTES
from gateway.namespace.version_ids import encode_version_id
from gateway.namespace.versioning import drop_version, put_name


class How(IntFlag):
    """renameat2(2)'s flags."""

    NOREPLACE = 1
    EXCHANGE = 2


@command(146)
class Rename(Command[None]):
    """Move the entry *name* of *parent* to *to_name* in *to_parent*, replacing the entry there, or with EXCHANGE swap
    the two. A directory's name ends in a slash; without EXCHANGE both names must, or neither.

    Answers None. Raises `NoSuchName`, `NameExists` (NOREPLACE), `IsADirectory`, `NotADirectory`, `DirectoryNotEmpty`,
    `Cycle`, `NameTooLong`, `TooDeep`, `InvalidArgument`."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes
    to_parent: int
    to_name: bytes
    flags: int = 0


def rename(asked: Rename, tx: Tx) -> None:
    how = How(asked.flags)
    if How.NOREPLACE in how and How.EXCHANGE in how:
        raise InvalidArgument("NOREPLACE and EXCHANGE exclude each other")
    bucket = open_directories(tx, asked.bucket, asked.user, asked.root, asked.parent, asked.to_parent)
    source = look_up_name(tx, asked.parent, asked.name, (ENTRY, (asked.parent, b"")), (ENTRY, (asked.to_parent, b"")))
    target = look_up_name(tx, asked.to_parent, asked.to_name)
    entry = _live(source, asked.name)
    depth, to_depth = (load_climb(tx, parent) + 1 for parent in (asked.parent, asked.to_parent))
    _check_cycle(tx, entry, asked.to_parent, asked.name)
    if How.EXCHANGE in how:
        other = _live(target, asked.to_name)
        _check_cycle(tx, other, asked.parent, asked.to_name)
        _check_fits(tx, entry, depth, to_depth)
        _check_fits(tx, other, to_depth, depth)
        _ensure_both_made(asked, bucket, tx)
        _exchange(tx, bucket, entry, other)
        return
    if is_directory(asked.name) != is_directory(asked.to_name):
        raise InvalidArgument("a rename makes no directory of a file, nor the other way round")
    if (asked.parent, asked.name) == (asked.to_parent, asked.to_name):
        return
    _check_target(target, entry, how)
    _check_fits(tx, entry, depth, to_depth)
    if not is_directory(asked.name) and target.live_file is not None and target.live_file.node == entry.node:
        return  # two names of one node: POSIX leaves both, and their directories
    _ensure_both_made(asked, bucket, tx)
    if is_directory(asked.name):
        _move_directory(tx, bucket, entry, target)
    else:
        _move_file(tx, bucket, entry, target)


def _live(there: NameState, name: bytes) -> Entry:
    entry = there.live_directory if is_directory(name) else there.live_file
    if entry is None:
        raise NoSuchName(name)
    return entry


def _ensure_both_made(asked: Rename, bucket: Bucket, tx: Tx) -> None:
    ensure_made(tx, bucket, asked.parent, asked.user)
    ensure_made(tx, bucket, asked.to_parent, asked.user)


def _check_cycle(tx: Tx, moved: Entry, into: int, name: bytes) -> None:
    """Raise `Cycle` if a directory would move below itself."""
    if not is_directory(moved.name):
        return
    while into:
        if into == moved.node:
            raise Cycle(name)
        into = require(tx.rows, DIR, (into,)).parent


def _check_fits(tx: Tx, moved: Entry, depth: int, to_depth: int) -> None:
    """A directory does not move so far down that those below it are too deep. Raises `TooDeep`."""
    if is_directory(moved.name):
        check_move(require(tx.rows, DIR, (moved.node,)), depth, to_depth)


def _note_moved(tx: Tx, moved: Entry, parent: int) -> None:
    """An entry stands in *parent* now."""
    if is_directory(moved.name):
        note_height(tx, parent, height_of(require(tx.rows, DIR, (moved.node,))) + 1)


def _check_target(target: NameState, entry: Entry, how: How) -> None:
    stands = target.live_directory or target.live_file
    if stands is None and len(target.file_name) > NAME_BYTES:
        raise NameTooLong(target.file_name)
    if stands is not None and How.NOREPLACE in how:
        raise NameExists(target.file_name)
    if is_directory(entry.name):
        if target.live_file is not None and target.live_directory is None:
            raise NotADirectory(target.file_name)
    elif target.live_directory is not None and target.live_file is None:
        raise IsADirectory(target.file_name)


def _move_directory(tx: Tx, bucket: Bucket, entry: Entry, target: NameState) -> None:
    """Onto nothing, or onto an empty directory; one that is dead but has history in it stands in the way."""
    if target.directory is not None:
        row = require(tx.rows, DIR, (target.directory.node,))
        if not target.directory.dead:
            empty_out(tx, bucket, row)
        if tx.get(ENTRY, (target.parent, target.directory_name)) is not None:
            raise DirectoryNotEmpty(target.directory_name)
    tx.emit(EntryMoved(entry.parent, entry.name, target.parent, target.directory_name, tx.at_ns))
    _note_moved(tx, entry, target.parent)


def _move_file(tx: Tx, bucket: Bucket, entry: Entry, target: NameState) -> None:
    tx.prefetch([(FILE, (entry.node,))])
    prefetch_neighbours(tx, entry)
    if bucket.versioning != Versioning.OFF:
        put_name(tx, bucket, target.parent, target.file_name, target.file, entry.node)
        take_name(tx, bucket, entry)
        return
    if target.file is not None:
        drop_version(tx, target.file, target.file.version)
    tx.emit(EntryMoved(entry.parent, entry.name, target.parent, target.file_name, tx.at_ns))


def _exchange(tx: Tx, bucket: Bucket, one: Entry, other: Entry) -> None:
    if one.node == other.node:
        return
    if bucket.versioning != Versioning.OFF and not (is_directory(one.name) and is_directory(other.name)):
        _exchange_versions(tx, bucket, one, other)
        return
    aside = b"\0" + encode_version_id(tx.new_id()).encode() + (b"/" if is_directory(one.name) else b"")
    for_one = base_of(other.name) + (b"/" if is_directory(one.name) else b"")
    for_other = base_of(one.name) + (b"/" if is_directory(other.name) else b"")
    if not for_one or not for_other:
        raise InvalidArgument("only a directory can have no name but its slash")
    tx.emit(EntryMoved(one.parent, one.name, one.parent, aside, tx.at_ns))
    for parent, name in ((one.parent, for_other), (other.parent, for_one)):
        stands = tx.get(ENTRY, (parent, name))
        if stands is not None and (parent, name) != (other.parent, other.name):
            raise NameExists(name)
    tx.emit(EntryMoved(other.parent, other.name, one.parent, for_other, tx.at_ns))
    tx.emit(EntryMoved(one.parent, aside, other.parent, for_one, tx.at_ns))
    _note_moved(tx, one, other.parent)
    _note_moved(tx, other, one.parent)


def _exchange_versions(tx: Tx, bucket: Bucket, one: Entry, other: Entry) -> None:
    """Where versions are kept, two files get each other's node as a new version."""
    if is_directory(one.name) or is_directory(other.name):
        raise InvalidArgument("a file and a directory are not exchanged where versions are kept")
    tx.prefetch([(FILE, (one.node,)), (FILE, (other.node,))])
    put_name(tx, bucket, one.parent, one.name, one, other.node)
    put_name(tx, bucket, other.parent, other.name, other, one.node)


HANDLERS: dict[type[Any], Any] = {Rename: rename}
