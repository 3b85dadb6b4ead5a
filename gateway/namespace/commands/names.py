"""Commands that make and remove names, as POSIX does: directories, files, links, special files. Rows in memory only.

Every change inside a directory that S3 implied makes it first, so that `rm -r` finds it where it was.
"""

from __future__ import annotations

from typing import Any

from gateway.errors import (
    DirectoryNotEmpty,
    InvalidArgument,
    IsADirectory,
    NoSuchName,
    NotADirectory,
    TooManyLinks,
)
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.tree import DirAttributesSet, DirDeleted
from gateway.journal.rows import require
from gateway.journal.tables import DIR, ENTRY, FILE, Bucket, Dir, Entry, FileKind
from gateway.namespace.depth import check_depth, note_height
from gateway.namespace.name_lookup import (
    NameState,
    check_name_free,
    ensure_made,
    is_directory,
    look_up_name,
    new_node,
    open_directories,
    put_dir_marker,
)
from gateway.namespace.paths import KeyLocation, load_climb, make_dir, prefetch_neighbours
from gateway.namespace.versioning import put_name, remove_name

MOST_LINKS = 65_000
SYMLINK_BYTES = 4095
"""The longest text of a symbolic link: PATH_MAX without its NUL."""


@command(140)
class Mkdir(Command[int]):
    """A directory *name* (with its slash) in the directory *parent*. Answers its node.

    Raises `NoSuchName` (no such parent), `NameExists`, `NameTooLong`, `TooDeep`, `InvalidArgument`."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes
    mode: int
    uid: int
    gid: int


def mkdir(asked: Mkdir, tx: Tx) -> int:
    if not is_directory(asked.name):
        raise InvalidArgument("a directory's name ends in a slash")
    bucket = open_directories(tx, asked.bucket, asked.user, asked.root, asked.parent)
    there = look_up_name(tx, asked.parent, asked.name, (ENTRY, (asked.parent, b"")))
    check_name_free(there)
    ensure_made(tx, bucket, asked.parent, asked.user)
    if there.directory is None:
        check_depth(load_climb(tx, asked.parent) + 1)
        node = make_dir(tx, asked.parent, asked.name, asked.mode, asked.uid, asked.gid)
        note_height(tx, asked.parent, 1)
    else:  # a dead one, with the history of what was in it
        node = there.directory.node
        at_ns = tx.at_ns
        require(tx.rows, DIR, (node,))
        tx.emit(DirAttributesSet(node, asked.mode, asked.uid, asked.gid, at_ns, at_ns, at_ns))
    put_dir_marker(tx, bucket, require(tx.rows, DIR, (node,)), tx.get(ENTRY, (node, b"")), asked.user)
    return node


@command(141, frees=True)
class Rmdir(Command[None]):
    """The directory *name* (with its slash), which nothing but its marker is in, goes. Answers None.

    Raises `NoSuchName`, `NotADirectory`, `DirectoryNotEmpty`."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes


def rmdir(asked: Rmdir, tx: Tx) -> None:
    bucket = open_directories(tx, asked.bucket, asked.user, asked.root, asked.parent)
    there = look_up_name(tx, asked.parent, asked.name, (ENTRY, (asked.parent, b"")))
    if there.live_directory is None:
        raise (NotADirectory if there.live_file is not None else NoSuchName)(asked.name)
    ensure_made(tx, bucket, asked.parent, asked.user)
    empty_out(tx, bucket, require(tx.rows, DIR, (there.live_directory.node,)))


def empty_out(tx: Tx, bucket: Bucket, directory: Dir) -> None:
    """An empty directory goes; where versions are kept, it dies, with its history in it.

    Raises `DirectoryNotEmpty`."""
    marker = tx.get(ENTRY, (directory.id, b""))
    marked = 1 if marker is not None and not marker.dead else 0
    if directory.live > marked:
        raise DirectoryNotEmpty(directory.name)
    if marker is not None and marked:
        take_name(tx, bucket, marker)
    left = tx.get(DIR, (directory.id,))
    if left is not None and left.entries == 0:
        tx.emit(DirDeleted(directory.parent, directory.name, tx.at_ns))


def take_name(tx: Tx, bucket: Bucket, entry: Entry) -> None:
    """A live name that is no directory's is removed as its bucket's versioning wants it, and no directory with it."""
    prefetch_neighbours(tx, entry)
    remove_name(tx, KeyLocation(bucket, b"", entry.parent, (), entry.name, entry), keep_directories=True)


@command(142, frees=True)
class Unlink(Command[None]):
    """The name goes, and its node with its last name. Answers None. Raises `NoSuchName`, `IsADirectory`."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes


def unlink(asked: Unlink, tx: Tx) -> None:
    bucket = open_directories(tx, asked.bucket, asked.user, asked.root, asked.parent)
    there = look_up_name(tx, asked.parent, asked.name, (ENTRY, (asked.parent, b"")))
    if is_directory(asked.name) or there.live_file is None:
        raise (IsADirectory if there.live_directory is not None else NoSuchName)(asked.name)
    ensure_made(tx, bucket, asked.parent, asked.user)
    take_name(tx, bucket, there.live_file)


@command(143)
class Mknod(Command[int]):
    """An empty file, or a fifo, socket or device, under a name that is free. Answers its node.

    Raises as `Mkdir`."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes
    kind: int
    """FILE, FIFO, SOCKET, CHAR or BLOCK."""
    mode: int
    uid: int
    gid: int
    rdev: int = 0


def mknod(asked: Mknod, tx: Tx) -> int:
    kind = FileKind(asked.kind)
    if kind in (FileKind.MARKER, FileKind.SYMLINK):
        raise InvalidArgument(f"a node of kind {kind.name} is not made so")
    there = _room_for(tx, asked.bucket, asked.user, asked.root, asked.parent, asked.name)
    node = new_node(tx, kind, asked.user, asked.mode, asked.uid, asked.gid, rdev=asked.rdev)
    put_name(tx, there[0], asked.parent, asked.name, there[1].file, node)
    return node


def _room_for(tx: Tx, name: str, user: int, root: bool, parent: int, entry: bytes) -> tuple[Bucket, NameState]:
    """The bucket and the free name; the directory is made sure of."""
    if is_directory(entry):
        raise InvalidArgument("only a directory's name ends in a slash")
    bucket = open_directories(tx, name, user, root, parent)
    there = look_up_name(tx, parent, entry, (ENTRY, (parent, b"")))
    check_name_free(there)
    ensure_made(tx, bucket, parent, user)
    return bucket, there


@command(144)
class Symlink(Command[int]):
    """A symbolic link to *target*, which is never looked at. Answers its node. Raises as `Mkdir`."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes
    target: bytes
    uid: int
    gid: int


def symlink(asked: Symlink, tx: Tx) -> int:
    if not 0 < len(asked.target) <= SYMLINK_BYTES or b"\0" in asked.target:
        raise InvalidArgument(f"a symbolic link's text has 1 to {SYMLINK_BYTES} bytes and no NUL")
    bucket, there = _room_for(tx, asked.bucket, asked.user, asked.root, asked.parent, asked.name)
    node = new_node(tx, FileKind.SYMLINK, asked.user, 0o777, asked.uid, asked.gid, target=asked.target)
    put_name(tx, bucket, asked.parent, asked.name, there.file, node)
    return node


@command(145)
class Link(Command[int]):
    """One more name, *to_name* in *to_parent*, for the node that *name* in *parent* points at. Answers the node.

    Raises as `Mkdir`, and `NoSuchName`, `IsADirectory`, `TooManyLinks`."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes
    to_parent: int
    to_name: bytes


def link(asked: Link, tx: Tx) -> int:
    open_directories(tx, asked.bucket, asked.user, asked.root, asked.parent, asked.to_parent)
    entry = file_at(look_up_name(tx, asked.parent, asked.name))
    file = require(tx.rows, FILE, (entry.node,))
    if file.links >= MOST_LINKS:
        raise TooManyLinks(asked.name)
    bucket, there = _room_for(tx, asked.bucket, asked.user, asked.root, asked.to_parent, asked.to_name)
    put_name(tx, bucket, asked.to_parent, asked.to_name, there.file, entry.node)
    return entry.node


def file_at(there: NameState) -> Entry:
    """The live entry that is no directory. Raises `NoSuchName`, `IsADirectory`."""
    if there.live_file is None:
        raise (IsADirectory if there.live_directory is not None else NoSuchName)(there.file_name)
    return there.live_file


HANDLERS: dict[type[Any], Any] = {
    Mkdir: mkdir,
    Rmdir: rmdir,
    Unlink: unlink,
    Mknod: mknod,
    Symlink: symlink,
    Link: link,
}
