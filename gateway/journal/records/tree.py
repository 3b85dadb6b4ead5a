"""The records of buckets and of the tree in them: names, versions and nodes."""

from __future__ import annotations

from gateway.journal.records.base import record

# --- buckets ----------------------------------------------------------------------------------------------------------


@record(tag=40)
class BucketMade:
    """A bucket, and the directory that its keys begin in."""

    name: str
    id: int
    root: int
    tenant: int
    owner: str
    """A user's name."""
    owner_id: int
    region: str
    policy: int
    at_ns: int


@record(tag=41)
class BucketDeleted:
    """An empty bucket, and its root. *owner* is a user's name."""

    name: str
    owner: str


@record(tag=42)
class BucketVersioningSet:
    name: str
    versioning: int


@record(tag=43)
class BucketSettingsSet:
    name: str
    settings: bytes


@record(tag=44, feature=3)
class BucketDeletedWithUploads:
    """A bucket without a version of anything, and its root, are gone while uploads into it were open: those wait, under
    the bucket's id, to be cut off. Their ids lie between the bucket's and *before*. *owner* is a user's name."""

    name: str
    owner: str
    before: int


# --- the tree ---------------------------------------------------------------------------------------------------------


@record(tag=50)
class DirMade:
    """An empty directory *name* (with its slash) in *parent*. Its times are *at_ns*."""

    parent: int
    name: bytes
    id: int
    mode: int
    uid: int
    gid: int
    at_ns: int


@record(tag=51)
class DirDeleted:
    """The directory *name* left *parent*; it had no entries."""

    parent: int
    name: bytes
    at_ns: int


@record(tag=52)
class FileMade:
    """A node that no name points at yet. It holds one count on its content."""

    id: int
    kind: int
    size: int
    shape: int
    content: int
    etag: str
    owner: int
    mode: int
    uid: int
    gid: int
    at_ns: int
    mtime_ns: int
    rdev: int
    target: bytes
    headers: bytes
    checksums: bytes
    tags: bytes
    xattrs: bytes


@record(tag=53)
class NamePut:
    """*node* (0: a delete marker) became the current version *version* of *name*.

    What was current before becomes the newest noncurrent version if *keep*, otherwise it is gone."""

    parent: int
    name: bytes
    node: int
    version: int
    null: int
    keep: int
    at_ns: int


@record(tag=54)
class VersionDeleted:
    """A version of *name*, current or not. If it was current, the next older one becomes current; if none is left,
    the name is gone."""

    parent: int
    name: bytes
    version: int
    at_ns: int


@record(tag=55)
class EntryMoved:
    """*name*, which has no noncurrent versions, left *parent* and stands in *to_parent* as *to_name*, where nothing
    stood. A directory keeps its node and all that lies below. Both parents are in one bucket."""

    parent: int
    name: bytes
    to_parent: int
    to_name: bytes
    at_ns: int


@record(tag=56)
class FileAttributesSet:
    id: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    ctime_ns: int
    atime_ns: int


@record(tag=57)
class DirAttributesSet:
    id: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    ctime_ns: int
    atime_ns: int


@record(tag=58)
class FileXattrsSet:
    id: int
    xattrs: bytes
    ctime_ns: int


@record(tag=59)
class DirXattrsSet:
    id: int
    xattrs: bytes
    ctime_ns: int


@record(tag=60)
class FileHeadersSet:
    """Content headers and user metadata, and tags, of a node: they belong to it, not to a name."""

    id: int
    headers: bytes
    tags: bytes
    ctime_ns: int


@record(tag=61)
class FileContentSet:
    """The node got other bytes in place (POSIX wrote, truncated or cloned); it lets go of the content it had.

    *freed* is a fresh id under which that content waits to be taken apart, 0 if there was none. *bucket* is where its
    names stand."""

    id: int
    bucket: str
    size: int
    shape: int
    content: int
    etag: str
    checksums: bytes
    mtime_ns: int
    ctime_ns: int
    freed: int


@record(tag=62, feature=7)
class DirHeightRaised:
    """Directories came to stand *height* levels below the directory *id*, and so further below those above it."""

    id: int
    height: int


TreeRecord = (
    NamePut | FileMade | VersionDeleted | DirMade | DirDeleted | EntryMoved
    | FileAttributesSet | DirAttributesSet | FileXattrsSet | DirXattrsSet | FileHeadersSet | FileContentSet
    | DirHeightRaised | BucketMade | BucketDeleted | BucketDeletedWithUploads | BucketVersioningSet | BucketSettingsSet
)  # fmt: skip
