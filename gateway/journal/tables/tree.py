"""The rows of the tree: buckets, directories, entries, versions, and the nodes that entries point at. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from gateway.journal.tables.base import Table


class FileKind(IntEnum):
    """The kind of a `File` row. Directories have a table of their own; MARKER is the entry with the empty name by
    which a directory was made explicitly."""

    FILE = 0
    MARKER = 1
    SYMLINK = 2
    FIFO = 3
    SOCKET = 4
    CHAR = 5
    BLOCK = 6


class Versioning(IntEnum):
    """A bucket's versioning, as in S3."""

    OFF = 0
    ENABLED = 1
    SUSPENDED = 2


class Bucket(NamedTuple):
    name: str
    id: int
    tenant: int
    owner: int
    root: int
    """The id of the bucket's root directory."""
    region: str
    versioning: int
    policy: int
    objects: int
    """How many names have an object as their current version, whether made by S3 or by POSIX."""
    versions: int
    """How many versions all names have, including delete markers."""
    size: int
    """Plain bytes of all versions. A node with two names counts twice."""
    uploads: int
    """How many multipart uploads are open."""
    settings: bytes
    """packed: a map for later settings of a bucket."""
    made_ns: int


class DocumentKind(IntEnum):
    """The kinds of documents that a bucket may have, at most one of each."""

    POLICY = 1
    PUBLIC_ACCESS_BLOCK = 2
    OWNERSHIP_CONTROLS = 3
    ACL = 4
    CORS = 5
    TAGGING = 6
    LIFECYCLE = 7


class BucketDocuments(NamedTuple):
    """The documents of a bucket, in a row of their own: the row of `Bucket` is written at each PUT."""

    bucket: int
    """The bucket's id."""
    documents: bytes
    """packed: a map from `DocumentKind` to the document."""


class Dir(NamedTuple):
    """A directory's node. Its link count is 2 + `subdirs`."""

    id: int
    bucket: str
    parent: int
    """The directory that contains it; 0 for a bucket's root."""
    name: bytes
    """Its name there, including the slash; empty for a bucket's root."""
    live: int
    """How many live entries are in it. The directory is live if this is not 0. Only a change between 0 and 1 is
    passed on to its parent."""
    entries: int
    """How many entries are in it."""
    subdirs: int
    """How many of its entries are directories."""
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    ctime_ns: int
    atime_ns: int
    xattrs: bytes
    """packed: a map of bytes to bytes; empty: none."""
    height: int = 0
    """An upper bound of how many levels of directories are below it. If it is 0 and the directory has subdirectories,
    the bound is 31. The bound may be higher than the tree is by now. It becomes 0 when the directory has no
    subdirectories. It is not maintained for a bucket's root, nor for directories from before the column existed."""


class Entry(NamedTuple):
    """A name in a directory, and its current version."""

    parent: int
    name: bytes
    """A name that ends with a slash is that of a directory. The empty name is that of the object whose key ends with
    its directory's slash."""
    dead: int
    """1: the current version is a delete marker, or the node is a directory without live entries. In the stores'
    primary key this column comes before the name, so that listings do not read dead entries."""
    node: int
    """The id of a `Dir` or a `File`; 0 for a delete marker."""
    version: int
    """The id of the current version; ids ascend with time. 0 for a directory."""
    null: int
    """1: the current version is S3's `null` version."""
    older: int
    """The id of the newest noncurrent version; 0: none."""
    null_version: int
    """The id of the name's null version, current or not; 0: none."""
    modified_ns: int
    """When this version became the current one. S3's LastModified, unless the node was written later."""
    size: int = 0
    """This column and the three below are copies of what listings show of the file, as of when the name was put, so
    that a page of a listing reads one range of one table. They become stale only if the file is written in place; such
    a file is marked by `File.rewritten`."""
    etag: str = ""
    owner: int = 0
    checksum: bytes = b""
    """The kind of the file's first checksum, see `columns.checksum_kind`."""


class Version(NamedTuple):
    """A noncurrent version of a name. The current version is in `Entry`."""

    parent: int
    name: bytes
    version: int
    node: int
    null: int
    newer: int
    """The id of the next newer version; for the newest noncurrent version, that is the entry's current one."""
    older: int
    """The id of the next older version; 0: none."""
    modified_ns: int
    size: int = 0
    """This column and those below: as in `Entry`."""
    etag: str = ""
    owner: int = 0
    checksum: bytes = b""


class File(NamedTuple):
    """A node that is not a directory."""

    id: int
    kind: int
    links: int
    """How many entries and versions point at it. When it becomes 0, the row is dropped."""
    size: int
    """Plain bytes."""
    shape: int
    content: int
    etag: str
    """Without quotes. 32 hex digits are an MD5; any other ETag contains a `-`."""
    owner: int
    written_ns: int
    """When its content last changed, by the committer's clock, independent of the mtime that POSIX sets. S3's
    LastModified is the later of this and the entry's `modified_ns`."""
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    ctime_ns: int
    atime_ns: int
    rdev: int
    target: bytes
    """The target of a symbolic link."""
    headers: bytes
    """packed: content headers and user metadata, a map of lower-case names to text; empty: none."""
    checksums: bytes
    """packed: list of `Checksum` of the whole content; empty: none."""
    tags: bytes
    """packed: a map of text to text; empty: none."""
    xattrs: bytes
    """packed: a map of bytes to bytes; empty: none."""
    rewritten: int = 0
    """1: its content was replaced in place, so the copies of its size and ETag in its entries are stale."""


BUCKET = Table("bucket", Bucket, catalog=True, counts=("objects", "versions", "size", "uploads"))
BUCKET_DOCUMENTS = Table("bucket_documents", BucketDocuments, catalog=True)
DIR = Table("dir", Dir)
ENTRY = Table("entry", Entry, 2, ("parent", "dead", "name"))
VERSION = Table("version", Version, 3)
FILE = Table("file", File)
