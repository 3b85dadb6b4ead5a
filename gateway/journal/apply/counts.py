"""The counts that `apply` keeps: entries of directories, what a bucket holds, links of a file, holders of content."""

from __future__ import annotations

from gateway.journal.columns import checksum_kind
from gateway.journal.rows import Rows, require
from gateway.journal.tables import (
    BODY,
    BUCKET,
    DIR,
    ENTRY,
    FILE,
    RELEASE_QUEUE,
    RUN,
    Bucket,
    Dir,
    File,
    QueuedRelease,
    Run,
    Shape,
)


def count_entry(rows: Rows, parent: int, *, live: int, entries: int, subdirs: int, at_ns: int) -> None:
    """A directory's entries changed. What changes between no live entry and one is told to the directory above."""
    directory = require(rows, DIR, (parent,))
    if not (live or entries or subdirs):
        return
    # Each PUT and each DELETE counts so; built like this, a row costs a third of what `_replace` takes.
    changed = Dir(
        directory.id, directory.bucket, directory.parent, directory.name, directory.live + live,
        directory.entries + entries, directory.subdirs + subdirs, directory.mode, directory.uid, directory.gid,
        at_ns, at_ns, directory.atime_ns, directory.xattrs, directory.height if directory.subdirs + subdirs else 0,
    )  # fmt: skip
    rows.put(DIR, changed)
    if (directory.live > 0) != (changed.live > 0) and directory.parent:
        entry = require(rows, ENTRY, (directory.parent, directory.name))
        is_live = changed.live > 0
        rows.put(ENTRY, entry._replace(dead=0 if is_live else 1))
        _propagate_live(rows, directory.parent, 1 if is_live else -1)


def _propagate_live(rows: Rows, parent: int, live: int) -> None:
    """A directory above came to live or died with what is in it: its times stay, nobody touched its own entries."""
    while True:
        directory = require(rows, DIR, (parent,))
        changed = directory._replace(live=directory.live + live)
        rows.put(DIR, changed)
        if (directory.live > 0) == (changed.live > 0) or not directory.parent:
            return
        entry = require(rows, ENTRY, (directory.parent, directory.name))
        rows.put(ENTRY, entry._replace(dead=0 if changed.live > 0 else 1))
        parent = directory.parent


def count_versions(rows: Rows, bucket: str, *, objects: int, versions: int, size: int) -> None:
    """A bucket's objects, versions or bytes changed by these differences."""
    if not (objects or versions or size):
        return
    row = require(rows, BUCKET, (bucket,))
    rows.put(
        BUCKET,
        Bucket(
            row.name, row.id, row.tenant, row.owner, row.root, row.region, row.versioning, row.policy,
            row.objects + objects, row.versions + versions, row.size + size, row.uploads, row.settings, row.made_ns,
        ),
    )  # fmt: skip


def count_content(rows: Rows, shape: int, content: int, by: int) -> None:
    """So many more (or fewer) name this run or body."""
    match shape:
        case Shape.RUN:
            run = require(rows, RUN, (content,))
            rows.put(RUN, Run(run.id, run.refs + by, run.size, run.policy, run.extents))
        case Shape.BODY:
            body = require(rows, BODY, (content,))
            rows.put(BODY, body._replace(refs=body.refs + by))


_LINKS, _CTIME = File._fields.index("links"), File._fields.index("ctime_ns")

NO_NODE_SHOWN = (0, "", 0, b"")
"""What a name remembers of no node."""


def add_link(rows: Rows, node: int, at_ns: int) -> tuple[int, str, int, bytes]:
    """One more name points at the file *node*; 0, a delete marker, has none.

    Answers what the name remembers of it: size, ETag, owner, kind of checksum."""
    if not node:
        return NO_NODE_SHOWN
    file = require(rows, FILE, (node,))
    rows.put(FILE, _with_links(file, file.links + 1, at_ns))
    return file.size, file.etag, file.owner, checksum_kind(file.checksums)


def _with_links(file: File, links: int, at_ns: int) -> File:
    return File._make((*file[:_LINKS], links, *file[_LINKS + 1 : _CTIME], at_ns, *file[_CTIME + 1 :]))


def remove_link(rows: Rows, node: int, at_ns: int) -> int:
    """One name fewer points at the file *node*. At none the file goes, and its content waits to be taken apart.

    Answers the plain bytes that the name stood for."""
    if not node:
        return 0
    file = require(rows, FILE, (node,))
    if file.links > 1:
        rows.put(FILE, _with_links(file, file.links - 1, at_ns))
    else:
        rows.drop(FILE, (node,))
        if file.shape != Shape.NONE:
            rows.put(RELEASE_QUEUE, QueuedRelease(file.id, file.shape, file.content, 0))
    return file.size
