"""POSIX's operations on names and nodes, by path within a bucket. A path has no leading slash. The empty path is the
root.

A path is resolved in this process, on the read store. The command then names nodes and is checked again in the
committer, so if a name changes in between, the operation is refused as if it had been called later. Symbolic links are
not followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.engine.base import EngineBase
from gateway.engine.types import Caller
from gateway.errors import InvalidArgument, IsADirectory, NoSuchName, NotADirectory
from gateway.journal.columns import unpack_map
from gateway.journal.tables import Bucket, Dir, File, FileKind
from gateway.namespace.commands.names import Link, Mkdir, Rmdir, Symlink, Unlink
from gateway.namespace.commands.nodes import Clone, RemoveXattr, SetAttributes, SetXattr
from gateway.namespace.commands.rename import Rename
from gateway.namespace.read import directory
from gateway.namespace.read.lookups import columns, find_directories


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """The attributes of a node, as stat(2) returns them."""

    node: int
    is_dir: bool
    kind: int
    """A `gateway.journal.tables.FileKind`; 0 for a directory."""
    size: int
    mode: int
    uid: int
    gid: int
    links: int
    mtime_ns: int
    ctime_ns: int
    atime_ns: int
    etag: str
    xattrs: dict[bytes, bytes]


class _Location(NamedTuple):
    """A resolved path: a name in a directory, and the node that it refers to."""

    bucket: Bucket
    parent: int
    name: bytes
    """The name of a directory ends with a slash."""
    node: int

    @property
    def is_dir(self) -> bool:
        return self.name.endswith(b"/")


class PosixOperations(EngineBase):
    async def stat(self, caller: Caller, bucket: str, path: bytes) -> NodeInfo:
        """Return the attributes of a node. Raises `NoSuchBucket`, `AccessDenied`, `NoSuchName`, `NotADirectory`."""
        location = self._locate(caller, bucket, path)
        if location.is_dir or not path:
            rows = self._store.query(f"SELECT {columns('d', Dir)} FROM dir d WHERE d.id = ?", (location.node,))
            return _dir_info(Dir._make(rows[0])) if rows else _raise_missing(path)
        return _file_info(self._file(location.node, path))

    async def read_directory(
        self, caller: Caller, bucket: str, path: bytes, after: bytes = b"", limit: int = 512
    ) -> list[tuple[bytes, NodeInfo]]:
        """Return up to *limit* names after *after*, in byte order, with their attributes. The name of a directory ends
        with a slash. Fewer than *limit* names mean that there are no more."""
        node = self._directory(caller, bucket, path)
        found = directory.read_directory(self._store, node, after, limit)
        return [
            (held.name, _dir_info(held.directory) if held.directory is not None else _file_info(held.file))
            for held in found
            if held.directory is not None or held.file is not None
        ]

    async def mkdir(
        self, caller: Caller, bucket: str, path: bytes, mode: int = 0o755, uid: int = 0, gid: int = 0
    ) -> int:
        """Create a directory. Returns its node. Raises `NameExists`, and `NoSuchName` if the parent does not exist."""
        parent, base = self._parent_of(caller, bucket, path)
        command = Mkdir(bucket, *caller.acting_in(bucket), parent, base + b"/", mode, uid, gid)
        return int(await self._send(command))

    async def rmdir(self, caller: Caller, bucket: str, path: bytes) -> None:
        """Remove an empty directory. Raises `DirectoryNotEmpty`, `NotADirectory`, `NoSuchName`."""
        location = self._locate(caller, bucket, path)
        if not location.is_dir:
            raise NotADirectory(path)
        await self._send(Rmdir(bucket, *caller.acting_in(bucket), location.parent, location.name))

    async def unlink(self, caller: Caller, bucket: str, path: bytes) -> None:
        """Remove a name that is no directory. Raises `IsADirectory`, `NoSuchName`."""
        location = self._locate(caller, bucket, path)
        if location.is_dir:
            raise IsADirectory(path)
        await self._send(Unlink(bucket, *caller.acting_in(bucket), location.parent, location.name))

    async def rename(self, caller: Caller, bucket: str, path: bytes, to_path: bytes, flags: int = 0) -> None:
        """Rename as renameat2(2) does, with its *flags*. One record, however much is below a directory."""
        location = self._locate(caller, bucket, path)
        parent, base = self._parent_of(caller, bucket, to_path)
        to_name = base + b"/" if location.is_dir else base
        command = Rename(bucket, *caller.acting_in(bucket), location.parent, location.name, parent, to_name, flags)
        await self._send(command)

    async def link(self, caller: Caller, bucket: str, path: bytes, to_path: bytes) -> int:
        """Create a hard link. Returns the node. Raises `IsADirectory`, `NameExists`, `NoSuchName`."""
        location = self._locate(caller, bucket, path)
        if location.is_dir:
            raise IsADirectory(path)
        parent, base = self._parent_of(caller, bucket, to_path)
        command = Link(bucket, *caller.acting_in(bucket), location.parent, location.name, parent, base)
        return int(await self._send(command))

    async def symlink(self, caller: Caller, bucket: str, target: bytes, path: bytes, uid: int = 0, gid: int = 0) -> int:
        """Create a symbolic link at *path*. *target* is not resolved. Returns the node."""
        parent, base = self._parent_of(caller, bucket, path)
        return int(await self._send(Symlink(bucket, *caller.acting_in(bucket), parent, base, target, uid, gid)))

    async def readlink(self, caller: Caller, bucket: str, path: bytes) -> bytes:
        """Return the target of a symbolic link. Raises `InvalidArgument` for another kind of file."""
        location = self._locate(caller, bucket, path)
        file = None if location.is_dir or not path else self._file(location.node, path)
        if file is None or file.kind != FileKind.SYMLINK:
            raise InvalidArgument(f"{path!r} is not a symbolic link")
        return file.target

    async def clone(
        self, caller: Caller, bucket: str, path: bytes, to_path: bytes, mode: int = 0o644, uid: int = 0, gid: int = 0
    ) -> Any:
        """Create *to_path* with the content of *path*, as FICLONE does: they share it until one of them is written."""
        location = self._locate(caller, bucket, path)
        if location.is_dir:
            raise IsADirectory(path)
        parent, base = self._parent_of(caller, bucket, to_path)
        return await self._send(
            Clone(
                bucket,
                *caller.acting_in(bucket),
                location.parent,
                location.name,
                parent,
                base,
                mode,
                uid,
                gid,
            )
        )

    async def set_attributes(
        self,
        caller: Caller,
        bucket: str,
        path: bytes,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        mtime_ns: int | None = None,
        atime_ns: int | None = None,
    ) -> None:
        """Set the mode, owner and times of a node; None keeps a value."""
        location = self._locate(caller, bucket, path)
        command = SetAttributes(
            bucket,
            *caller.acting_in(bucket),
            location.node,
            location.is_dir,
            mode,
            uid,
            gid,
            mtime_ns,
            atime_ns,
        )
        await self._send(command)

    async def set_xattr(
        self, caller: Caller, bucket: str, path: bytes, name: bytes, value: bytes, require: str = ""
    ) -> None:
        """Set an extended attribute. *require*: "create" if it must be new, "replace" if it must exist, as
        setxattr(2)."""
        location = self._locate(caller, bucket, path)
        await self._send(
            SetXattr(bucket, *caller.acting_in(bucket), location.node, location.is_dir, name, value, require)
        )

    async def remove_xattr(self, caller: Caller, bucket: str, path: bytes, name: bytes) -> None:
        """Remove an extended attribute. Raises `NoSuchName` if it does not exist."""
        location = self._locate(caller, bucket, path)
        await self._send(RemoveXattr(bucket, *caller.acting_in(bucket), location.node, location.is_dir, name))

    # --- paths --------------------------------------------------------------------------------------------------------

    def _directory(self, caller: Caller, bucket: str, path: bytes) -> int:
        """Return the node of the directory at *path*. Raises `NoSuchName`, `NotADirectory`."""
        row = self._bucket_row(caller, bucket)
        bases = _split_path(path)
        nodes = [row.root, *find_directories(self._store, row.root, [base + b"/" for base in bases], "e.dead = 0")]
        if len(nodes) <= len(bases):
            missing = bases[len(nodes) - 1]
            raise (NotADirectory if self._entry(nodes[-1], missing) is not None else NoSuchName)(path)
        return nodes[-1]

    def _parent_of(self, caller: Caller, bucket: str, path: bytes) -> tuple[int, bytes]:
        """Return the node of the directory that contains *path*, and the last name of *path*."""
        above, _, base = path.rstrip(b"/").rpartition(b"/")
        if not base:
            raise InvalidArgument("the root of a bucket cannot be changed in this way")
        return self._directory(caller, bucket, above), base

    def _locate(self, caller: Caller, bucket: str, path: bytes) -> _Location:
        """Resolve *path*. If a file and a directory have the same name, return the directory. Raises `NoSuchName`."""
        row = self._bucket_row(caller, bucket)
        if not path.strip(b"/"):
            return _Location(row, 0, b"/", row.root)
        parent, base = self._parent_of(caller, bucket, path)
        for name in (base + b"/", base):
            node = self._entry(parent, name)
            if node is not None:
                return _Location(row, parent, name, node)
        raise NoSuchName(path)

    def _entry(self, parent: int, name: bytes) -> int | None:
        """Return the node of a live entry; None if there is none."""
        row = self._store.query_one("SELECT node FROM entry WHERE parent = ? AND dead = 0 AND name = ?", (parent, name))
        return None if row is None else int(row[0])

    def _file(self, node: int, path: bytes) -> File:
        rows = self._store.query(f"SELECT {columns('f', File)} FROM file f WHERE f.id = ?", (node,))
        if not rows:
            raise NoSuchName(path)
        return File._make(rows[0])


def _split_path(path: bytes) -> list[bytes]:
    return [base for base in path.split(b"/") if base]


def _raise_missing(path: bytes) -> NodeInfo:
    raise NoSuchName(path)


def _dir_info(row: Dir) -> NodeInfo:
    return NodeInfo(
        row.id, True, 0, 0, row.mode, row.uid, row.gid, 2 + row.subdirs, row.mtime_ns, row.ctime_ns, row.atime_ns, "",
        unpack_map(row.xattrs),
    )  # fmt: skip


def _file_info(row: File | None) -> NodeInfo:
    assert row is not None
    return NodeInfo(
        row.id, False, row.kind, len(row.target) if row.kind == FileKind.SYMLINK else row.size, row.mode, row.uid,
        row.gid, row.links, row.mtime_ns, row.ctime_ns, row.atime_ns, row.etag, unpack_map(row.xattrs),
    )  # fmt: skip
