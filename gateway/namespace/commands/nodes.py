"""Commands on nodes, as POSIX changes them: content, clones, attributes, extended attributes. Rows in memory only.

They say a bucket, which who asks must be allowed to use, and a node, which the front desk found in that bucket: a file
may have many names, and an open file keeps its node whatever becomes of them.
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
"""Where a stretch of a file's layout comes from: the content that it has, the run that comes with the command."""
XATTR_NAME_BYTES = 255
XATTR_VALUE_BYTES = 64 * 1024
XATTRS_BYTES = 256 * 1024
"""Of all of a node's, packed."""


def file_node(tx: Tx, node: int) -> File:
    """The file. Raises `NoSuchName`."""
    file = tx.get(FILE, (node,))
    if file is None or file.kind == FileKind.MARKER:
        raise NoSuchName(f"node {node:x}")
    return file


@command(150)
class SetContent(Command[str]):
    """The file *node* has other bytes, in all of its names: those of *layout*, a list of (OLD or NEW, offset, length);
    an empty layout is the whole of the new run. Truncating to a length is ((OLD, 0, length),).

    *was* is the ETag that the layout was made for. Answers the new ETag.
    Raises `NoSuchName`, `InvalidArgument` (a layout that does not fit, or no longer does)."""

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


def set_content(asked: SetContent, tx: Tx) -> str:
    also: list[RowKey] = [(BLOCK, (block.id,)) for block in asked.blocks]
    tx.prefetch([(FILE, (asked.node,)), *also])
    bucket_of(tx, asked.bucket, asked.user, asked.root)
    file = file_node(tx, asked.node)
    if file.kind != FileKind.FILE or file.etag != asked.was:
        raise InvalidArgument("the file was written by somebody else, or is none")
    new_bytes = sum(extent.length for extent in asked.extents)
    layout = [step for step in asked.layout or ((NEW, 0, new_bytes),) if step[2]]
    _check_layout(layout, file.size, new_bytes)
    run = tx.new_id() if asked.extents else 0
    if run:
        tx.emit(RunMade(run, asked.policy, asked.extents, asked.blocks))
    slices = [
        (int(Shape.RUN), run, offset, length) if origin == NEW else (file.shape, file.content, offset, length)
        for origin, offset, length in layout
    ]
    size = sum(length for _, _, length in layout)
    shape, content = _content(tx, file, slices, run, new_bytes)
    return _write(tx, asked.bucket, file, size, shape, content, asked.checksums, asked.mtime_ns)


def _check_layout(layout: list[tuple[int, int, int]], old_bytes: int, new_bytes: int) -> None:
    used = 0
    for origin, offset, length in layout:
        most = new_bytes if origin == NEW else old_bytes
        if origin not in (OLD, NEW) or offset < 0 or length < 0 or offset + length > most:
            raise InvalidArgument("the layout speaks of bytes that are not there")
        used += origin == NEW
    if new_bytes and not used:
        raise InvalidArgument("the layout does not use the bytes that came with it")


def _content(tx: Tx, file: File, slices: list[tuple[int, int, int, int]], run: int, new_bytes: int) -> tuple[int, int]:
    """What the slices come to: nothing, a run or the old content as it stands, or a new body."""
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
    """*to_name* in *to_parent* has the bytes of *name* in *parent*, and shares them: a file of that name is written, a
    free name gets a new file with these attributes. Answers (node, ETag).

    Raises as `Mkdir`, and `NoSuchName`, `IsADirectory`, `InvalidArgument` (no plain file)."""

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


def clone(asked: Clone, tx: Tx) -> tuple[int, str]:
    bucket = open_directories(tx, asked.bucket, asked.user, asked.root, asked.parent, asked.to_parent)
    source = require(tx.rows, FILE, (file_at(look_up_name(tx, asked.parent, asked.name)).node,))
    if source.kind != FileKind.FILE:
        raise InvalidArgument("only a file's bytes can be cloned")
    if source.shape != Shape.NONE:
        tx.prefetch([(RUN if source.shape == Shape.RUN else BODY, (source.content,))])
    there = look_up_name(tx, asked.to_parent, asked.to_name, (ENTRY, (asked.to_parent, b"")))
    if there.live_file is not None:
        target = require(tx.rows, FILE, (there.live_file.node,))
        if target.kind != FileKind.FILE:
            raise InvalidArgument("bytes can be cloned into a file only")
        return target.id, _write(
            tx, asked.bucket, target, source.size, source.shape, source.content, source.checksums, None
        )
    check_name_free(there)
    ensure_made(tx, bucket, asked.to_parent, asked.user)
    node = new_node(
        tx, FileKind.FILE, asked.user, asked.mode, asked.uid, asked.gid, size=source.size, shape=source.shape,
        content=source.content, checksums=source.checksums,
    )  # fmt: skip
    put_name(tx, bucket, asked.to_parent, asked.to_name, there.file, node)
    return node, require(tx.rows, FILE, (node,)).etag


@command(152)
class SetAttributes(Command[None]):
    """Mode, owner, times of a node; None leaves one as it is. Answers None. Raises `NoSuchName`."""

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


def set_attributes(asked: SetAttributes, tx: Tx) -> None:
    row = _node(tx, asked.bucket, asked.user, asked.root, asked.node, asked.directory)
    values = (
        row.id,
        row.mode if asked.mode is None else asked.mode,
        row.uid if asked.uid is None else asked.uid,
        row.gid if asked.gid is None else asked.gid,
        row.mtime_ns if asked.mtime_ns is None else asked.mtime_ns,
        tx.at_ns,
        row.atime_ns if asked.atime_ns is None else asked.atime_ns,
    )
    tx.emit(DirAttributesSet(*values) if asked.directory else FileAttributesSet(*values))


def _node(tx: Tx, name: str, user: int, root: bool, node: int, directory: bool) -> Dir | File:
    if directory:
        open_directories(tx, name, user, root, node)
        return require(tx.rows, DIR, (node,))
    bucket_of(tx, name, user, root)
    return file_node(tx, node)


@command(153)
class SetXattr(Command[None]):
    """An extended attribute; *require* is "create" or "replace" where it must be new or must be there. Answers None.

    Raises `NameExists`, `NoSuchName`, `InvalidArgument`."""

    bucket: str
    user: int
    root: bool
    node: int
    directory: bool
    name: bytes
    value: bytes
    require: str = ""


def set_xattr(asked: SetXattr, tx: Tx) -> None:
    row = _node(tx, asked.bucket, asked.user, asked.root, asked.node, asked.directory)
    if not 0 < len(asked.name) <= XATTR_NAME_BYTES or len(asked.value) > XATTR_VALUE_BYTES:
        raise InvalidArgument(f"an extended attribute has at most {XATTR_NAME_BYTES} and {XATTR_VALUE_BYTES} bytes")
    values = unpack_map(row.xattrs)
    if asked.require == "create" and asked.name in values:
        raise NameExists(asked.name)
    if asked.require == "replace" and asked.name not in values:
        raise NoSuchName(asked.name)
    _put_xattrs(tx, row, values | {asked.name: asked.value}, asked.directory)


def _put_xattrs(tx: Tx, row: Dir | File, values: dict[bytes, bytes], directory: bool) -> None:
    packed = pack_map(dict(sorted(values.items())))
    if len(packed) > XATTRS_BYTES:
        raise InvalidArgument(f"a node's extended attributes have at most {XATTRS_BYTES} bytes")
    made = DirXattrsSet(row.id, packed, tx.at_ns) if directory else FileXattrsSet(row.id, packed, tx.at_ns)
    tx.emit(made)


@command(154)
class RemoveXattr(Command[None]):
    """An extended attribute goes. Answers None. Raises `NoSuchName`."""

    bucket: str
    user: int
    root: bool
    node: int
    directory: bool
    name: bytes


def remove_xattr(asked: RemoveXattr, tx: Tx) -> None:
    row = _node(tx, asked.bucket, asked.user, asked.root, asked.node, asked.directory)
    values = unpack_map(row.xattrs)
    if values.pop(asked.name, None) is None:
        raise NoSuchName(asked.name)
    _put_xattrs(tx, row, values, asked.directory)


HANDLERS: dict[type[Any], Any] = {
    SetContent: set_content,
    Clone: clone,
    SetAttributes: set_attributes,
    SetXattr: set_xattr,
    RemoveXattr: remove_xattr,
}
