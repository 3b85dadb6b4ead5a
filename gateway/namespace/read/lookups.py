"""Point look-ups for readers: synchronous, a few microseconds each, over a read-only store.

The look-up of a GET, from the bucket's name through the directories to the node and its run, is *one* statement with
one join for each directory of the key, so it reads one snapshot. Further statements are needed only if it finds nothing
(no such bucket, no such key, or a delete marker), for a version id, and for keys with more directories than SQLite can
join.

A reader must hold the horizon from the look-up until it has read the last byte: otherwise the content that a row names
may be released meanwhile. The runs of a body are looked up while it is read, so *content is released only once every
horizon is above the number at which the release worker saw the row in the release queue*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from gateway.errors import NoSuchBucket
from gateway.journal.columns import FIRST_BLOCK_SQL, unpack_map
from gateway.journal.tables import Bucket, Upload
from gateway.namespace.keys import split
from gateway.namespace.version_ids import parse_version_id, s3_version_id, version_id_text


class Reads(Protocol):
    """The read-only store that look-ups use."""

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a statement, from a snapshot of its own or, inside `snapshot`, from that one."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Return a context in which all queries read one state of the store."""

    def separate_snapshot(self) -> AbstractAsyncContextManager[Reads]:
        """Return a context with the same store, on one snapshot that is held until the context ends, for work that
        takes several turns of the event loop. Only a few exist at a time; others wait."""


class BucketSummary(NamedTuple):
    """The columns of `Bucket` that most requests need."""

    name: str
    id: int
    tenant: int
    owner: int
    versioning: int
    documents: Mapping[int, bytes] = MappingProxyType({})
    """By `DocumentKind`."""


class BucketAccess(NamedTuple):
    """The columns of `Bucket` that the look-up of a key returns."""

    name: str
    owner: int
    versioning: int


class Content(NamedTuple):
    """The columns of `File` that S3 needs. Only these, since each further one costs a GET a part of a microsecond."""

    id: int
    size: int
    shape: int
    content: int
    etag: str
    owner: int
    written_ns: int
    headers: bytes
    checksums: bytes
    tags: bytes


class Found(NamedTuple):
    """A version of a key, and its node."""

    bucket: BucketAccess
    key: bytes
    version: int
    null: int
    latest: int
    """1: it is the current version."""
    named_ns: int
    file: Content | None
    """None: a delete marker."""
    extents: bytes
    """packed, as in `Run`, if the content is one run; otherwise empty."""
    block: tuple[int, int, int] | None
    """The ring key, size and set of backends of the block in which the run begins; None if they were not looked up."""

    @property
    def modified_ns(self) -> int:
        """S3's LastModified."""
        return self.named_ns if self.file is None else max(self.named_ns, self.file.written_ns)

    @property
    def shown_version(self) -> str | None:
        """The version as S3 shows it; None in a bucket that never had versioning."""
        return s3_version_id(self.version, self.null, self.bucket.versioning)

    @property
    def version_text(self) -> str:
        """The version id as S3 shows it, also in a bucket that never had versioning."""
        return version_id_text(self.version, self.null)


DEEPEST_JOIN = 24
"""The most names of a key that one statement joins. For a deeper key, the directories are looked up first."""

_FILE_COLUMNS = len(Content._fields)


@cache
def columns(alias: str, row: type[Any]) -> str:
    """Return the columns of a row for a SELECT."""
    return ", ".join(f'{alias}."{field}"' for field in row._fields)


@cache
def _find_sql(depth: int, content: bool) -> str:
    """Return the statement that follows *depth* names from a bucket's root to the node of a live entry; with *content*
    also to its run, and to the block in which the run begins."""
    joins = ["FROM bucket b"]
    parent = "b.root"
    for level in range(depth):
        joins.append(f"CROSS JOIN entry e{level} ON e{level}.parent = {parent} AND e{level}.dead = 0")
        joins.append(f"AND e{level}.name = ?{level + 2}")
        parent = f"e{level}.node"
    last = f"e{depth - 1}"
    joins.append(f"CROSS JOIN file f ON f.id = {last}.node")
    wanted = f'{columns("f", Content)}, b.owner, b.versioning, {last}.version, {last}."null", {last}.modified_ns'
    if content:
        wanted += ", r.extents, k.ring_key, k.size, k.backends"
        joins.append("LEFT JOIN run r ON r.id = CASE WHEN f.shape = 1 THEN f.content END")
        joins.append(f"LEFT JOIN block k ON k.id = {FIRST_BLOCK_SQL.format('r.extents')}")
    return f"SELECT {wanted} {' '.join(joins)} WHERE b.name = ?1"


def bucket(reads: Reads, name: str) -> Bucket | None:
    rows = reads.query(f"SELECT {columns('b', Bucket)} FROM bucket b WHERE b.name = ?", (name,))
    return Bucket._make(rows[0]) if rows else None


def bucket_summary(reads: Reads, name: str) -> BucketSummary | None:
    """Return the columns of a bucket that most requests need, for a part of the cost of `bucket`."""
    rows = reads.query(
        "SELECT b.name, b.id, b.tenant, b.owner, b.versioning, d.documents FROM bucket b "
        "LEFT JOIN bucket_documents d ON d.bucket = b.id WHERE b.name = ?",
        (name,),
    )
    if not rows:
        return None
    *values, documents = rows[0]
    return BucketSummary._make((*values, unpack_map(documents or b"")))


def user_id(reads: Reads, name: str) -> int | None:
    """Return the id of the user of this name."""
    rows = reads.query("SELECT id FROM user WHERE name = ?", (name,))
    return int(rows[0][0]) if rows else None


def user_name(reads: Reads, user: int) -> str | None:
    """Return the name of the user with the id *user*."""
    rows = reads.query("SELECT name FROM user WHERE id = ?", (user,))
    return str(rows[0][0]) if rows else None


def find(reads: Reads, name: str, key: bytes, version: str = "", content: bool = True) -> Found | None:
    """Return the current version of *key* in the bucket *name*, or the version with the id *version*; None if there is
    none. A delete marker is returned too, without a file. Without *content*, for callers that read no bytes, `extents`
    may be empty.

    Raises `NoSuchBucket`, and `InvalidArgument` if *version* is not a version id."""
    names = split(key)
    if version:
        return _find_version(reads, name, key, names, version)
    if len(names) <= DEEPEST_JOIN:
        rows = reads.query(_find_sql(len(names), content), (name, *names))
        if rows:
            return _make_found(name, key, rows[0])
    return _find_slowly(reads, name, key, names)


def _make_found(bucket: str, key: bytes, row: tuple[Any, ...]) -> Found:
    owner, versioning, version, null, named_ns, *content = row[_FILE_COLUMNS:]
    packed, block = b"", None
    if content and content[0] is not None:
        packed, *first = content
        block = None if first[0] is None else tuple(first)
    file = Content._make(row[:_FILE_COLUMNS])
    return Found(BucketAccess(bucket, owner, versioning), key, version, null, 1, named_ns, file, packed, block)


DESCENT_LEVELS = 256
"""The most directories that one statement descends."""
DEAD_OR_LIVE = "e.dead IN (0, 1)"
# A path is cut into names after each slash.
_DESCENT_SQL = """
WITH RECURSIVE path(level, at, node) AS (
    SELECT 0, 1, ?1
    UNION ALL
    SELECT level + 1, at + length(e.name), e.node
    FROM path CROSS JOIN entry AS e ON e.parent = path.node AND {dead}
        AND e.name = substr(?2, at, instr(substr(?2, at), x'2f'))
    WHERE level < ?3
)
SELECT node FROM path WHERE level > 0"""


def find_directories(reads: Reads, node: int, names: Sequence[bytes], dead: str = DEAD_OR_LIVE) -> list[int]:
    """Return the directories of these *names* (with their slashes), each in the one before it, the first one in *node*,
    up to the first that does not exist. *dead*: an SQL condition on entries `e`."""
    found: list[int] = []
    for at in range(0, len(names), DESCENT_LEVELS):
        some = names[at : at + DESCENT_LEVELS]
        if len(some) <= FEW_NAMES:
            rows = _find_directories_singly(reads, node, some, dead)
        else:
            rows = reads.query(_DESCENT_SQL.format(dead=dead), (node, b"".join(some), len(some)))
        found += [row[0] for row in rows]
        if len(rows) < len(some):
            break
        node = found[-1]
    return found


FEW_NAMES = 2
"""Up to this many names are looked up faster one by one."""


def _find_directories_singly(reads: Reads, node: int, names: Sequence[bytes], dead: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for name in names:
        rows = reads.query(f"SELECT e.node FROM entry e WHERE e.parent = ? AND {dead} AND e.name = ?", (node, name))
        if not rows:
            break
        node = rows[0][0]
        found += rows
    return found


class _CurrentEntry(NamedTuple):
    """The columns of an entry that a look-up by name returns."""

    node: int
    version: int
    null: int
    null_version: int
    modified_ns: int


_ENTRY_SQL = (
    'SELECT node, version, "null", null_version, modified_ns '
    "FROM entry WHERE parent = ? AND dead IN (0, 1) AND name = ?"
)


def _entry(reads: Reads, parent: int, name: bytes) -> _CurrentEntry | None:
    rows = reads.query(_ENTRY_SQL, (parent, name))
    return _CurrentEntry._make(rows[0]) if rows else None


def _find_entry(reads: Reads, name: str, names: list[bytes]) -> tuple[BucketAccess, int, _CurrentEntry | None]:
    """Return the bucket, the directory of the last name (0: it does not exist), and the entry of that name in it."""
    at = bucket(reads, name)
    if at is None:
        raise NoSuchBucket(name)
    holder = BucketAccess(at.name, at.owner, at.versioning)
    above = names[:-1]
    nodes = [at.root, *find_directories(reads, at.root, above)]
    if len(nodes) <= len(above):
        return holder, 0, None
    return holder, nodes[-1], _entry(reads, nodes[-1], names[-1])


def _find_slowly(reads: Reads, name: str, key: bytes, names: list[bytes]) -> Found | None:
    at, _parent, entry = _find_entry(reads, name, names)
    if entry is None:
        return None
    return _load(reads, at, key, entry.version, entry.null, 1, entry.modified_ns, entry.node)


def _load(
    reads: Reads, at: BucketAccess, key: bytes, version: int, null: int, latest: int, named_ns: int, node: int
) -> Found | None:
    if not node:
        return Found(at, key, version, null, latest, named_ns, None, b"", None)
    rows = reads.query(_FILE_SQL, (node,))
    if not rows:
        return None  # it was deleted between the two queries
    file = Content._make(rows[0][:_FILE_COLUMNS])
    return Found(at, key, version, null, latest, named_ns, file, rows[0][-1] or b"", None)


_FILE_SQL = (
    f"SELECT {columns('f', Content)}, r.extents FROM file f "
    "LEFT JOIN run r ON r.id = CASE WHEN f.shape = 1 THEN f.content END WHERE f.id = ?"
)


def _find_version(reads: Reads, name: str, key: bytes, names: list[bytes], version: str) -> Found | None:
    at, parent, entry = _find_entry(reads, name, names)
    wanted = parse_version_id(version)
    if entry is None:
        return None
    if wanted is None:
        wanted = entry.null_version
    leaf = names[-1]
    if wanted == entry.version:
        return _load(reads, at, key, wanted, entry.null, 1, entry.modified_ns, entry.node)
    rows = reads.query(
        'SELECT "null", modified_ns, node FROM version WHERE parent = ? AND name = ? AND version = ?',
        (parent, leaf, wanted),
    )
    if not rows:
        return None
    null, modified_ns, node = rows[0]
    return _load(reads, at, key, wanted, null, 0, modified_ns, node)


# --- uploads --------------------------------------------------------------------------------------------------------


def upload(reads: Reads, name: str, key: bytes, upload_id: int) -> Upload | None:
    """Return the upload, open or ended. Returns None for an upload of a deleted bucket, even if another bucket has its
    name."""
    rows = reads.query(
        f"SELECT {columns('u', Upload)} FROM upload u JOIN bucket b ON b.name = u.bucket AND b.id < u.id "
        "WHERE u.bucket = ? AND u.state IN (0, 1, 2) AND u.key = ? AND u.id = ?",
        (name, key, upload_id),
    )
    return Upload._make(rows[0]) if rows else None
