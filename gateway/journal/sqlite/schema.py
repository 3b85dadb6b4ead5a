"""The schema, numbered, and how an older file becomes a newer one. `PRAGMA user_version` holds the number.

Tables and their columns are those of `gateway.journal.tables`, which explains each; a table whose key is one integer
is a rowid table, the others are WITHOUT ROWID, so that a range read walks one B-tree. A schema number keeps its
meaning: a change is a new step in `STEPS`, and big tables are never copied in one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_type_hints

from gateway.errors import Misconfigured
from gateway.journal.columns import checksum_kind
from gateway.journal.tables import DELETED_BUCKET, PLAN, REWRITE, TABLES, TOKEN, WORK, Table

if TYPE_CHECKING:
    from sqlite_utils import Database

_TYPES = {int: "INTEGER", str: "TEXT", bytes: "BLOB"}

_JOURNAL = """
CREATE TABLE journal (
    number INTEGER PRIMARY KEY,
    records_count INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    next_id INTEGER NOT NULL,
    hash BLOB NOT NULL,
    records BLOB NOT NULL
)"""

_HEAD = """
CREATE TABLE head (
    one INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    hash BLOB NOT NULL,
    at_ns INTEGER NOT NULL,
    next_id INTEGER NOT NULL
)"""

_PIN = """
CREATE TABLE pin (
    id TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    until_ns INTEGER NOT NULL
)"""

# Where the site's clock stood when the committer last kept it: see `gateway.journal.site_clock.Anchor`.
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


_REMEMBERED = (
    ("size", "INTEGER NOT NULL DEFAULT 0"),
    ("etag", "TEXT NOT NULL DEFAULT ''"),
    ("owner", "INTEGER NOT NULL DEFAULT 0"),
    ("checksum", "BLOB NOT NULL DEFAULT x''"),
)


def _names_remember(base: Database) -> None:
    """Names remember what listings show of their nodes. Files of schema 1 were made with that, and before it."""
    if "size" in base["entry"].columns_dict:
        return
    base.conn.create_function("checksum_kind", 1, checksum_kind, deterministic=True)
    for table in ("entry", "version"):
        for column, kind in _REMEMBERED:
            base.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
        base.execute(
            f"UPDATE {table} SET size = f.size, etag = f.etag, owner = f.owner, "
            "checksum = checksum_kind(f.checksums) FROM file f "
            f"WHERE f.id = {table}.node AND {table}.version > 0"
        )
    base.execute("ALTER TABLE file ADD COLUMN rewritten INTEGER NOT NULL DEFAULT 0")
    base.execute("CREATE INDEX file_rewritten ON file (id) WHERE rewritten = 1")


def _work_on_copies(base: Database) -> None:
    """Blocks whose copies are not what they should be have rows, and a backend may be lost."""
    if "work" in base.table_names():
        return
    for table in (WORK, PLAN):
        base.execute(_create(table))
    base.execute("ALTER TABLE backend ADD COLUMN lost INTEGER NOT NULL DEFAULT 0")
    for statement in _INDEXES:
        if any(name in statement for name in ("block_backends", "work_due", "work_state")):
            base.execute(statement)


def _uploads_left(base: Database) -> None:
    """Buckets that went before the uploads into them have rows."""
    if "gone" not in base.table_names():
        base.execute(_create(DELETED_BUCKET))


def _old_copies_wait(base: Database) -> None:
    """Work remembers since when all copies that should be there have been confirmed."""
    if "placed_ns" not in base["work"].columns_dict:
        base.execute("ALTER TABLE work ADD COLUMN placed_ns INTEGER NOT NULL DEFAULT 0")


def _fencing_tokens(base: Database) -> None:
    """The token of the last committer has a row, and a session's says whether its process was seen alive."""
    if "token" not in base.table_names():
        base.execute(_create(TOKEN))
        base.execute("ALTER TABLE session ADD COLUMN seen INTEGER NOT NULL DEFAULT 1")


def _site_clock(base: Database) -> None:
    """The site has a clock of its own, by which uploads expire."""
    if "site_ns" not in base["upload"].columns_dict:
        base.execute("ALTER TABLE upload ADD COLUMN site_ns INTEGER NOT NULL DEFAULT 0")
        base.execute("UPDATE upload SET site_ns = CASE WHEN state = 0 THEN made_ns ELSE ended_ns END")
    for index in ("upload_open", "upload_ended"):
        base.execute(f"DROP INDEX IF EXISTS {index}")
    for statement in _UPLOADS_BY_AGE:
        base.execute(statement)
    if "clock" not in base.table_names():
        base.execute(_CLOCK)


def _heights(base: Database) -> None:
    """Directories remember how many levels of directories are below them."""
    if "height" not in base["dir"].columns_dict:
        base.execute("ALTER TABLE dir ADD COLUMN height INTEGER NOT NULL DEFAULT 0")


def _rewrites(base: Database) -> None:
    """New packs whose extents have not moved there yet have rows."""
    if "rewrite" not in base.table_names():
        base.execute(_create(REWRITE))


def _parts_dropped_later(base: Database) -> None:
    """Uploads remember which part came last, and of which parts the contents were taken over."""
    if "joined" in base["upload"].columns_dict:
        return
    base.execute("ALTER TABLE upload ADD COLUMN last_part INTEGER NOT NULL DEFAULT 0")
    base.execute("ALTER TABLE upload ADD COLUMN joined BLOB NOT NULL DEFAULT x''")
    base.execute(
        "UPDATE upload SET last_part = coalesce((SELECT max(p.id) FROM part p WHERE p.upload = upload.id), 0) "
        "WHERE state = 0"
    )


def _pieces_staged(base: Database) -> None:
    """Uploads remember the bodies that a completion has staged."""
    if "staged" not in base["upload"].columns_dict:
        base.execute("ALTER TABLE upload ADD COLUMN staged BLOB NOT NULL DEFAULT x''")


STEPS: tuple[Callable[[Database], None], ...] = (
    _first,
    _names_remember,
    _work_on_copies,
    _uploads_left,
    _old_copies_wait,
    _fencing_tokens,
    _site_clock,
    _heights,
    _rewrites,
    _parts_dropped_later,
    _pieces_staged,
)
"""The n-th step makes schema n + 1 out of schema n."""


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the file to the newest schema. Raises `Misconfigured` for a file that is newer than this code."""
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > len(STEPS):
        raise Misconfigured(
            f"{path} has schema {found}, and this version of entrepot knows those up to {len(STEPS)}: "
            "use the version that wrote it, or a newer one"
        )
    if found == len(STEPS):
        return  # without sqlite-utils, which imports pandas where there is one: seconds, for who succeeds a committer
    from sqlite_utils import Database

    base = Database(connection)
    for number in range(found, len(STEPS)):
        connection.execute("BEGIN IMMEDIATE")
        STEPS[number](base)
        connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute("COMMIT")
