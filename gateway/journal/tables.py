"""The rows of every table, column by column. Plain values: a row is a tuple that the stores write as it stands.

A table is either *truth* (the journal alone makes it: replaying the records gives the same rows) or *scratch*
(local, rebuildable, never replayed). The first `key` columns of a row are its key. Rows are values: `apply` puts a
changed copy, nobody changes one in place.

Ids are 64-bit: the incarnation of the journal that drew them above a 48-bit counter. 0 is no id. Times are
nanoseconds since 1970, drawn by the committer. Columns called *packed* hold msgpack (see `packed.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

Key = tuple[Any, ...]


class Shape(IntEnum):
    """What a content id names: nothing (no bytes), one run, or a body of several."""

    NONE = 0
    RUN = 1
    BODY = 2


class Kind(IntEnum):
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


class UploadState(IntEnum):
    """OPEN takes parts; the others only remember their end, until they are forgotten."""

    OPEN = 0
    COMPLETED = 1
    ABORTED = 2


class SessionState(IntEnum):
    """LIVE commits; ENDED does not and its unnamed blocks may go; SWEPT was listed once and waits for the last look."""

    LIVE = 0
    ENDED = 1
    SWEPT = 2


class Site(NamedTuple):
    """The site itself; one row, whose `one` is 0."""

    one: int
    id: str
    """32 hex digits, drawn at `init`; stands in every backend's marker."""
    name: str
    incarnation: int
    """Raised when the site is restored, so that no id is drawn twice."""
    feature: int
    """The level that a reader of this journal must know."""
    made_ns: int


class Tenant(NamedTuple):
    name: str
    id: int
    ring_key: int
    """The ring key that seals what this tenant writes now."""


class User(NamedTuple):
    name: str
    id: int
    tenant: int
    root: int
    """1: may do everything."""
    buckets: int
    """How many it owns; a user that owns some cannot be removed."""
    access_keys: bytes
    """packed: the list of its access keys."""
    made_ns: int


class AccessKey(NamedTuple):
    access_key: str
    user: str
    user_id: int
    secret: bytes
    """The secret, sealed under a master key."""
    master: str
    """The id of that master key."""
    made_ns: int


class RingKey(NamedTuple):
    id: int
    tenant: int
    wrapped: bytes
    master: str
    made_ns: int


class BackendName(NamedTuple):
    """A backend's interned name."""

    name: str
    id: int
    lost: int = 0
    """1: its copies are gone for good, somebody said."""


class BackendSet(NamedTuple):
    """An interned set of backends."""

    members: bytes
    """packed: ascending list of backend ids."""
    id: int


class PolicyName(NamedTuple):
    """A placement policy's interned name."""

    name: str
    id: int


class Session(NamedTuple):
    """A process's stay with the committer. Block ids begin with its id."""

    id: int
    kind: str
    """worker, keeper, cli, client."""
    state: int
    opened_ns: int
    ended_ns: int


class Plan(NamedTuple):
    """How far the blocks were held against what should be; one row, whose `one` is 0."""

    one: int
    fingerprint: bytes
    """Of all that says what should be: the walk is one of these."""
    after: bytes
    """The last block that was looked at; empty at the beginning of a walk."""
    walks: int
    """How often the end was reached under this fingerprint."""
    again_ns: int
    """When the next walk is due; 0 while one is under way."""


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


class Run(NamedTuple):
    """An immutable row of extents: what one PUT, part or flush wrote."""

    id: int
    refs: int
    """Files, parts and bodies that name it."""
    size: int
    policy: int
    extents: bytes
    """packed: list of `Extent`. Only compaction changes it, conditionally; an extent's place stands nowhere else."""


class Body(NamedTuple):
    """A counted, immutable list of slices of runs."""

    id: int
    refs: int
    size: int
    pieces: bytes
    """packed: list of `Piece`."""
    parts: bytes
    """packed: list of `PartFact`, for what was uploaded in parts; empty otherwise."""


class Block(NamedTuple):
    """A sealed block, named by the journal."""

    id: bytes
    """24 bytes: the session that wrote it, big-endian, and 16 drawn at random."""
    ring_key: int
    size: int
    """Sealed bytes, as stored."""
    plain: int
    """Plain bytes of all extents that the journal ever named in it."""
    live: int
    """Plain bytes of those that still live."""
    members: int
    """Live extents in it."""
    crc32c: int
    """Of the sealed bytes, as confirmed by the backend."""
    backends: int
    """The `BackendSet` that holds it."""
    policy: int
    died: int
    """The number of the record that took its last extent; 0 while it lives."""


class WorkState(IntEnum):
    """WAITING is tried when it is due; ASIDE failed too often and is tried once a day; LOST has no good copy left."""

    WAITING = 0
    ASIDE = 1
    LOST = 2


class Work(NamedTuple):
    """A block whose copies are not what they should be, or about whose copies something is to be found out."""

    block: bytes
    due_ns: int
    """When it is looked at next."""
    since_ns: int
    """Since when it has not been as it should be."""
    state: int
    attempts: int
    """How often it failed by itself; a backend that does not answer does not count."""
    word: str
    """What went wrong the last time."""
    suspects: bytes
    """packed: ascending list of backends whose copy is said to be absent or damaged; empty for none."""
    strays: bytes
    """packed: ascending list of backends where bytes of it may lie that its set does not name; empty for none."""
    strays_number: int
    """The number of the record since which no reader is led to them."""


class Member(NamedTuple):
    """A run that has extents in a block: what compaction and draining ask for. No other columns."""

    block: bytes
    run: int


class Upload(NamedTuple):
    """A multipart upload."""

    bucket: str
    key: bytes
    id: int
    state: int
    """Stands in the stores' key before `key`, so that listings meet only the open ones."""
    owner: int
    made_ns: int
    ended_ns: int
    parts: int
    """Part rows that stand."""
    checksum: str
    """The algorithm that its parts carry, or empty."""
    checksum_type: str
    """COMPOSITE, FULL_OBJECT, or empty."""
    headers: bytes
    tags: bytes
    result: bytes
    """packed: `Completed`, so that a repeated completion has its answer."""


class Part(NamedTuple):
    upload: int
    number: int
    id: int
    size: int
    shape: int
    content: int
    etag: str
    """The part's MD5, hex."""
    crc64nvme: bytes
    """8 bytes, big-endian: it has no sign, and SQLite's integers do."""
    checksum: str
    """Base64, of the upload's algorithm, or empty."""
    modified_ns: int


class Freed(NamedTuple):
    """Something that let go of its content, whose counts are taken down later, in slices."""

    id: int
    """The id of the file, part or upload that let go."""
    shape: int
    """What `content` is; `Shape.NONE` here means that the id is an upload whose parts are to go."""
    content: int
    cursor: int
    """For a body: how many pieces were let go of already."""


class Slot(NamedTuple):
    """Scratch: the last answer of a session's slot, so that a retried command is not run twice."""

    session: int
    slot: int
    number: int
    answer: bytes


R = TypeVar("R", bound=tuple[Any, ...])


@dataclass(frozen=True, eq=False)
class Table(Generic[R]):
    """A table: its name in the stores, its row, how many leading columns are the key, truth or scratch."""

    name: str
    row: type[R]
    key: int = 1
    order: tuple[str, ...] = ()
    """The columns of the stores' primary key, in order, where that is not simply the key."""
    truth: bool = True

    def key_of(self, row: R) -> Key:
        """The leading columns of *row* that are its key."""
        return row[: self.key]

    @property
    def stored_key(self) -> tuple[str, ...]:
        """The columns of the stores' primary key."""
        return self.order or self.row._fields[: self.key]  # type: ignore[attr-defined]


SITE = Table("site", Site)
TENANT = Table("tenant", Tenant)
USER = Table("user", User)
ACCESS_KEY = Table("access_key", AccessKey)
RING_KEY = Table("ring_key", RingKey)
BACKEND = Table("backend", BackendName)
BACKEND_SET = Table("backend_set", BackendSet)
POLICY = Table("policy", PolicyName)
SESSION = Table("session", Session)
BUCKET = Table("bucket", Bucket)
DIR = Table("dir", Dir)
ENTRY = Table("entry", Entry, 2, ("parent", "dead", "name"))
VERSION = Table("version", Version, 3)
FILE = Table("file", File)
RUN = Table("run", Run)
BODY = Table("body", Body)
BLOCK = Table("block", Block)
MEMBER = Table("member", Member, 2)
WORK = Table("work", Work)
PLAN = Table("plan", Plan)
UPLOAD = Table("upload", Upload, 3, ("bucket", "state", "key", "id"))
PART = Table("part", Part, 2)
FREED = Table("freed", Freed)
SLOT = Table("slot", Slot, 2, truth=False)

TABLES: tuple[Table[Any], ...] = (
    SITE, TENANT, USER, ACCESS_KEY, RING_KEY, BACKEND, BACKEND_SET, POLICY, SESSION, BUCKET, DIR, ENTRY, VERSION,
    FILE, RUN, BODY, BLOCK, MEMBER, UPLOAD, PART, FREED, SLOT, WORK, PLAN,
)  # fmt: skip
