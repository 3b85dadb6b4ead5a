"""The answers to recent changes, by idempotency key (`idempotency_key`), so that a repeated request is not run again.

All workers of a site share one SQLite file. A row is in one of three states:

    claimed   `answer` is NULL: a worker, named by its session, runs the request
    kept      `answer` holds the packed results; a repeated request gets them
    unknown   `answer` is empty: the request was run, or its worker died over it, and nobody knows how far it came

`claim` inserts a claimed row, `keep` makes it kept, `drop` removes it where nothing was changed. An answer for which
there is no room, or which the file does not take, makes the row unknown: the change was made, so a repeated request is
told that its outcome is not known (`CommitterGone`), and is not run. Kept and unknown rows go after `kept_seconds`. A
claim stays as long as its session lives. Once that is over, which refuses all its later commits, the claim becomes
unknown, and stays `kept_seconds` from when that was noticed.

Each row is charged to the user who asked, when it is claimed for the answer that is expected and later for the one
that came. `shares` says how much one user may have: a user whose share is full is refused with `Busy`, and the others
go on. The total is bounded by `ROOM_BYTES`, for any number of users.

The file is scratch, one for each boot of the machine, and never synced: what a power cut loses was asked before that
boot. It has a random name, which a client repeats; a file with another name that has no row for a repeated request
says that the outcome is not known. Times are CLOCK_MONOTONIC's, which all processes share and nobody sets. Each call
takes some fifty microseconds on the event loop, and two milliseconds where it has to make room.
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
"""Of the tables; stands in the file's name, so that another version of this program starts a file of its own."""
FORGET_ROWS, FORGET_ROWS_WHEN_FULL = 16, 128
"""Old rows that one call removes at most: more than the one that it may add, so that none is left behind in the end,
and more where there is no room."""
ROOM_BYTES = 512 << 20
"""What all rows may be charged together. A user's share of it holds the answers to some 4,000 writes a second, or 9,000
renames, for five minutes (`FilesTiming.kept_seconds`)."""
PAGES_MOST = 160 << 10
"""Of 4 KiB: a bound on the file itself, above what `ROOM_BYTES` of rows take."""
PAGE_BYTES = 4 << 10
ROW_BYTES = 96
"""Charged for a row, its key and its place in the indexes, as measured."""
INLINE_BYTES = 900
"""An answer up to here lies in its row, where it takes a third more than its length, as measured; a longer one takes
whole pages of its own besides."""
ANSWER_BYTES = 4 << 10
"""Charged for each verb of a request that is under way."""

_UNKNOWN = b""
_TOTAL = -1
"""The row of `usage` that sums up all users, whose ids are not negative."""
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
"""The condition is that of `shares.fits`, checked in the statement that inserts, since other workers insert too."""


class IdempotencyStore:
    """The answers of the site in *folder*. *lives*: whether a session has not ended. Closed by its owner."""

    def __init__(self, folder: Path, lives: Callable[[int], bool], timing: Timing) -> None:
        """Raises `Misconfigured` if the file cannot be used."""
        self._room_bytes = ROOM_BYTES
        self._lives = lives
        self._clock = timing.clock.monotonic
        self._kept_seconds = timing.files.kept_seconds
        self._unwritten: dict[bytes, bool] = {}
        """Rows that could not be written when their requests ended: True to remove one, False to make it unknown. No
        request is claimed before all of them are written, so there are at most as many as were under way."""
        boot = _boot()
        path = folder / f"{STEM}{FORMAT}-{boot}.sqlite"
        try:
            try:
                self._file = _opened(path, timing.files)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:  # it was torn: as good as none
                _remove(path)
                self._file = _opened(path, timing.files)
            self.name = self._named(boot)
            self._file.execute(f"PRAGMA busy_timeout = {round(timing.files.answers_wait_seconds * 1000)}")
        except (sqlite3.Error, OSError) as error:
            raise Misconfigured(f"the memory of answers in {folder} cannot be used: {error}") from error
        for old in folder.glob(f"{STEM}*"):
            if not old.name.startswith(path.name):
                old.unlink(missing_ok=True)

    def _named(self, boot: str) -> str:
        name = f"{boot}-{secrets.token_hex(8)}"
        self._file.execute("INSERT INTO memory (name) SELECT ? WHERE NOT EXISTS (SELECT * FROM memory)", (name,))
        return str(self._file.execute("SELECT name FROM memory").fetchone()[0])

    def claim(
        self, once: bytes, session: int, attempt: int, knows: str, *, user: int = 0, calls: int = 1
    ) -> bytes | None:
        """The answer that *once* had already; None where *session* is to run it now, for *user*. *attempt* counts from
        1; *knows* is the name of the memory that the client knows. *calls*: how many the request has.

        Raises `Busy` while somebody runs it or the user's share is full, `CommitterGone` where nobody knows what became
        of an earlier attempt."""
        try:
            return self._claim(once, session, attempt, knows, user, ROW_BYTES + calls * ANSWER_BYTES)
        except sqlite3.Error as error:
            raise Busy(f"the memory of answers: {error}") from error

    def _claim(self, once: bytes, session: int, attempt: int, knows: str, user: int, charge: int) -> bytes | None:
        now = self._clock()
        self._write_what_was_not()
        self._forget(now)
        if attempt > 1 and knows != self.name and self._row(once) is None:
            raise CommitterGone("what became of an earlier try is not known: the gateway has lost its memory of it")
        claim = (once, user, session, now + self._kept_seconds, charge, self._room_bytes)
        if self._file.execute(_CLAIM, claim).rowcount:
            return None
        row = self._row(once)
        if row is not None:
            return self._told(*row)
        if self._forget(now, FORGET_ROWS_WHEN_FULL) and self._file.execute(_CLAIM, claim).rowcount:
            return None
        mine, _ = self._file.execute(_USAGE, (user,)).fetchone()
        raise Busy(f"the answers to this user's changes, kept for {self._kept_seconds:g} s: {mine} bytes")

    def _row(self, once: bytes) -> Any:
        return self._file.execute("SELECT session, answer FROM answered WHERE once = ?", (once,)).fetchone()

    def _told(self, session: int, answer: bytes | None) -> bytes:
        if answer:
            return answer
        if answer == _UNKNOWN:
            raise CommitterGone("what became of an earlier try is not known: its answer could not be kept")
        if self._lives(session):
            raise Busy("the same change, which is under way")
        raise CommitterGone("what became of an earlier try is not known: the worker that made it is gone")

    def keep(self, once: bytes, answer: bytes) -> None:
        """*answer* is what *once* gets from now on. Where it cannot be kept, the outcome of *once* is unknown."""
        try:
            self._keep(once, answer)
        except sqlite3.Error:
            self._write_later(once, remove=False)

    def _keep(self, once: bytes, answer: bytes) -> None:
        charge = _charge(answer)
        if self._settle(once, answer, charge, "AND charged >= ?2"):
            return  # it takes no more than what it was charged when it was claimed
        with _Transaction(self._file):
            row = self._file.execute("SELECT user, charged FROM answered WHERE once = ?", (once,)).fetchone()
            if row is None:
                return
            user, before = row
            mine, total = self._file.execute(_USAGE, (user,)).fetchone()
            if not fits(charge, mine - before, total - before, self._room_bytes):
                answer, charge = _UNKNOWN, ROW_BYTES
            self._settle(once, answer, charge)

    def _settle(self, once: bytes, answer: bytes, charge: int, condition: str = "") -> bool:
        """Whether the row was there, and met the *condition*."""
        done = self._file.execute(
            f"UPDATE answered SET answer = ?1, charged = ?2, expires = ?3 WHERE once = ?4 {condition}",
            (answer, charge, self._clock() + self._kept_seconds, once),
        )
        return done.rowcount > 0

    def drop(self, once: bytes) -> None:
        """Nothing was changed, and it may be tried again."""
        try:
            self._file.execute("DELETE FROM answered WHERE once = ?", (once,))
        except sqlite3.Error:
            self._write_later(once, remove=True)

    def _write_later(self, once: bytes, *, remove: bool) -> None:
        """Leave a row that the file does not take now to the next `claim`."""
        self._unwritten[once] = remove
        with suppress(sqlite3.Error):
            self._write_what_was_not()

    def _write_what_was_not(self) -> None:
        """Raises `sqlite3.Error`; what was not written then is still to be."""
        for once, remove in list(self._unwritten.items()):
            if remove:
                self._file.execute("DELETE FROM answered WHERE once = ?", (once,))
            else:
                self._settle(once, _UNKNOWN, ROW_BYTES)
            del self._unwritten[once]

    def _forget(self, now: float, rows_most: int = FORGET_ROWS) -> bool:
        """Remove some old answers, and see to old claims. Whether there were any."""
        if self._file.execute("SELECT 1 FROM answered WHERE expires <= ? LIMIT 1", (now,)).fetchone() is None:
            return False
        with _Transaction(self._file):
            rows = self._file.execute(
                "SELECT once, session, answer IS NULL FROM answered WHERE expires <= ? ORDER BY expires LIMIT ?",
                (now, rows_most),
            ).fetchall()
            for once, session, claimed in rows:
                if not claimed:
                    self._file.execute("DELETE FROM answered WHERE once = ?", (once,))
                elif self._lives(session):
                    expires = now + self._kept_seconds
                    self._file.execute("UPDATE answered SET expires = ? WHERE once = ?", (expires, once))
                else:
                    self._settle(once, _UNKNOWN, ROW_BYTES)
        return True

    def close(self) -> None:
        self._file.close()


class _Transaction:
    """Several statements that other workers see all or none of."""

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
        if self._file.in_transaction:  # a full disk has SQLite roll back by itself
            self._file.execute("ROLLBACK")


def _charge(answer: bytes) -> int:
    if len(answer) <= INLINE_BYTES:
        return ROW_BYTES + len(answer) * 4 // 3
    return ROW_BYTES + INLINE_BYTES + -(-len(answer) // PAGE_BYTES) * PAGE_BYTES


def _opened(path: Path, timing: FilesTiming) -> sqlite3.Connection:
    if not path.exists():
        _make(path)
    file = sqlite3.connect(path, timeout=timing.answers_open_seconds, isolation_level=None)
    try:
        file.execute("PRAGMA synchronous = OFF")
        file.execute(f"PRAGMA max_page_count = {PAGES_MOST}")
        file.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT")
    except sqlite3.Error:
        file.close()
        raise
    return file


def _make(path: Path) -> None:
    """Make an empty file in WAL mode, unless another process does so first. It gets its name once it has that mode:
    SQLite does not wait where a file that others have open changes its mode, but fails at once."""
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
    for behind in ("", "-wal", "-shm"):
        Path(f"{path}{behind}").unlink(missing_ok=True)


def _boot() -> str:
    """Another text after each start of the machine."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError as error:
        raise Misconfigured(f"{BOOT_ID} cannot be read: {error}") from error
