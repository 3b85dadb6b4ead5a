"""The rows of every table, column by column; one file per subject, like the records. A row is a tuple of plain values,
which the stores write as it is.

A table is either *truth* (made by the journal alone: replaying the records gives the same rows) or *scratch* (local: no
record names its rows, and a replay does not make them). The first `key` columns of a row are its key. Rows are
immutable: `apply` replaces a row by a changed copy.

Ids have 64 bits: the incarnation of the journal that drew them, and a counter of 48 bits. 0 means: no id. Times are
nanoseconds since 1970; the committer takes them from the wall clock or, where a column says so, from the site's clock
(`site_clock`). Columns described as *packed* contain msgpack (see `columns.py`).
"""

from __future__ import annotations

from typing import Any

from gateway.journal.tables.base import Key, Table
from gateway.journal.tables.bytes import (
    BLOCK,
    BODY,
    INLINE_VALUE,
    MEMBER,
    RELEASE_QUEUE,
    REWRITE,
    RUN,
    Block,
    Body,
    InlineValue,
    Member,
    QueuedRelease,
    Rewrite,
    Run,
    Shape,
)
from gateway.journal.tables.site import (
    ACCESS_KEY,
    BACKEND,
    BACKEND_SET,
    POLICY,
    RING_KEY,
    SESSION,
    SITE,
    SLOT,
    TENANT,
    TOKEN,
    USER,
    AccessKey,
    BackendName,
    BackendSet,
    PolicyName,
    RingKey,
    Session,
    SessionState,
    SiteRow,
    Slot,
    Tenant,
    Token,
    User,
)
from gateway.journal.tables.tree import (
    BUCKET,
    DIR,
    ENTRY,
    FILE,
    VERSION,
    Bucket,
    Dir,
    Entry,
    File,
    FileKind,
    Version,
    Versioning,
)
from gateway.journal.tables.uploads import (
    DELETED_BUCKET,
    PART,
    UPLOAD,
    DeletedBucket,
    Part,
    Upload,
    UploadState,
)
from gateway.journal.tables.work import (
    PLAN,
    WORK,
    Plan,
    Work,
    WorkState,
)

__all__ = [
    "ACCESS_KEY",
    "BACKEND",
    "BACKEND_SET",
    "BLOCK",
    "BODY",
    "BUCKET",
    "DELETED_BUCKET",
    "DIR",
    "ENTRY",
    "FILE",
    "INLINE_VALUE",
    "MEMBER",
    "PART",
    "PLAN",
    "POLICY",
    "RELEASE_QUEUE",
    "REWRITE",
    "RING_KEY",
    "RUN",
    "SESSION",
    "SITE",
    "SLOT",
    "TABLES",
    "TENANT",
    "TOKEN",
    "UPLOAD",
    "USER",
    "VERSION",
    "WORK",
    "AccessKey",
    "BackendName",
    "BackendSet",
    "Block",
    "Body",
    "Bucket",
    "DeletedBucket",
    "Dir",
    "Entry",
    "File",
    "FileKind",
    "InlineValue",
    "Key",
    "Member",
    "Part",
    "Plan",
    "PolicyName",
    "QueuedRelease",
    "Rewrite",
    "RingKey",
    "Run",
    "Session",
    "SessionState",
    "Shape",
    "SiteRow",
    "Slot",
    "Table",
    "Tenant",
    "Token",
    "Upload",
    "UploadState",
    "User",
    "Version",
    "Versioning",
    "Work",
    "WorkState",
]

TABLES: tuple[Table[Any], ...] = (
    SITE, TENANT, USER, ACCESS_KEY, RING_KEY, BACKEND, BACKEND_SET, POLICY, SESSION, BUCKET, DIR, ENTRY, VERSION,
    FILE, RUN, BODY, BLOCK, MEMBER, UPLOAD, PART, RELEASE_QUEUE, SLOT, WORK, PLAN, DELETED_BUCKET,
    TOKEN, REWRITE, INLINE_VALUE,
)  # fmt: skip
