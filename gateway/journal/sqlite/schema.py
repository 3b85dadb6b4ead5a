"""The numbered schema, and the migration of older files. `PRAGMA user_version` stores the number.

The tables and their columns are those of `gateway.journal.tables`, which explains each of them. A table whose key is
one integer is a rowid table. The others are WITHOUT ROWID, so that a range read walks one B-tree. The meaning of a
schema number never changes: a change is a new step in `STEPS`. No step copies a big table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_type_hints

from gateway.errors import Misconfigured
from gateway.journal.columns import checksum_kind
from gateway.journal.tables import (
    BUCKET_DOCUMENTS,
    DELETED_BUCKET,
    INLINE_VALUE,
    PLAN,
    REWRITE,
    TABLES,
    TOKEN,
    WORK,
    Table,
)

if TYPE_CHECKING:
    from sqlite_utils import Database

_TYPES = {int: "INTEGER", str: "TEXT", bytes: "BLOB"}

# One row per batch; the columns are those of `gateway.journal.store.JournalRow`.
_JOURNAL = """
CREATE TABLE journal (
    number INTEGER PRIMARY KEY,
    records_count INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    next_id INTEGER NOT NULL,
    hash BLOB NOT NULL,
    records BLOB NOT NULL
)"""

# One row, whose `one` is 0: the end of the journal, see `gateway.journal.store.Head`.
_HEAD = """
CREATE TABLE head (
    one INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    hash BLOB NOT NULL,
    at_ns INTEGER NOT NULL,
    next_id INTEGER NOT NULL
)"""

# Pins of backups and of possible copies: what dies after record `number` is kept until `until_ns`, by the site's clock.
_PIN = """
CREATE TABLE pin (
    id TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    until_ns INTEGER NOT NULL
)"""

# One row, whose `one` is 0: the site's clock as the committer last stored it, see
# `gateway.journal.site_clock.ClockAnchor`.
_CLOCK = """
CREATE TABLE clock (
    one INTEGER PRIMARY KEY,
    site_ns INTEGER NOT NULL,
    wall_ns INTEGER NOT NULL,
    boot TEXT NOT NULL,
    boot_ns INTEGER NOT NULL
)"""

_UPLOADS_BY_AGE = (
    "CREATE INDEX upload_open ON upload (site_ns) WHERE state = 0",
    "CREATE INDEX upload_ended ON upload (site_ns) WHERE state > 0",
)

_INDEXES = (
    "CREATE INDEX user_id ON user (id)",
    "CREATE INDEX access_key_user ON access_key (user)",
    "CREATE INDEX backend_id ON backend (id)",
    "CREATE INDEX backend_set_id ON backend_set (id)",
    "CREATE INDEX policy_id ON policy (id)",
    "CREATE INDEX tenant_id ON tenant (id)",
    "CREATE INDEX session_state ON session (state)",
    "CREATE INDEX bucket_owner ON bucket (owner, name)",
    "CREATE INDEX file_rewritten ON file (id) WHERE rewritten = 1",
    "CREATE INDEX block_dead ON block (died) WHERE died > 0",
    "CREATE INDEX block_sparse ON block (live, plain) WHERE died = 0 AND live * 5 < plain * 4",
    "CREATE INDEX block_backends ON block (backends, size)",
    "CREATE INDEX work_due ON work (due_ns)",
    "CREATE INDEX work_state ON work (state) WHERE state > 0",
    "CREATE INDEX upload_parts ON upload (id) WHERE state > 0 AND parts > 0",
)


def _create(table: Table[Any]) -> str:
    hints = get_type_hints(table.row)
    columns = [f'"{name}" {_TYPES[hints[name]]} NOT NULL' for name in table.row._fields]
    key = table.stored_key
    if len(key) == 1 and hints[key[0]] is int:
        columns[0] = f"{key[0]} INTEGER PRIMARY KEY"
        return f"CREATE TABLE {table.name} ({', '.join(columns)})"
    return f"CREATE TABLE {table.name} ({', '.join(columns)}, PRIMARY KEY ({', '.join(key)})) WITHOUT ROWID"


def _first(base: Database) -> None:
    for table in TABLES:
        base.execute(_create(table))
    for statement in (_JOURNAL, _HEAD, _PIN, *_INDEXES):
        base.execute(statement)


_SHOWN_COLUMNS = (
    ("size", "INTEGER NOT NULL DEFAULT 0"),
    ("etag", "TEXT NOT NULL DEFAULT ''"),
    ("owner", "INTEGER NOT NULL DEFAULT 0"),
    ("checksum", "BLOB NOT NULL DEFAULT x''"),
)


def _entries_show_nodes(base: Database) -> None:
    """Entries and versions store what listings show of their nodes. Some files of schema 1 have these columns
    already."""
    if "size" in base["entry"].columns_dict:
        return
    base.conn.create_function("checksum_kind", 1, checksum_kind, deterministic=True)
    for table in ("entry", "version"):
        for column, kind in _SHOWN_COLUMNS:
            base.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
        base.execute(
            f"UPDATE {table} SET size = f.size, etag = f.etag, owner = f.owner, "
            "checksum = checksum_kind(f.checksums) FROM file f "
            f"WHERE f.id = {table}.node AND {table}.version > 0"
        )
    base.execute("ALTER TABLE file ADD COLUMN rewritten INTEGER NOT NULL DEFAULT 0")
    base.execute("CREATE INDEX file_rewritten ON file (id) WHERE rewritten = 1")


def _add_work(base: Database) -> None:
    """Blocks whose copies are not as they should be have rows, and a backend may be lost."""
    if "work" in base.table_names():
        return
    for table in (WORK, PLAN):
        base.execute(_create(table))
    base.execute("ALTER TABLE backend ADD COLUMN lost INTEGER NOT NULL DEFAULT 0")
    for statement in _INDEXES:
        if any(name in statement for name in ("block_backends", "work_due", "work_state")):
            base.execute(statement)


def _add_deleted_buckets(base: Database) -> None:
    """Buckets that were deleted while uploads into them were open have rows."""
    if "gone" not in base.table_names():
        base.execute(_create(DELETED_BUCKET))


def _work_has_placed_ns(base: Database) -> None:
    """The rows of `work` store since when all copies that should exist have been confirmed."""
    if "placed_ns" not in base["work"].columns_dict:
        base.execute("ALTER TABLE work ADD COLUMN placed_ns INTEGER NOT NULL DEFAULT 0")


def _add_token(base: Database) -> None:
    """The token of the last committer has a row, and a session's row says whether its process was seen alive."""
    if "token" not in base.table_names():
        base.execute(_create(TOKEN))
        base.execute("ALTER TABLE session ADD COLUMN seen INTEGER NOT NULL DEFAULT 1")


def _add_site_clock(base: Database) -> None:
    """The site has its own clock, by which uploads expire."""
    if "site_ns" not in base["upload"].columns_dict:
        base.execute("ALTER TABLE upload ADD COLUMN site_ns INTEGER NOT NULL DEFAULT 0")
        base.execute("UPDATE upload SET site_ns = CASE WHEN state = 0 THEN made_ns ELSE ended_ns END")
    for index in ("upload_open", "upload_ended"):
        base.execute(f"DROP INDEX IF EXISTS {index}")
    for statement in _UPLOADS_BY_AGE:
        base.execute(statement)
    if "clock" not in base.table_names():
        base.execute(_CLOCK)


def _directories_have_heights(base: Database) -> None:
    """Directories store how many levels of directories are below them."""
    if "height" not in base["dir"].columns_dict:
        base.execute("ALTER TABLE dir ADD COLUMN height INTEGER NOT NULL DEFAULT 0")


def _add_rewrites(base: Database) -> None:
    """New packs to which extents are still to be moved have rows."""
    if "rewrite" not in base.table_names():
        base.execute(_create(REWRITE))


def _uploads_have_joined(base: Database) -> None:
    """Uploads store which part was stored last, and of which parts the contents were taken over."""
    if "joined" in base["upload"].columns_dict:
        return
    base.execute("ALTER TABLE upload ADD COLUMN last_part INTEGER NOT NULL DEFAULT 0")
    base.execute("ALTER TABLE upload ADD COLUMN joined BLOB NOT NULL DEFAULT x''")
    base.execute(
        "UPDATE upload SET last_part = coalesce((SELECT max(p.id) FROM part p WHERE p.upload = upload.id), 0) "
        "WHERE state = 0"
    )


def _uploads_have_staged(base: Database) -> None:
    """Uploads store the bodies that a completion has staged."""
    if "staged" not in base["upload"].columns_dict:
        base.execute("ALTER TABLE upload ADD COLUMN staged BLOB NOT NULL DEFAULT x''")


def _add_inline_values(base: Database) -> None:
    """Small values that came with a command have rows until they are in files of their backend."""
    if "inline_value" not in base.table_names():
        base.execute(_create(INLINE_VALUE))


def _add_bucket_documents(base: Database) -> None:
    """Buckets have documents, such as their CORS rules."""
    if "bucket_documents" not in base.table_names():
        base.execute(_create(BUCKET_DOCUMENTS))


def _users_have_states(base: Database) -> None:
    """Users can be disabled, and access keys expire."""
    if "disabled" not in base["user"].columns_dict:
        base.execute("ALTER TABLE user ADD COLUMN disabled INTEGER NOT NULL DEFAULT 0")
        base.execute("ALTER TABLE access_key ADD COLUMN expires_ns INTEGER NOT NULL DEFAULT 0")


STEPS: tuple[Callable[[Database], None], ...] = (
    _first,
    _entries_show_nodes,
    _add_work,
    _add_deleted_buckets,
    _work_has_placed_ns,
    _add_token,
    _add_site_clock,
    _directories_have_heights,
    _add_rewrites,
    _uploads_have_joined,
    _uploads_have_staged,
    _add_inline_values,
    _add_bucket_documents,
    _users_have_states,
)
"""STEPS[n] turns schema n into schema n + 1."""


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the file to the newest schema. Raises `Misconfigured` for a file of a newer version."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(STEPS):
        raise Misconfigured(
            f"{path} has schema {version}, and this version of entrepot knows those up to {len(STEPS)}: "
            "use the version that wrote it, or a newer one"
        )
    if version == len(STEPS):
        return  # sqlite-utils is not imported: it imports pandas if that is installed, which takes seconds
    from sqlite_utils import Database

    base = Database(connection)
    for number in range(version, len(STEPS)):
        connection.execute("BEGIN IMMEDIATE")
        STEPS[number](base)
        connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute("COMMIT")
