"""Commands that change nodes, as POSIX does: content, clones, attributes, extended attributes.

They work on rows in memory only. Each names a bucket, which the user must be allowed to use, and a node, which the
worker found in that bucket. It names no key: a file may have many names, and an open file keeps its node when they are
removed.
"""

from __future__ import annotations

from typing import Any

from gateway.errors import InvalidArgument, NameExists, NoSuchName
from gateway.journal.apply.bytes import slice_content
from gateway.journal.columns import Extent, pack_map, unpack_map
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.bytes import BodyMade, NewBlock, RunMade
from gateway.journal.records.tree import (
    DirAttributesSet,
    DirXattrsSet,
    FileAttributesSet,
    FileContentSet,
    FileXattrsSet,
)
from gateway.journal.rows import RowKey, require
from gateway.journal.tables import BLOCK, BODY, DIR, ENTRY, FILE, RUN, Dir, File, FileKind, Shape
from gateway.namespace.commands.complete import MOST_PIECES
from gateway.namespace.commands.names import file_at
from gateway.namespace.name_lookup import (
    check_name_free,
    ensure_made,
    look_up_name,
    new_node,
    open_directories,
    written_etag,
)
from gateway.namespace.paths import bucket_of
from gateway.namespace.versioning import put_name

OLD, NEW = 0, 1
"""The origin of a range in a file's layout: the content that the file has, or the run that comes with the command."""
XATTR_NAME_BYTES = 255
XATTR_VALUE_BYTES = 64 * 1024
XATTRS_BYTES = 256 * 1024
"""The most bytes of all extended attributes of a node, packed."""


def file_node(tx: Tx, node: int) -> File:
    """Return the row of the file *node*. Raises `NoSuchName`."""
    file = tx.get(FILE, (node,))
    if file is None or file.kind == FileKind.MARKER:
        raise NoSuchName(f"node {node:x}")
    return file


@command(150)
class SetContent(Command[str]):
    """Replace the content of the file *node*, under all of its names, by the ranges in *layout*: a list of (OLD or NEW,
    offset, length). An empty layout means the whole new run. ((OLD, 0, length),) truncates the file to *length*.

    *was* is the ETag that the file had when the layout was made. Answers the new ETag.
    Raises `NoSuchName`, `InvalidArgument` (the layout does not fit, or the file has changed)."""

    bucket: str
    user: int
    root: bool
    node: int
    was: str
    layout: tuple[tuple[int, int, int], ...]
    extents: tuple[Extent, ...]
    blocks: tuple[NewBlock, ...]
    policy: int
    checksums: bytes
    """packed, as in `File`."""
    mtime_ns: int | None = None
    """None: now."""


def set_content(command: SetContent, tx: Tx) -> str:
    also: list[RowKey] = [(BLOCK, (block.id,)) for block in command.blocks]
    tx.prefetch([(FILE, (command.node,)), *also])
    bucket_of(tx, command.bucket, command.user, command.root)
    file = file_node(tx, command.node)
    if file.kind != FileKind.FILE or file.etag != command.was:
        raise InvalidArgument("the node is not a file, or the file was changed by another client")
    new_bytes = sum(extent.length for extent in command.extents)
    layout = [step for step in command.layout or ((NEW, 0, new_bytes),) if step[2]]
    _check_layout(layout, file.size, new_bytes)
    run = tx.new_id() if command.extents else 0
    if run:
        tx.emit(RunMade(run, command.policy, command.extents, command.blocks))
    slices = [
        (int(Shape.RUN), run, offset, length) if origin == NEW else (file.shape, file.content, offset, length)
        for origin, offset, length in layout
    ]
    size = sum(length for _, _, length in layout)
    shape, content = _content(tx, file, slices, run, new_bytes)
    return _write(tx, command.bucket, file, size, shape, content, command.checksums, command.mtime_ns)


def _check_layout(layout: list[tuple[int, int, int]], old_bytes: int, new_bytes: int) -> None:
    used = 0
    for origin, offset, length in layout:
        most = new_bytes if origin == NEW else old_bytes
        if origin not in (OLD, NEW) or offset < 0 or length < 0 or offset + length > most:
            raise InvalidArgument("the layout names bytes that do not exist")
        used += origin == NEW
    if new_bytes and not used:
        raise InvalidArgument("the layout does not use the new bytes")


def _content(tx: Tx, file: File, slices: list[tuple[int, int, int, int]], run: int, new_bytes: int) -> tuple[int, int]:
    """Return the shape and id of the content that the slices make up: none, the new run, the old content unchanged, or
    a new body."""
    if not slices:
        return Shape.NONE, 0
    if slices == [(int(Shape.RUN), run, 0, new_bytes)]:
        return Shape.RUN, run
    if slices == [(file.shape, file.content, 0, file.size)]:
        return file.shape, file.content
    if file.shape == Shape.BODY:
        tx.prefetch([(BODY, (file.content,))])
    pieces = [piece for each in slices for piece in slice_content(tx.rows, *each)]
    if len(pieces) > MOST_PIECES:
        raise InvalidArgument(f"the file would have more than {MOST_PIECES} pieces")
    tx.prefetch([(RUN, (each,)) for each in dict.fromkeys(piece.run for piece in pieces)])
    body = tx.new_id()
    tx.emit(BodyMade(body, tuple(slices)))
    return Shape.BODY, body


def _write(
    tx: Tx, bucket: str, file: File, size: int, shape: int, content: int, checksums: bytes, mtime_ns: int | None
) -> str:
    etag = written_etag(tx, file.id)
    freed = tx.new_id() if file.shape != Shape.NONE else 0
    tx.prefetch([(RUN if shape == Shape.RUN else BODY, (content,))] if shape != Shape.NONE else [])
    mtime = tx.at_ns if mtime_ns is None else mtime_ns
    tx.emit(FileContentSet(file.id, bucket, size, int(shape), content, etag, checksums, mtime, tx.at_ns, freed))
    return etag


@command(151)
class Clone(Command[tuple[int, str]]):
    """Give *to_name* in *to_parent* the content of *name* in *parent*, which both then share. An existing file gets the
    content; a free name gets a new file with these attributes. Answers (node, ETag).

    Raises as `Mkdir`, and `NoSuchName`, `IsADirectory`, `InvalidArgument` (not a regular file)."""

    bucket: str
    user: int
    root: bool
    parent: int
    name: bytes
    to_parent: int
    to_name: bytes
    mode: int
    uid: int
    gid: int


def clone(command: Clone, tx: Tx) -> tuple[int, str]:
    bucket = open_directories(tx, command.bucket, command.user, command.root, command.parent, command.to_parent)
    source = require(tx.rows, FILE, (file_at(look_up_name(tx, command.parent, command.name)).node,))
    if source.kind != FileKind.FILE:
        raise InvalidArgument("only the content of a regular file can be cloned")
    if source.shape != Shape.NONE:
        tx.prefetch([(RUN if source.shape == Shape.RUN else BODY, (source.content,))])
    state = look_up_name(tx, command.to_parent, command.to_name, (ENTRY, (command.to_parent, b"")))
    if state.live_file is not None:
        target = require(tx.rows, FILE, (state.live_file.node,))
        if target.kind != FileKind.FILE:
            raise InvalidArgument("content can only be cloned into a regular file")
        return target.id, _write(
            tx, command.bucket, target, source.size, source.shape, source.content, source.checksums, None
        )
    check_name_free(state)
    ensure_made(tx, bucket, command.to_parent, command.user)
    node = new_node(
        tx, FileKind.FILE, command.user, command.mode, command.uid, command.gid, size=source.size, shape=source.shape,
        content=source.content, checksums=source.checksums,
    )  # fmt: skip
    put_name(tx, bucket, command.to_parent, command.to_name, state.file, node)
    return node, require(tx.rows, FILE, (node,)).etag


@command(152)
class SetAttributes(Command[None]):
    """Set mode, owner and times of a node. None leaves an attribute unchanged. Answers None. Raises `NoSuchName`."""

    bucket: str
    user: int
    root: bool
    node: int
    directory: bool
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    mtime_ns: int | None = None
    atime_ns: int | None = None


def set_attributes(command: SetAttributes, tx: Tx) -> None:
    row = _node(tx, command.bucket, command.user, command.root, command.node, command.directory)
    values = (
        row.id,
        row.mode if command.mode is None else command.mode,
        row.uid if command.uid is None else command.uid,
        row.gid if command.gid is None else command.gid,
        row.mtime_ns if command.mtime_ns is None else command.mtime_ns,
        tx.at_ns,
        row.atime_ns if command.atime_ns is None else command.atime_ns,
    )
    tx.emit(DirAttributesSet(*values) if command.directory else FileAttributesSet(*values))


def _node(tx: Tx, name: str, user: int, root: bool, node: int, directory: bool) -> Dir | File:
    if directory:
        open_directories(tx, name, user, root, node)
        return require(tx.rows, DIR, (node,))
    bucket_of(tx, name, user, root)
    return file_node(tx, node)


@command(153)
class SetXattr(Command[None]):
    """Set an extended attribute. *require*: "create" if it must not exist, "replace" if it must. Answers None.

    Raises `NameExists`, `NoSuchName`, `InvalidArgument`."""

    bucket: str
    user: int
    root: bool
    node: int
    directory: bool
    name: bytes
    value: bytes
    require: str = ""


def set_xattr(command: SetXattr, tx: Tx) -> None:
    row = _node(tx, command.bucket, command.user, command.root, command.node, command.directory)
    if not 0 < len(command.name) <= XATTR_NAME_BYTES or len(command.value) > XATTR_VALUE_BYTES:
        raise InvalidArgument(
            f"the name of an extended attribute must have 1 to {XATTR_NAME_BYTES} bytes, and its value at most "
            f"{XATTR_VALUE_BYTES}"
        )
    values = unpack_map(row.xattrs)
    if command.require == "create" and command.name in values:
        raise NameExists(command.name)
    if command.require == "replace" and command.name not in values:
        raise NoSuchName(command.name)
    _put_xattrs(tx, row, values | {command.name: command.value}, command.directory)


def _put_xattrs(tx: Tx, row: Dir | File, values: dict[bytes, bytes], directory: bool) -> None:
    packed = pack_map(dict(sorted(values.items())))
    if len(packed) > XATTRS_BYTES:
        raise InvalidArgument(f"the extended attributes of a node have at most {XATTRS_BYTES} bytes together")
    made = DirXattrsSet(row.id, packed, tx.at_ns) if directory else FileXattrsSet(row.id, packed, tx.at_ns)
    tx.emit(made)


@command(154)
class RemoveXattr(Command[None]):
    """Remove an extended attribute. Answers None. Raises `NoSuchName`."""

    bucket: str
    user: int
    root: bool
    node: int
    directory: bool
    name: bytes


def remove_xattr(command: RemoveXattr, tx: Tx) -> None:
    row = _node(tx, command.bucket, command.user, command.root, command.node, command.directory)
    values = unpack_map(row.xattrs)
    if values.pop(command.name, None) is None:
        raise NoSuchName(command.name)
    _put_xattrs(tx, row, values, command.directory)


HANDLERS: dict[type[Any], Any] = {
    SetContent: set_content,
    Clone: clone,
    SetAttributes: set_attributes,
    SetXattr: set_xattr,
    RemoveXattr: remove_xattr,
}
