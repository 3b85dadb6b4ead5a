"""The records: small facts in the past tense. A tag keeps its meaning for good; a new field stands last, with a
default; a new meaning is a new tag, written only once the journal's feature level says so.

`apply.py` is the one place that says what each does to the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from gateway.journal.packed import Extent, PartFact

FEATURE_LEVEL = 2
"""The newest level that this code knows. 2: blocks are brought where they should be (tags 90 and up)."""

T = TypeVar("T")

RECORDS: dict[int, type[Any]] = {}
"""Every record class by its tag."""


@dataclass_transform(frozen_default=True)
def record(tag: int, feature: int = 1) -> Callable[[type[T]], type[T]]:
    """Make a class a record: frozen, slotted, known by *tag*, allowed from *feature* level on."""

    def register(cls: type[T]) -> type[T]:
        made = dataclass(frozen=True, slots=True)(cls)
        if tag in RECORDS:
            raise TypeError(f"tag {tag} is taken by {RECORDS[tag].__name__}")
        made.TAG = tag  # type: ignore[attr-defined]
        made.FEATURE = feature  # type: ignore[attr-defined]
        RECORDS[tag] = made
        return made

    return register


class NewBlock(NamedTuple):
    """A block that a run's extents lie in, as its writer stored it."""

    id: bytes
    ring_key: int
    size: int
    crc32c: int
    backends: int
    due: int = 0
    """When it is to be brought to where it should be, in ns since 1970; 0: it lies there already."""


# --- the site -------------------------------------------------------------------------------------------------------


@record(tag=1)
class SiteFounded:
    id: str
    name: str
    incarnation: int
    feature: int
    at_ns: int


@record(tag=2)
class IncarnationStarted:
    """The site was restored from a backup; ids are drawn above the new incarnation from here on."""

    incarnation: int


@record(tag=3)
class FeatureRaised:
    level: int


# --- who ------------------------------------------------------------------------------------------------------------


@record(tag=10)
class TenantMade:
    name: str
    id: int


@record(tag=11)
class UserMade:
    name: str
    id: int
    tenant: int
    root: int
    at_ns: int


@record(tag=12)
class UserGone:
    """The user and all its access keys."""

    name: str


@record(tag=13)
class AccessKeyMade:
    access_key: str
    user: str
    secret: bytes
    master: str
    at_ns: int


@record(tag=14)
class AccessKeyGone:
    access_key: str


@record(tag=15)
class AccessKeyResealed:
    """The same secret under another master key, or another secret."""

    access_key: str
    secret: bytes
    master: str


@record(tag=16)
class RingKeyMade:
    """A new ring key; what its tenant (by name) writes from now on is sealed with it."""

    id: int
    tenant: str
    wrapped: bytes
    master: str
    at_ns: int


@record(tag=17)
class RingKeyRewrapped:
    id: int
    wrapped: bytes
    master: str


# --- sessions -------------------------------------------------------------------------------------------------------


@record(tag=20)
class SessionOpened:
    id: int
    kind: str
    at_ns: int


@record(tag=21)
class SessionEnded:
    """From here on its commits are refused, and its blocks that no run names may go."""

    id: int
    at_ns: int


@record(tag=22)
class SessionSwept:
    """Its blocks were listed once and the unnamed ones deleted."""

    id: int


@record(tag=23)
class SessionForgotten:
    """Its blocks were listed a last time, after the longest deadline of an upload."""

    id: int


# --- names of what the config names ---------------------------------------------------------------------------------


@record(tag=30)
class BackendNamed:
    name: str
    id: int


@record(tag=31)
class BackendSetNamed:
    members: tuple[int, ...]
    id: int


@record(tag=32)
class PolicyNamed:
    name: str
    id: int


# --- buckets --------------------------------------------------------------------------------------------------------


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
class BucketGone:
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


# --- the tree -------------------------------------------------------------------------------------------------------


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
class DirGone:
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
class VersionGone:
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


# --- bytes ----------------------------------------------------------------------------------------------------------


@record(tag=70)
class RunMade:
    """A run that nobody counts yet. *blocks* are the facts of each block that its extents lie in."""

    id: int
    policy: int
    extents: tuple[Extent, ...]
    blocks: tuple[NewBlock, ...]


@record(tag=71)
class BodyMade:
    """A body that nobody counts yet, of slices of content: each is (shape, id, offset, length) and is resolved to
    slices of runs, each counted once a slice."""

    id: int
    slices: tuple[tuple[int, int, int, int], ...]


@record(tag=72)
class PartsJoined:
    """The parts *numbers* of an upload became a body that nobody counts yet; it takes their contents over."""

    bucket: str
    key: bytes
    upload: int
    id: int
    numbers: tuple[int, ...]
    facts: tuple[PartFact, ...]


@record(tag=73)
class TakenApart:
    """What was let go of lost its counts. Each item is (freed id, how many pieces at most)."""

    items: tuple[tuple[int, int], ...]


@record(tag=74)
class ExtentsMoved:
    """Compaction: the extents at *indexes* of a run now lie elsewhere."""

    run: int
    indexes: tuple[int, ...]
    extents: tuple[Extent, ...]
    blocks: tuple[NewBlock, ...]


@record(tag=75)
class BlocksForgotten:
    """Dead blocks whose bytes are gone from every backend."""

    ids: tuple[bytes, ...]


@record(tag=76)
class BlockBackendsSet:
    """A block is now held by another set of backends. *strays*: those where bytes of it may still lie besides."""

    id: bytes
    backends: int
    strays: tuple[int, ...] = ()


# --- multipart uploads ----------------------------------------------------------------------------------------------


@record(tag=80)
class UploadMade:
    bucket: str
    key: bytes
    id: int
    owner: int
    checksum: str
    checksum_type: str
    headers: bytes
    tags: bytes
    at_ns: int


@record(tag=81)
class PartPut:
    """A part arrived; one of the same number lets go of its content. It holds one count on its own."""

    bucket: str
    key: bytes
    upload: int
    number: int
    id: int
    size: int
    shape: int
    content: int
    etag: str
    crc64nvme: int
    checksum: str
    at_ns: int


@record(tag=82)
class UploadEnded:
    """Completed (with its packed result) or aborted. Parts that still stand wait to be dropped."""

    bucket: str
    key: bytes
    id: int
    state: int
    result: bytes
    at_ns: int


@record(tag=83)
class PartsDropped:
    """Parts of an ended upload that nobody took over; they let go of their contents."""

    bucket: str
    key: bytes
    upload: int
    numbers: tuple[int, ...]


@record(tag=84)
class UploadForgotten:
    """An ended upload whose parts are all gone, and with it the answer for a repeat."""

    bucket: str
    key: bytes
    id: int


# --- what is brought where it should be -------------------------------------------------------------------------------


@record(tag=90, feature=2)
class WorkNoted:
    """These blocks are to be looked at, at *due_ns* or sooner."""

    ids: tuple[bytes, ...]
    due_ns: int
    at_ns: int


@record(tag=91, feature=2)
class WorkBegun:
    """From here on bytes of the block may lie on these backends as well, unnamed."""

    id: bytes
    strays: tuple[int, ...]


@record(tag=92, feature=2)
class WorkDone:
    """These blocks are as they should be, and nowhere else."""

    ids: tuple[bytes, ...]


@record(tag=93, feature=2)
class WorkFailed:
    """It did not go; *word* says why. It is looked at again at *due_ns*."""

    id: bytes
    due_ns: int
    state: int
    attempts: int
    word: str


@record(tag=94, feature=2)
class CopySuspected:
    """Somebody found the block's copy on *backend* absent or damaged."""

    id: bytes
    backend: int
    word: str
    at_ns: int


@record(tag=95, feature=2)
class CopiesCleared:
    """The copies of the block on these backends are good (again)."""

    id: bytes
    backends: tuple[int, ...]


@record(tag=96, feature=2)
class PlanAdvanced:
    """All blocks up to *after* were held against what *fingerprint* says should be. *again_ns*: the walk has reached
    its end, and the next one is due then; 0 while it goes on."""

    fingerprint: bytes
    after: bytes
    walks: int
    again_ns: int


@record(tag=97, feature=2)
class BackendLost:
    """Copies on the backend are gone for good."""

    name: str


Record = (
    SiteFounded | IncarnationStarted | FeatureRaised
    | TenantMade | UserMade | UserGone | AccessKeyMade | AccessKeyGone | AccessKeyResealed
    | RingKeyMade | RingKeyRewrapped
    | SessionOpened | SessionEnded | SessionSwept | SessionForgotten
    | BackendNamed | BackendSetNamed | PolicyNamed
    | BucketMade | BucketGone | BucketVersioningSet | BucketSettingsSet
    | DirMade | DirGone | FileMade | NamePut | VersionGone | EntryMoved
    | FileAttributesSet | DirAttributesSet | FileXattrsSet | DirXattrsSet | FileHeadersSet | FileContentSet
    | RunMade | BodyMade | PartsJoined | TakenApart | ExtentsMoved | BlocksForgotten | BlockBackendsSet
    | UploadMade | PartPut | UploadEnded | PartsDropped | UploadForgotten
    | WorkNoted | WorkBegun | WorkDone | WorkFailed | CopySuspected | CopiesCleared | PlanAdvanced | BackendLost
)  # fmt: skip
