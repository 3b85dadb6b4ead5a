"""Renaming by POSIX's rules (rename(2), renameat2(2)), in O(1): one entry moves, however much is below it.

In a bucket with versioning, renaming a file makes a new version under the new name and a delete marker under the old
one, as S3 clients expect. A directory moves with all versions that are in it. Works on rows in memory only.
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
    """The flags of renameat2(2)."""

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


def rename(command: Rename, tx: Tx) -> None:
    how = How(command.flags)
    if How.NOREPLACE in how and How.EXCHANGE in how:
        raise InvalidArgument("NOREPLACE and EXCHANGE exclude each other")
    bucket = open_directories(tx, command.bucket, command.user, command.root, command.parent, command.to_parent)
    source = look_up_name(
        tx, command.parent, command.name, (ENTRY, (command.parent, b"")), (ENTRY, (command.to_parent, b""))
    )
    target = look_up_name(tx, command.to_parent, command.to_name)
    entry = _live(source, command.name)
    depth, to_depth = (load_climb(tx, parent) + 1 for parent in (command.parent, command.to_parent))
    _check_cycle(tx, entry, command.to_parent, command.name)
    if How.EXCHANGE in how:
        other = _live(target, command.to_name)
        _check_cycle(tx, other, command.parent, command.to_name)
        _check_fits(tx, entry, depth, to_depth)
        _check_fits(tx, other, to_depth, depth)
        _ensure_both_made(command, bucket, tx)
        _exchange(tx, bucket, entry, other)
        return
    if is_directory(command.name) != is_directory(command.to_name):
        raise InvalidArgument("a file cannot be renamed to a directory's name, nor a directory to a file's")
    if (command.parent, command.name) == (command.to_parent, command.to_name):
        return
    _check_target(target, entry, how)
    _check_fits(tx, entry, depth, to_depth)
    if not is_directory(command.name) and target.live_file is not None and target.live_file.node == entry.node:
        return  # two names of one node: POSIX demands that nothing changes
    _ensure_both_made(command, bucket, tx)
    if is_directory(command.name):
        _move_directory(tx, bucket, entry, target)
    else:
        _move_file(tx, bucket, entry, target)


def _live(state: NameState, name: bytes) -> Entry:
    entry = state.live_directory if is_directory(name) else state.live_file
    if entry is None:
        raise NoSuchName(name)
    return entry


def _ensure_both_made(command: Rename, bucket: Bucket, tx: Tx) -> None:
    ensure_made(tx, bucket, command.parent, command.user)
    ensure_made(tx, bucket, command.to_parent, command.user)


def _check_cycle(tx: Tx, moved: Entry, into: int, name: bytes) -> None:
    """Raise `Cycle` if a directory would move below itself."""
    if not is_directory(moved.name):
        return
    while into:
        if into == moved.node:
            raise Cycle(name)
        into = require(tx.rows, DIR, (into,)).parent


def _check_fits(tx: Tx, moved: Entry, depth: int, to_depth: int) -> None:
    """Raise `TooDeep` if the move would make a directory below *moved* too deep."""
    if is_directory(moved.name):
        check_move(require(tx.rows, DIR, (moved.node,)), depth, to_depth)


def _note_moved(tx: Tx, moved: Entry, parent: int) -> None:
    """Update the heights of *parent* and of the directories above it, since *moved* is in it now."""
    if is_directory(moved.name):
        note_height(tx, parent, height_of(require(tx.rows, DIR, (moved.node,))) + 1)


def _check_target(target: NameState, entry: Entry, how: How) -> None:
    existing = target.live_directory or target.live_file
    if existing is None and len(target.file_name) > NAME_BYTES:
        raise NameTooLong(target.file_name)
    if existing is not None and How.NOREPLACE in how:
        raise NameExists(target.file_name)
    if is_directory(entry.name):
        if target.live_file is not None and target.live_directory is None:
            raise NotADirectory(target.file_name)
    elif target.live_directory is not None and target.live_file is None:
        raise IsADirectory(target.file_name)


def _move_directory(tx: Tx, bucket: Bucket, entry: Entry, target: NameState) -> None:
    """Move a directory to a free name, or replace an empty directory. Raises `DirectoryNotEmpty`, also for a dead
    directory that contains versions."""
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
        raise InvalidArgument("only a directory may have an empty name before its slash")
    tx.emit(EntryMoved(one.parent, one.name, one.parent, aside, tx.at_ns))
    for parent, name in ((one.parent, for_other), (other.parent, for_one)):
        existing = tx.get(ENTRY, (parent, name))
        if existing is not None and (parent, name) != (other.parent, other.name):
            raise NameExists(name)
    tx.emit(EntryMoved(other.parent, other.name, one.parent, for_other, tx.at_ns))
    tx.emit(EntryMoved(one.parent, aside, other.parent, for_one, tx.at_ns))
    _note_moved(tx, one, other.parent)
    _note_moved(tx, other, one.parent)


def _exchange_versions(tx: Tx, bucket: Bucket, one: Entry, other: Entry) -> None:
    """Exchange two files in a bucket with versioning: each name gets the other's node as a new version."""
    if is_directory(one.name) or is_directory(other.name):
        raise InvalidArgument("a file and a directory cannot be exchanged in a bucket with versioning")
    tx.prefetch([(FILE, (one.node,)), (FILE, (other.node,))])
    put_name(tx, bucket, one.parent, one.name, one, other.node)
    put_name(tx, bucket, other.parent, other.name, other, one.node)


HANDLERS: dict[type[Any], Any] = {Rename: rename}
