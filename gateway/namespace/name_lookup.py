"""Look-ups that POSIX commands share: directories by node, both forms of a name, and making of implied directories.

These commands name a directory by its node and an entry as the tree has it: `a` is a file, `a/` a directory. Of the
two forms of a name at most one is ever made here; where S3 made both, each can be named.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import InvalidArgument, NameExists, NameTooLong, NoSuchName
from gateway.journal.commands import Tx
from gateway.journal.records.tree import FileMade
from gateway.journal.rows import RowKey
from gateway.journal.tables import DIR, ENTRY, Bucket, Dir, Entry, FileKind, Shape
from gateway.namespace.paths import bucket_of, load_climb
from gateway.namespace.posix_names import NAME_BYTES
from gateway.namespace.versioning import put_name

EMPTY_MD5 = "d41d8cd98f00b204e9800998ecf8427e"


class NameState(NamedTuple):
    """Both forms of a name in a directory. POSIX does not see a dead entry."""

    parent: int
    file_name: bytes
    file: Entry | None
    directory_name: bytes
    directory: Entry | None

    @property
    def live_file(self) -> Entry | None:
        return self.file if self.file is not None and not self.file.dead else None

    @property
    def live_directory(self) -> Entry | None:
        return self.directory if self.directory is not None and not self.directory.dead else None


def is_directory(name: bytes) -> bool:
    return name.endswith(b"/")


def base_of(name: bytes) -> bytes:
    """Return a name of the tree without a directory's slash. Raises `InvalidArgument` if it is not a name."""
    base = name[:-1] if is_directory(name) else name
    if b"/" in base or not name:
        raise InvalidArgument(f"{name!r} is no name of a directory's entry")
    return base


def open_directories(tx: Tx, name: str, user: int, root: bool, *nodes: int) -> Bucket:
    """Return the bucket, after checking that *user* may use it and that it has the directories *nodes*.

    Raises `NoSuchBucket`, `AccessDenied`, and `NoSuchName` for a directory that is missing or dead."""
    tx.prefetch([(DIR, (node,)) for node in nodes])
    bucket = bucket_of(tx, name, user, root)
    for node in nodes:
        row = tx.get(DIR, (node,))
        if row is None or row.bucket != bucket.name or (row.parent and not row.live):
            raise NoSuchName(f"directory {node:x}")
    return bucket


def look_up_name(tx: Tx, parent: int, name: bytes, *also: RowKey) -> NameState:
    """Look up both forms of *name*; *also* is loaded together with them."""
    base = base_of(name)
    file_at, directory_at = (ENTRY, (parent, base)), (ENTRY, (parent, base + b"/"))
    tx.prefetch([file_at, directory_at, *also])
    file = tx.get(*file_at) if base else None
    return NameState(parent, base, file, base + b"/", tx.get(*directory_at))


def check_name_free(state: NameState) -> None:
    """Raise `NameExists` if POSIX sees an entry of that name, `NameTooLong` if it is too long for POSIX."""
    if state.live_file is not None or state.live_directory is not None:
        raise NameExists(state.file_name)
    if len(state.file_name) > NAME_BYTES:
        raise NameTooLong(state.file_name)


def ensure_made(tx: Tx, bucket: Bucket, node: int, user: int) -> None:
    """Turn an implied directory into a made one. S3's implied directories are deleted with their last entry; POSIX's
    are not."""
    row = tx.get(DIR, (node,))
    if row is None or not row.parent:
        return
    marker = tx.get(ENTRY, (node, b""))
    if marker is None or marker.dead:
        put_dir_marker(tx, bucket, row, marker, user)


def put_dir_marker(tx: Tx, bucket: Bucket, directory: Dir, marker: Entry | None, user: int) -> None:
    """Put the entry with the empty name, which marks the directory as made."""
    load_climb(tx, directory.id)
    node = new_node(tx, FileKind.MARKER, user, directory.mode, directory.uid, directory.gid, etag=EMPTY_MD5)
    put_name(tx, bucket, directory.id, b"", marker, node)


def new_node(
    tx: Tx, kind: FileKind, user: int, mode: int, uid: int, gid: int, *, etag: str = "", rdev: int = 0,
    target: bytes = b"", size: int = 0, shape: int = Shape.NONE, content: int = 0, checksums: bytes = b"",
) -> int:  # fmt: skip
    """Create a node for POSIX, to which no name refers yet. Returns its id."""
    node = tx.new_id()
    tx.emit(
        FileMade(
            node, int(kind), size, int(shape), content, etag or written_etag(tx, node), user, mode, uid, gid, tx.at_ns,
            tx.at_ns, rdev, target, b"", checksums, b"", b"",
        )
    )  # fmt: skip
    return node


def written_etag(tx: Tx, node: int) -> str:
    """Return a new ETag for content that POSIX wrote. It has a `-`, so clients do not take it for an MD5."""
    return f"{node:016x}-{tx.new_id():016x}"
