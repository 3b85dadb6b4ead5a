"""Commands that make and remove names, as POSIX does: directories, files, links, special files.

They work on rows in memory only. A change inside a directory that is only implied by S3 keys makes that directory
first (`ensure_made`), so it still exists when its last name is removed, as `rm -r` expects.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
"""The longest text of a symbolic link: Linux's PATH_MAX without the NUL."""


@command(140)
class Mkdir(Command[int]):
    """Make the directory *name* (with its slash) in the directory *parent*. Answers its node.

    Raises `NoSuchName` (no such parent), `NameExists`, `NameTooLong`, `TooDeep`, `InvalidArgument`."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes
    mode: int
    uid: int
    gid: int


def mkdir(command: Mkdir, tx: Tx) -> int:
    if not is_directory(command.name):
        raise InvalidArgument("the name of a directory must end with a slash")
    bucket = open_directories(tx, command.bucket, command.user, command.root, command.parent)
    state = look_up_name(tx, command.parent, command.name, (ENTRY, (command.parent, b"")))
    check_name_free(state)
    ensure_made(tx, bucket, command.parent, command.user)
    if state.directory is None:
        check_depth(load_climb(tx, command.parent) + 1)
        node = make_dir(tx, command.parent, command.name, command.mode, command.uid, command.gid)
        note_height(tx, command.parent, 1)
    else:  # a dead directory, which contains only versions and delete markers: it becomes live again
        node = state.directory.node
        at_ns = tx.at_ns
        require(tx.rows, DIR, (node,))
        tx.emit(DirAttributesSet(node, command.mode, command.uid, command.gid, at_ns, at_ns, at_ns))
    put_dir_marker(tx, bucket, require(tx.rows, DIR, (node,)), tx.get(ENTRY, (node, b"")), command.user)
    return node


@command(141, frees=True)
class Rmdir(Command[None]):
    """Remove the directory *name* (with its slash), which must contain nothing except its marker. Answers None.

    Raises `NoSuchName`, `NotADirectory`, `DirectoryNotEmpty`."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes


def rmdir(command: Rmdir, tx: Tx) -> None:
    bucket = open_directories(tx, command.bucket, command.user, command.root, command.parent)
    state = look_up_name(tx, command.parent, command.name, (ENTRY, (command.parent, b"")))
    if state.live_directory is None:
        raise (NotADirectory if state.live_file is not None else NoSuchName)(command.name)
    ensure_made(tx, bucket, command.parent, command.user)
    empty_out(tx, bucket, require(tx.rows, DIR, (state.live_directory.node,)))


def empty_out(tx: Tx, bucket: Bucket, directory: Dir) -> None:
    """Remove an empty directory. In a bucket with versioning it becomes dead, and keeps the versions that are in it.

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
    """Remove a live name that is not a directory's, by the rules of its bucket's versioning. No directory is removed
    with it."""
    prefetch_neighbours(tx, entry)
    remove_name(tx, KeyLocation(bucket, b"", entry.parent, (), entry.name, entry), keep_directories=True)


@command(142, frees=True)
class Unlink(Command[None]):
    """Remove a name, and with its last name the node. Answers None. Raises `NoSuchName`, `IsADirectory`."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes


def unlink(command: Unlink, tx: Tx) -> None:
    bucket = open_directories(tx, command.bucket, command.user, command.root, command.parent)
    state = look_up_name(tx, command.parent, command.name, (ENTRY, (command.parent, b"")))
    if is_directory(command.name) or state.live_file is None:
        raise (IsADirectory if state.live_directory is not None else NoSuchName)(command.name)
    ensure_made(tx, bucket, command.parent, command.user)
    take_name(tx, bucket, state.live_file)


@command(143)
class Mknod(Command[int]):
    """Make an empty file, FIFO, socket or device under a free name. Answers its node.

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


def mknod(command: Mknod, tx: Tx) -> int:
    kind = FileKind(command.kind)
    if kind in (FileKind.MARKER, FileKind.SYMLINK):
        raise InvalidArgument(f"mknod cannot make a node of kind {kind.name}")
    bucket, file = _free_name(tx, command.bucket, command.user, command.root, command.parent, command.name)
    node = new_node(tx, kind, command.user, command.mode, command.uid, command.gid, rdev=command.rdev)
    put_name(tx, bucket, command.parent, command.name, file, node)
    return node


class _FreeName(NamedTuple):
    """A name that no live entry has."""

    bucket: Bucket
    file: Entry | None
    """The dead entry that has the name, with the versions below it."""


def _free_name(tx: Tx, bucket_name: str, user: int, root: bool, parent: int, name: bytes) -> _FreeName:
    """Check that *name* may be made in the directory *parent*, and make that directory if S3 keys only imply it.

    Raises as `Mkdir`."""
    if is_directory(name):
        raise InvalidArgument("only the name of a directory may end with a slash")
    bucket = open_directories(tx, bucket_name, user, root, parent)
    state = look_up_name(tx, parent, name, (ENTRY, (parent, b"")))
    check_name_free(state)
    ensure_made(tx, bucket, parent, user)
    return _FreeName(bucket, state.file)


@command(144)
class Symlink(Command[int]):
    """Make a symbolic link with the text *target*, which is not interpreted. Answers its node. Raises as `Mkdir`."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes
    target: bytes
    uid: int
    gid: int


def symlink(command: Symlink, tx: Tx) -> int:
    if not 0 < len(command.target) <= SYMLINK_BYTES or b"\0" in command.target:
        raise InvalidArgument(f"the text of a symbolic link must have 1 to {SYMLINK_BYTES} bytes and no NUL")
    bucket, file = _free_name(tx, command.bucket, command.user, command.root, command.parent, command.name)
    node = new_node(tx, FileKind.SYMLINK, command.user, 0o777, command.uid, command.gid, target=command.target)
    put_name(tx, bucket, command.parent, command.name, file, node)
    return node


@command(145)
class Link(Command[int]):
    """Make a hard link: a further name, *to_name* in *to_parent*, for the node of *name* in *parent*. Answers the node.

    Raises as `Mkdir`, and `NoSuchName`, `IsADirectory`, `TooManyLinks`."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes
    to_parent: int
    to_name: bytes


def link(command: Link, tx: Tx) -> int:
    open_directories(tx, command.bucket, command.user, command.root, command.parent, command.to_parent)
    entry = file_at(look_up_name(tx, command.parent, command.name))
    file = require(tx.rows, FILE, (entry.node,))
    if file.links >= MOST_LINKS:
        raise TooManyLinks(command.name)
    bucket, dead = _free_name(tx, command.bucket, command.user, command.root, command.to_parent, command.to_name)
    put_name(tx, bucket, command.to_parent, command.to_name, dead, entry.node)
    return entry.node


def file_at(state: NameState) -> Entry:
    """Return the live entry, which must not be a directory. Raises `NoSuchName`, `IsADirectory`."""
    if state.live_file is None:
        raise (IsADirectory if state.live_directory is not None else NoSuchName)(state.file_name)
    return state.live_file


HANDLERS: dict[type[Any], Any] = {
    Mkdir: mkdir,
    Rmdir: rmdir,
    Unlink: unlink,
    Mknod: mknod,
    Symlink: symlink,
    Link: link,
}
