"""The records of buckets and of their trees: names, versions and nodes."""

from __future__ import annotations

from gateway.journal.records.base import record

# --- buckets ----------------------------------------------------------------------------------------------------------


@record(tag=40)
class BucketMade:
    """A bucket and its root directory were made."""

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
    """An empty bucket and its root directory were deleted. *owner* is a user's name."""

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
    """A bucket without any version, and its root directory, were deleted while uploads into the bucket were open. The
    uploads are aborted later; they are found by the bucket's id. Their ids are between the bucket's id and *before*.
    *owner* is a user's name."""

    name: str
    owner: str
    before: int


@record(tag=111, feature=12)
class BucketOwnerSet:
    """A bucket got another owner. *owner* and *former_owner* are names of users."""

    name: str
    former_owner: str
    owner: str
    owner_id: int


@record(tag=120, feature=13)
class BucketDocumentSet:
    """The document *kind* (a `tables.DocumentKind`) of a bucket was stored, in the place of the former one."""

    bucket: str
    kind: int
    document: bytes


@record(tag=121, feature=13)
class BucketDocumentRemoved:
    """The document *kind* (a `tables.DocumentKind`) of a bucket was removed."""

    bucket: str
    kind: int


# --- the tree ---------------------------------------------------------------------------------------------------------


@record(tag=50)
class DirMade:
    """An empty directory *name* (including the slash) was made in *parent*. All its times are *at_ns*."""

    parent: int
    name: bytes
    id: int
    mode: int
    uid: int
    gid: int
    at_ns: int


@record(tag=51)
class DirDeleted:
    """The directory *name*, which had no entries, was removed from *parent*."""

    parent: int
    name: bytes
    at_ns: int


@record(tag=52)
class FileMade:
    """A node was made that no name points at yet. It holds one count on its content."""

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

    The version that was current before becomes the newest noncurrent one if *keep* is 1; otherwise it is deleted."""

    parent: int
    name: bytes
    node: int
    version: int
    null: int
    keep: int
    at_ns: int


@record(tag=54)
class VersionDeleted:
    """A version of *name* was deleted, current or not. If it was current, the next older one becomes current; if there
    is none, the name is deleted."""

    parent: int
    name: bytes
    version: int
    at_ns: int


@record(tag=55)
class EntryMoved:
    """*name*, which has no noncurrent versions, was moved from *parent* to *to_parent* as *to_name*, which did not
    exist. A directory keeps its node and everything below it. Both parents are in the same bucket."""

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
    """Content headers, user metadata and tags of a node were set. They belong to the node, not to a name."""

    id: int
    headers: bytes
    tags: bytes
    ctime_ns: int


@record(tag=61)
class FileContentSet:
    """The content of a node was replaced in place (by a POSIX write, truncation or clone), and the former content was
    released.

    *freed* is a fresh id under which the former content is in the release queue; 0 if there was none. *bucket* contains
    the names of the node."""

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
    """There are now directories *height* levels below the directory *id*, and accordingly more levels below those above
    it."""

    id: int
    height: int


TreeRecord = (
    NamePut | FileMade | VersionDeleted | DirMade | DirDeleted | EntryMoved
    | FileAttributesSet | DirAttributesSet | FileXattrsSet | DirXattrsSet | FileHeadersSet | FileContentSet
    | DirHeightRaised | BucketMade | BucketDeleted | BucketDeletedWithUploads | BucketVersioningSet | BucketSettingsSet
    | BucketOwnerSet | BucketDocumentSet | BucketDocumentRemoved
)  # fmt: skip
