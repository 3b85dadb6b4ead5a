"""The rows of the tree: buckets, directories, names, their versions, and the nodes that names point at. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from gateway.journal.tables.base import Table


class FileKind(IntEnum):
    """What a file row is. A directory has a table of its own; MARKER is the empty-named entry that makes one."""

    FILE = 0
    MARKER = 1
    SYMLINK = 2
    FIFO = 3
    SOCKET = 4
    CHAR = 5
    BLOCK = 6


class Versioning(IntEnum):
    """A bucket's versioning, as S3 has it."""

    OFF = 0
    ENABLED = 1
    SUSPENDED = 2


class Bucket(NamedTuple):
    name: str
    id: int
    tenant: int
    owner: int
    root: int
    """The directory that its keys begin in."""
    region: str
    versioning: int
    policy: int
    objects: int
    """Names whose current version is an object, S3's objects and POSIX's alike."""
    versions: int
    """All versions of all names, delete markers too."""
    size: int
    """Plain bytes of all versions; a node with two names counts twice."""
    uploads: int
    """Open multipart uploads."""
    settings: bytes
    """packed: a map for what later belongs to a bucket."""
    made_ns: int


class Dir(NamedTuple):
    """A directory's node. Its link count is 2 + `subdirs`."""

    id: int
    bucket: str
    parent: int
    """The directory that it stands in; 0 for a bucket's root."""
    name: bytes
    """Its name there, with its slash; empty for a bucket's root."""
    live: int
    """Live entries in it. A directory is live when this is not 0; only that change climbs."""
    entries: int
    """All entries in it."""
    subdirs: int
    """Directories among its entries."""
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    ctime_ns: int
    atime_ns: int
    xattrs: bytes
    """packed: a map of bytes to bytes; empty for none."""
    height: int = 0
    """No directory below it is more levels below it than this. 0, while it has subdirectories: than 31. May be more
    than the tree has by now; 0 again once it has no subdirectories. Not kept for a bucket's root, and not raised for
    what was there before the column was."""


class Entry(NamedTuple):
    """A name in a directory, and its current version."""

    parent: int
    name: bytes
    """Ends in a slash: a directory. Empty: the object whose key ends in its directory's slash."""
    dead: int
    """1: a delete marker is current, or a directory without live entries. Stands in the stores' key before the
    name, so that listings step over the dead without meeting them."""
    node: int
    """A `Dir`'s id, a `File`'s id, or 0 for a delete marker."""
    version: int
    """The current version's id; ascending with time. 0 for a directory."""
    null: int
    """1: the current version is S3's `null` version."""
    older: int
    """The newest noncurrent version's id, 0 for none."""
    null_version: int
    """The id of the name's null version, current or not, 0 for none."""
    modified_ns: int
    """When this version came to stand here. S3's LastModified, unless the node was written later."""
    size: int = 0
    """What listings show of the node stands here too, so that a page reads one range of one table: this and the three
    below are the file's as they were when the name was put. They go stale only where a node is written in place; such
    a one says so itself (`File.rewritten`), whatever names it has."""
    etag: str = ""
    owner: int = 0
    checksum: bytes = b""
    """The kind of the file's first checksum, see `packed.checksum_kind`."""


class Version(NamedTuple):
    """A noncurrent version of a name; the current one stands in `Entry`."""

    parent: int
    name: bytes
    version: int
    node: int
    null: int
    newer: int
    """The next newer version's id; the newest noncurrent one points at the entry's."""
    older: int
    modified_ns: int
    size: int = 0
    """This and what follows: as in `Entry`."""
    etag: str = ""
    owner: int = 0
    checksum: bytes = b""


class File(NamedTuple):
    """The node of everything that is not a directory."""

    id: int
    kind: int
    links: int
    """Entries and versions that point here; at 0 the row goes."""
    size: int
    """Plain bytes."""
    shape: int
    content: int
    etag: str
    """Without quotes. 32 hex digits are an MD5; whatever is not one contains a `-`."""
    owner: int
    written_ns: int
    """When its content last changed, by the committer's clock, whatever POSIX sets as mtime. S3's LastModified is the
    later of this and the name's own."""
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    ctime_ns: int
    atime_ns: int
    rdev: int
    target: bytes
    """A symbolic link's text."""
    headers: bytes
    """packed: content headers and user metadata, a map of lower-case names to text; empty for none."""
    checksums: bytes
    """packed: `Checksum` of the whole; empty for none."""
    tags: bytes
    """packed: a map of text to text; empty for none."""
    xattrs: bytes
    """packed: a map of bytes to bytes; empty for none."""
    rewritten: int = 0
    """1: its content was set in place, so that what its names remember of it is stale."""


BUCKET = Table("bucket", Bucket)
DIR = Table("dir", Dir)
ENTRY = Table("entry", Entry, 2, ("parent", "dead", "name"))
VERSION = Table("version", Version, 3)
FILE = Table("file", File)
