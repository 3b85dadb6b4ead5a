"""Point look-ups for readers: synchronous, a few microseconds each, over a read-only store.

The way of a GET, from the bucket's name over the directories to the node and its run, is *one* statement, joined as
deep as the key is: one snapshot, one trip. Only what it does not find (no such bucket? no such key? a delete marker?),
a version asked for by id, and keys that are deeper than SQLite joins take further steps.

A reader must hold a horizon while it looks up and reads: what a row named a moment ago may be taken apart by now.
Bodies are resolved while they are read, so *takedown waits until every horizon is above the number at which it saw the
freed row*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cache
from typing import Any, NamedTuple, Protocol

from gateway.errors import Corrupted, NoSuchBucket
from gateway.journal.columns import FIRST_BLOCK_SQL, Extent, unpack_extents, unpack_pieces
from gateway.journal.tables import Bucket, Part, Shape, Upload
from gateway.namespace.keys import split
from gateway.namespace.version_ids import parse_version_id, s3_version_id, version_id_text


class Reads(Protocol):
    """What this room asks of a read-only store."""

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of one statement, on a snapshot of its own or on that of the enclosing one."""

    def snapshot(self) -> AbstractContextManager[None]:
        """What is queried inside is one state of the store."""

    def separate_snapshot(self) -> AbstractAsyncContextManager[Reads]:
        """The same store, on one snapshot that is held until the context ends: for what takes several turns of the
        event loop. Few have one at a time; others wait."""


class BucketSummary(NamedTuple):
    """What a read asks of a bucket; as in `Bucket`."""

    name: str
    id: int
    tenant: int
    owner: int
    versioning: int


class BucketAccess(NamedTuple):
    """What looking up a key asks of its bucket; as in `Bucket`."""

    name: str
    owner: int
    versioning: int


class Content(NamedTuple):
    """What S3 asks of a node; as in `File`. Half its columns, since each one costs a GET a part of a microsecond."""

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
    """packed, as in `Run`, where the content is one run; otherwise empty."""
    block: tuple[int, int, int] | None
    """Where the run begins in a block: that block's ring key, size and set of backends; None where it was not asked."""

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
        """The version as S3 spells it in any case."""
        return version_id_text(self.version, self.null)


DEEPEST_JOIN = 24
"""Names of a key that are found in one statement; deeper keys are walked."""

_FILE_COLUMNS = len(Content._fields)


@cache
def columns(alias: str, row: type[Any]) -> str:
    """The columns of a row, for a SELECT."""
    return ", ".join(f'{alias}."{field}"' for field in row._fields)


@cache
def _find_sql(depth: int, content: bool) -> str:
    """From a bucket's name over *depth* names to the node of the live entry; with *content* on to its run, and to the
    block that this begins in."""
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


def owned(reads: Reads, name: str) -> BucketSummary | None:
    """What most requests ask of a bucket; a part of the cost of `bucket`."""
    rows = reads.query(f"SELECT {columns('b', BucketSummary)} FROM bucket b WHERE b.name = ?", (name,))
    return BucketSummary._make(rows[0]) if rows else None


def user_name(reads: Reads, user: int) -> str | None:
    """The name of the user of that id."""
    rows = reads.query("SELECT name FROM user WHERE id = ?", (user,))
    return str(rows[0][0]) if rows else None


def find(reads: Reads, name: str, key: bytes, version: str = "", content: bool = True) -> Found | None:
    """The current version of *key* in the bucket *name*, or the *version* that is named; None where there is none. A
    delete marker is found too, and has no file. Without *content* nobody is going to read, and `extents` may be empty.

    Raises `NoSuchBucket`, `InvalidArgument` for what is no version id."""
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
"""Directories that one statement descends."""
DEAD_OR_LIVE = "e.dead IN (0, 1)"
# Each name of a path is cut off behind its slash.
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
    """The directories of these *names*, with their slashes, each in the one before it, beginning in *node*. Ends at the
    first that does not exist. *dead* is SQL that says which entries `e` count."""
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
"""So many are looked up quicker one by one."""


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
    """An entry, as it is looked up by name."""

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
    """The bucket, the directory that the last name stands in (0: there is none) and what stands there."""
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
        return None  # it went between two looks
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


# --- bytes ----------------------------------------------------------------------------------------------------------

Stretch = tuple[Extent, int, int]
"""An extent, and which of its plain bytes: start and length."""


def resolve(reads: Reads, found: Found, start: int, length: int) -> Iterator[list[Stretch]]:
    """The extents that hold *length* plain bytes from *start* on, in order, a list at a time.

    One list for content of one run; one for each piece of a body, looked up when it is asked for, so memory does not
    grow with the object. Raises `Corrupted` where a row is not there any more: the horizon was not held."""
    file = found.file
    if file is None or length <= 0:
        return
    if file.shape == Shape.RUN:
        yield stretches(unpack_extents(found.extents), start, length)
    elif file.shape == Shape.BODY:
        yield from _resolve_body(reads, file.content, start, length)


def _resolve_body(reads: Reads, body: int, start: int, length: int) -> Iterator[list[Stretch]]:
    rows = reads.query("SELECT pieces FROM body WHERE id = ?", (body,))
    if not rows:
        raise Corrupted(f"a read came too late: body {body} is taken apart")
    at, end = 0, start + length
    for piece in unpack_pieces(rows[0][0]):
        low, high = max(start, at), min(end, at + piece.length)
        if low < high:
            yield run_stretches(reads, piece.run, piece.offset + low - at, high - low)
        at += piece.length
        if at >= end:
            return


def run_stretches(reads: Reads, run: int, start: int, length: int) -> list[Stretch]:
    """The extents that hold a stretch of one run. Raises `Corrupted` if it is taken apart."""
    rows = reads.query("SELECT extents FROM run WHERE id = ?", (run,))
    if not rows:
        raise Corrupted(f"a read came too late: run {run} is taken apart")
    return stretches(unpack_extents(rows[0][0]), start, length)


def stretches(all_extents: Sequence[Extent], start: int, length: int) -> list[Stretch]:
    """Those of a run's extents that hold *length* plain bytes from *start* on."""
    wanted: list[Stretch] = []
    at, end = 0, start + length
    for extent in all_extents:
        low, high = max(start, at), min(end, at + extent.length)
        if low < high:
            wanted.append((extent, low - at, high - low))
        at += extent.length
        if at >= end:
            break
    return wanted


# --- uploads --------------------------------------------------------------------------------------------------------


def upload(reads: Reads, name: str, key: bytes, upload_id: int) -> Upload | None:
    """The upload, open or ended; None also for one of a bucket that is gone, whether there is another of its name."""
    rows = reads.query(
        f"SELECT {columns('u', Upload)} FROM upload u JOIN bucket b ON b.name = u.bucket AND b.id < u.id "
        "WHERE u.bucket = ? AND u.state IN (0, 1, 2) AND u.key = ? AND u.id = ?",
        (name, key, upload_id),
    )
    return Upload._make(rows[0]) if rows else None


def part(reads: Reads, upload_id: int, number: int) -> Part | None:
    rows = reads.query(
        f"SELECT {columns('p', Part)} FROM part p WHERE p.upload = ? AND p.number = ?", (upload_id, number)
    )
    return Part._make(rows[0]) if rows else None
