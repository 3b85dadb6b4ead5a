"""The idempotency store: responses to recent changes, by idempotency key, so that a repeated request is not run again.

**Theory of operation.** All workers of a site share one SQLite file. A row is in one of three states:

    claimed   `answer` is NULL: a worker, identified by its session, runs the request
    kept      `answer` holds the packed results; a repeated request gets them
    unknown   `answer` is empty: the request was run, or its worker died while running it; the outcome is not known

`claim` inserts a claimed row. `keep` makes it kept. `drop` deletes it, if nothing was changed. If a response does not
fit, or the file does not accept it, the row becomes unknown: the change was made, so a repeated request gets an error
which says that its outcome is unknown (`CommitterGone`, the error for all such cases), and is not run. Kept and unknown
rows are deleted after `kept_seconds`. A claimed row stays while its session lives. Once the session has ended, so that
all its later commits are refused, the row becomes unknown, and stays for `kept_seconds` from when a worker noticed
that.

Each row is charged to its user: when it is claimed, for the expected size of the response, and later for the actual
size. `shares` defines how much one user may hold. A user whose share is full is refused with `Busy`; the others are not
affected. `STORE_BYTES` bounds the total, for any number of users.

The file is scratch: one for each boot of the machine, never synced. A request whose row a power cut loses was sent
before that boot. To detect that the store was lost, it has a random name, which clients send back with their requests:
if a repeated request names another store, and this one has no row for it, its outcome is unknown. Times are
CLOCK_MONOTONIC's, which all processes share and nobody can set. Each call takes about fifty microseconds on the event
loop, and two milliseconds if it has to delete rows first.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.engine.shares import fits
from gateway.errors import Busy, CommitterGone, Misconfigured
from gateway.timing import Timing
from gateway.timing.durations import FilesTiming

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
STEM = "answered-"
FORMAT = 2
"""The format of the tables. It is part of the file's name, so that another version of Entrepot uses its own file."""
DELETED_AT_ONCE, DELETED_AT_ONCE_WHEN_FULL = 16, 128
"""How many expired rows one call deletes at most. That is more than the one row that a call may add, so expired rows do
not accumulate; if the store is full, a call deletes more."""
STORE_BYTES = 512 << 20
"""The maximum charge of all rows together. A user's share of it holds the responses to some 4,000 writes a second, or
9,000 renames, for five minutes (`FilesTiming.kept_seconds`)."""
PAGES_MOST = 160 << 10
"""The most pages of 4 KiB. Bounds the file itself, above what rows charged with `STORE_BYTES` need."""
PAGE_BYTES = 4 << 10
ROW_BYTES = 96
"""Charged for a row, its key and its index entries, as measured."""
INLINE_BYTES = 900
"""A response up to this size is stored in its row and takes a third more than its length, as measured. A longer one
takes whole pages of its own in addition."""
RESPONSE_BYTES = 4 << 10
"""Charged for each call of a request that is running."""

_UNKNOWN = b""
_TOTAL = -1
"""The user id of the row in `usage` with the sum over all users. Ids of users are not negative."""
# The names on disk are older than those of this module: `memory` has the store's name, `answered` the rows, `once` the
# idempotency key, `answer` the response.
_TABLES = f"""
CREATE TABLE IF NOT EXISTS memory (name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answered (
    once BLOB PRIMARY KEY, user INTEGER NOT NULL, session INTEGER NOT NULL, expires REAL NOT NULL,
    charged INTEGER NOT NULL, answer BLOB
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answered_expires ON answered (expires);
CREATE TABLE IF NOT EXISTS usage (user INTEGER PRIMARY KEY, charged INTEGER NOT NULL);
CREATE TRIGGER IF NOT EXISTS claimed AFTER INSERT ON answered BEGIN
    INSERT INTO usage VALUES (NEW.user, NEW.charged), ({_TOTAL}, NEW.charged)
        ON CONFLICT (user) DO UPDATE SET charged = charged + excluded.charged;
END;
CREATE TRIGGER IF NOT EXISTS recharged AFTER UPDATE OF charged ON answered BEGIN
    UPDATE usage SET charged = charged + NEW.charged - OLD.charged WHERE user IN (NEW.user, {_TOTAL});
END;
CREATE TRIGGER IF NOT EXISTS forgotten AFTER DELETE ON answered BEGIN
    UPDATE usage SET charged = charged - OLD.charged WHERE user IN (OLD.user, {_TOTAL});
END;
"""
_MINE = "coalesce((SELECT charged FROM usage WHERE user = {user}), 0)"
_USAGE = f"SELECT {_MINE.format(user='?')}, {_MINE.format(user=_TOTAL)}"
_CLAIM = f"""
INSERT INTO answered SELECT ?1, ?2, ?3, ?4, ?5, NULL
WHERE NOT EXISTS (SELECT * FROM answered WHERE once = ?1)
  AND {_MINE.format(user="?2")} + ?5 <= ?6 - {_MINE.format(user=_TOTAL)}
"""
"""The condition is that of `shares.fits`. It is checked in the inserting statement, since other workers insert too."""


class IdempotencyStore:
    """The idempotency store in *folder*. *is_live*: whether a session has not ended. Closed by its owner."""

    def __init__(self, folder: Path, is_live: Callable[[int], bool], timing: Timing) -> None:
        """Open the file or create it. Raises `Misconfigured` if it cannot be used."""
        self._bytes_most = STORE_BYTES
        self._is_live = is_live
        self._clock = timing.clock.monotonic
        self._kept_seconds = timing.files.kept_seconds
        self._unwritten: dict[bytes, bool] = {}
        """Rows that could not be written when their requests ended: True to delete the row, False to make it unknown.
        No request is claimed before all of them are written, so there are at most as many as requests were running."""
        boot = _boot_id()
        path = folder / f"{STEM}{FORMAT}-{boot}.sqlite"
        try:
            try:
                self._file, self.name = _open(path, boot, timing.files)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:  # a corrupt file is replaced by an empty one
                _remove(path)
                self._file, self.name = _open(path, boot, timing.files)
            self._file.execute(f"PRAGMA busy_timeout = {round(timing.files.answers_wait_seconds * 1000)}")
        except (sqlite3.Error, OSError) as error:
            raise Misconfigured(f"the idempotency store in {folder} cannot be used: {error}") from error
        for old in folder.glob(f"{STEM}*"):
            if not old.name.startswith(path.name):
                old.unlink(missing_ok=True)

    def claim(
        self, key: bytes, session: int, attempt: int, known_store: str, *, user: int = 0, calls: int = 1
    ) -> bytes | None:
        """Return the kept response for *key*, or None if *session* must run the request now, on behalf of *user*.

        *attempt* counts from 1. *known_store*: the name of the store that the client knows. *calls*: the number of
        calls in the request. Raises `Busy` while another worker runs the request or if the user's share is full, and
        `CommitterGone` if the outcome of an earlier attempt is unknown."""
        try:
            return self._claim(key, session, attempt, known_store, user, ROW_BYTES + calls * RESPONSE_BYTES)
        except sqlite3.Error as error:
            raise Busy(f"the idempotency store: {error}") from error

    def _claim(self, key: bytes, session: int, attempt: int, known_store: str, user: int, charge: int) -> bytes | None:
        now = self._clock()
        self._write_unwritten()
        self._expire(now)
        if attempt > 1 and known_store != self.name and self._row(key) is None:
            raise CommitterGone(
                "the outcome of an earlier attempt is unknown: the gateway has lost its idempotency store"
            )
        claim = (key, user, session, now + self._kept_seconds, charge, self._bytes_most)
        if self._file.execute(_CLAIM, claim).rowcount:
            return None
        row = self._row(key)
        if row is not None:
            return self._response_of(*row)
        if self._expire(now, DELETED_AT_ONCE_WHEN_FULL) and self._file.execute(_CLAIM, claim).rowcount:
            return None
        used, _ = self._file.execute(_USAGE, (user,)).fetchone()
        raise Busy(f"the kept responses to this user's changes ({self._kept_seconds:g} s): {used} bytes")

    def _row(self, key: bytes) -> Any:
        return self._file.execute("SELECT session, answer FROM answered WHERE once = ?", (key,)).fetchone()

    def _response_of(self, session: int, response: bytes | None) -> bytes:
        """Return the response in an existing row. Raises `CommitterGone`, `Busy`."""
        if response:
            return response
        if response == _UNKNOWN:
            raise CommitterGone("the outcome of an earlier attempt is unknown: its response could not be kept")
        if self._is_live(session):
            raise Busy("the same request is running")
        raise CommitterGone("the outcome of an earlier attempt is unknown: its worker has ended")

    def keep(self, key: bytes, response: bytes) -> None:
        """Store the response for *key*. If it cannot be stored, the row becomes unknown."""
        try:
            self._keep(key, response)
        except sqlite3.Error:
            self._write_later(key, remove=False)

    def _keep(self, key: bytes, response: bytes) -> None:
        charge = _charge(response)
        if self._update_row(key, response, charge, "AND charged >= ?2"):
            return  # it fits into the charge of the claim
        with _Transaction(self._file):
            row = self._file.execute("SELECT user, charged FROM answered WHERE once = ?", (key,)).fetchone()
            if row is None:
                return
            user, before = row
            used, total = self._file.execute(_USAGE, (user,)).fetchone()
            if not fits(charge, used - before, total - before, self._bytes_most):
                response, charge = _UNKNOWN, ROW_BYTES
            self._update_row(key, response, charge)

    def _update_row(self, key: bytes, response: bytes, charge: int, condition: str = "") -> bool:
        """Update the row of *key*. Returns whether it exists and meets the SQL *condition*."""
        cursor = self._file.execute(
            f"UPDATE answered SET answer = ?1, charged = ?2, expires = ?3 WHERE once = ?4 {condition}",
            (response, charge, self._clock() + self._kept_seconds, key),
        )
        return cursor.rowcount > 0

    def drop(self, key: bytes) -> None:
        """Delete the claim of *key*: nothing was changed, and the request may be run again."""
        try:
            self._file.execute("DELETE FROM answered WHERE once = ?", (key,))
        except sqlite3.Error:
            self._write_later(key, remove=True)

    def _write_later(self, key: bytes, *, remove: bool) -> None:
        """Remember a row that the file does not accept now. The next `claim` writes it."""
        self._unwritten[key] = remove
        with suppress(sqlite3.Error):
            self._write_unwritten()

    def _write_unwritten(self) -> None:
        """Write the rows that could not be written before. Raises `sqlite3.Error`; the remaining ones are kept for
        later."""
        for key, remove in list(self._unwritten.items()):
            if remove:
                self._file.execute("DELETE FROM answered WHERE once = ?", (key,))
            else:
                self._update_row(key, _UNKNOWN, ROW_BYTES)
            del self._unwritten[key]

    def _expire(self, now: float, rows_most: int = DELETED_AT_ONCE) -> bool:
        """Delete some expired rows, and make claims of ended sessions unknown. Returns whether there were any."""
        if self._file.execute("SELECT 1 FROM answered WHERE expires <= ? LIMIT 1", (now,)).fetchone() is None:
            return False
        with _Transaction(self._file):
            rows = self._file.execute(
                "SELECT once, session, answer IS NULL FROM answered WHERE expires <= ? ORDER BY expires LIMIT ?",
                (now, rows_most),
            ).fetchall()
            for key, session, claimed in rows:
                if not claimed:
                    self._file.execute("DELETE FROM answered WHERE once = ?", (key,))
                elif self._is_live(session):
                    expires = now + self._kept_seconds
                    self._file.execute("UPDATE answered SET expires = ? WHERE once = ?", (expires, key))
                else:
                    self._update_row(key, _UNKNOWN, ROW_BYTES)
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Transaction:
    """A context in which several statements are atomic for other workers."""

    def __init__(self, file: sqlite3.Connection) -> None:
        self._file = file

    def __enter__(self) -> None:
        self._file.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self._file.execute("COMMIT")
            except sqlite3.Error:
                self._roll_back()
                raise
        else:
            self._roll_back()

    def _roll_back(self) -> None:
        if self._file.in_transaction:  # SQLite rolls back by itself on a full disk
            self._file.execute("ROLLBACK")


def _charge(response: bytes) -> int:
    """Return the bytes charged for a row with this response."""
    if len(response) <= INLINE_BYTES:
        return ROW_BYTES + len(response) * 4 // 3
    return ROW_BYTES + INLINE_BYTES + -(-len(response) // PAGE_BYTES) * PAGE_BYTES


def _open(path: Path, boot: str, timing: FilesTiming) -> tuple[sqlite3.Connection, str]:
    """Open the file, or create it. Returns it with the name of its store."""
    if not path.exists():
        _create(path)
    file = sqlite3.connect(path, timeout=timing.answers_open_seconds, isolation_level=None)
    try:
        file.execute("PRAGMA synchronous = OFF")
        file.execute(f"PRAGMA max_page_count = {PAGES_MOST}")
        file.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT")
        name = f"{boot}-{secrets.token_hex(8)}"
        file.execute("INSERT INTO memory (name) SELECT ? WHERE NOT EXISTS (SELECT * FROM memory)", (name,))
        (name,) = file.execute("SELECT name FROM memory").fetchone()
    except sqlite3.Error:
        file.close()
        raise
    return file, str(name)


def _create(path: Path) -> None:
    """Create an empty file in WAL mode, unless another process does so first.

    It gets its name only once it is in that mode: if other processes have the file open, changing its mode fails at
    once instead of waiting."""
    new = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
    file = sqlite3.connect(new, isolation_level=None)
    try:
        file.execute("PRAGMA journal_mode = WAL")
    finally:
        file.close()
    try:
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        _remove(new)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _boot_id() -> str:
    """Return a text that is different after each boot of the machine."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError as error:
        raise Misconfigured(f"{BOOT_ID} cannot be read: {error}") from error
