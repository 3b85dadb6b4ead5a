"""POSIX's verbs on names and nodes, by path within a bucket. A path has no leading slash; the empty one is the root.

Paths are resolved on the read store, and the command then works on nodes: what it finds there is what counts, so a name
that changed in between is refused as if it had been asked for later. Symbolic links are not followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.engine.base import Counter
from gateway.engine.types import Caller
from gateway.errors import InvalidArgument, IsADirectory, NoSuchName, NotADirectory
from gateway.journal.columns import unpack_map
from gateway.journal.tables import Bucket, Dir, File, FileKind
from gateway.namespace.commands.names import Link, Mkdir, Rmdir, Symlink, Unlink
from gateway.namespace.commands.nodes import Clone, RemoveXattr, SetAttributes, SetXattr
from gateway.namespace.commands.rename import Rename
from gateway.namespace.read import holdings
from gateway.namespace.read.lookups import columns, descend


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What stat(2) tells of a node."""

    node: int
    is_dir: bool
    kind: int
    """`gateway.journal.tables.Kind`, for what is no directory."""
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


class _Place(NamedTuple):
    """Where a path leads: a name in a directory, and the node that stands there (0 for none)."""

    bucket: Bucket
    parent: int
    name: bytes
    """With its slash where a directory stands."""
    node: int

    @property
    def is_dir(self) -> bool:
        return self.name.endswith(b"/")


class Names(Counter):
    async def stat(self, caller: Caller, bucket: str, path: bytes) -> NodeInfo:
        """Raises `NoSuchBucket`, `AccessDenied`, `NoSuchName`, `NotADirectory`."""
        place = self._standing(caller, bucket, path)
        if place.is_dir or not path:
            rows = self._store.query(f"SELECT {columns('d', Dir)} FROM dir d WHERE d.id = ?", (place.node,))
            return _dir_info(Dir._make(rows[0])) if rows else _gone(path)
        return _file_info(self._file(place.node, path))

    async def read_directory(
        self, caller: Caller, bucket: str, path: bytes, after: bytes = b"", limit: int = 512
    ) -> list[tuple[bytes, NodeInfo]]:
        """Live names behind *after* in byte order of the tree's names (a directory's ends in a slash), with their
        nodes; fewer than *limit* when there are no more."""
        node = self._directory(caller, bucket, path)
        found = holdings.read_directory(self._store, node, after, limit)
        return [
            (held.name, _dir_info(held.directory) if held.directory is not None else _file_info(held.file))
            for held in found
            if held.directory is not None or held.file is not None
        ]

    async def mkdir(
        self, caller: Caller, bucket: str, path: bytes, mode: int = 0o755, uid: int = 0, gid: int = 0
    ) -> int:
        """Answers the node. Raises `NameExists`, `NoSuchName` without the directory above."""
        parent, base = self._above(caller, bucket, path)
        command = Mkdir(bucket, caller.user_id, caller.root, parent, base + b"/", mode, uid, gid)
        return int(await self._send(command))

    async def rmdir(self, caller: Caller, bucket: str, path: bytes) -> None:
        """Raises `DirectoryNotEmpty`, `NotADirectory`, `NoSuchName`."""
        place = self._standing(caller, bucket, path)
        if not place.is_dir:
            raise NotADirectory(path)
        await self._send(Rmdir(bucket, caller.user_id, caller.root, place.parent, place.name))

    async def unlink(self, caller: Caller, bucket: str, path: bytes) -> None:
        """Raises `IsADirectory`, `NoSuchName`."""
        place = self._standing(caller, bucket, path)
        if place.is_dir:
            raise IsADirectory(path)
        await self._send(Unlink(bucket, caller.user_id, caller.root, place.parent, place.name))

    async def rename(self, caller: Caller, bucket: str, path: bytes, to_path: bytes, flags: int = 0) -> None:
        """As rename(2), in one record however much lies below; *flags* are renameat2(2)'s (`renaming.How`)."""
        place = self._standing(caller, bucket, path)
        parent, base = self._above(caller, bucket, to_path)
        to_name = base + b"/" if place.is_dir else base
        command = Rename(bucket, caller.user_id, caller.root, place.parent, place.name, parent, to_name, flags)
        await self._send(command)

    async def link(self, caller: Caller, bucket: str, path: bytes, to_path: bytes) -> int:
        """One more name for a file. Answers the node. Raises `IsADirectory`, `NameExists`, `NoSuchName`."""
        place = self._standing(caller, bucket, path)
        if place.is_dir:
            raise IsADirectory(path)
        parent, base = self._above(caller, bucket, to_path)
        command = Link(bucket, caller.user_id, caller.root, place.parent, place.name, parent, base)
        return int(await self._send(command))

    async def symlink(self, caller: Caller, bucket: str, target: bytes, path: bytes, uid: int = 0, gid: int = 0) -> int:
        """A symbolic link at *path* to *target*, which is only text. Answers the node."""
        parent, base = self._above(caller, bucket, path)
        return int(await self._send(Symlink(bucket, caller.user_id, caller.root, parent, base, target, uid, gid)))

    async def readlink(self, caller: Caller, bucket: str, path: bytes) -> bytes:
        """A symbolic link's text. Raises `InvalidArgument` for what is none."""
        place = self._standing(caller, bucket, path)
        file = None if place.is_dir or not path else self._file(place.node, path)
        if file is None or file.kind != FileKind.SYMLINK:
            raise InvalidArgument(f"{path!r} is no symbolic link")
        return file.target

    async def clone(
        self, caller: Caller, bucket: str, path: bytes, to_path: bytes, mode: int = 0o644, uid: int = 0, gid: int = 0
    ) -> Any:
        """*to_path* has the bytes of *path*, and shares them until one of the two is written. As FICLONE."""
        place = self._standing(caller, bucket, path)
        if place.is_dir:
            raise IsADirectory(path)
        parent, base = self._above(caller, bucket, to_path)
        return await self._send(
            Clone(bucket, caller.user_id, caller.root, place.parent, place.name, parent, base, mode, uid, gid)
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
        """Mode, owner and times of a node; None leaves one as it is."""
        place = self._standing(caller, bucket, path)
        command = SetAttributes(
            bucket, caller.user_id, caller.root, place.node, place.is_dir, mode, uid, gid, mtime_ns, atime_ns
        )
        await self._send(command)

    async def set_xattr(
        self, caller: Caller, bucket: str, path: bytes, name: bytes, value: bytes, require: str = ""
    ) -> None:
        """*must*: "create" where the attribute must be new, "replace" where it must be there."""
        place = self._standing(caller, bucket, path)
        await self._send(SetXattr(bucket, caller.user_id, caller.root, place.node, place.is_dir, name, value, require))

    async def remove_xattr(self, caller: Caller, bucket: str, path: bytes, name: bytes) -> None:
        """Raises `NoSuchName` for an attribute that is not there."""
        place = self._standing(caller, bucket, path)
        await self._send(RemoveXattr(bucket, caller.user_id, caller.root, place.node, place.is_dir, name))

    # --- paths --------------------------------------------------------------------------------------------------------

    def _directory(self, caller: Caller, bucket: str, path: bytes) -> int:
        """The node of the directory at *path*."""
        row = self._bucket(caller, bucket)
        bases = _bases(path)
        nodes = [row.root, *descend(self._store, row.root, [base + b"/" for base in bases], "e.dead = 0")]
        if len(nodes) <= len(bases):
            missing = bases[len(nodes) - 1]
            raise (NotADirectory if self._entry(nodes[-1], missing) is not None else NoSuchName)(path)
        return nodes[-1]

    def _above(self, caller: Caller, bucket: str, path: bytes) -> tuple[int, bytes]:
        """The directory that *path* stands in, and its last name."""
        above, _, base = path.rstrip(b"/").rpartition(b"/")
        if not base:
            raise InvalidArgument("the bucket's root cannot be meant")
        return self._directory(caller, bucket, above), base

    def _standing(self, caller: Caller, bucket: str, path: bytes) -> _Place:
        """What stands at *path*; where an object stands beside a directory, the directory."""
        row = self._bucket(caller, bucket)
        if not path.strip(b"/"):
            return _Place(row, 0, b"/", row.root)
        parent, base = self._above(caller, bucket, path)
        for name in (base + b"/", base):
            node = self._entry(parent, name)
            if node is not None:
                return _Place(row, parent, name, node)
        raise NoSuchName(path)

    def _entry(self, parent: int, name: bytes) -> int | None:
        """The node of a live entry."""
        row = self._store.query_one("SELECT node FROM entry WHERE parent = ? AND dead = 0 AND name = ?", (parent, name))
        return None if row is None else int(row[0])

    def _file(self, node: int, path: bytes) -> File:
        rows = self._store.query(f"SELECT {columns('f', File)} FROM file f WHERE f.id = ?", (node,))
        if not rows:
            raise NoSuchName(path)
        return File._make(rows[0])


def _bases(path: bytes) -> list[bytes]:
    return [base for base in path.split(b"/") if base]


def _gone(path: bytes) -> NodeInfo:
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
