"""What was answered lately, so that a change which is asked for again is not made again. A site's workers share it.

A change is *claimed* by the session of the worker that makes it, then *kept* with its answer. Whoever is asked for it
again, in any worker, finds the answer; or the claim of a session that still lives: it is under way; or that of one that
is over: nobody knows how far it came, and that is what is said, for commits of that session are refused from then on.

The memory is scratch, one file for each boot of the machine, never synced: what a power cut takes with it was asked
before that boot. It has a name; who asks again says which memory it was that it had asked, and a memory of another name
that finds nothing says that it does not know. Each look and write takes some ten microseconds, on the loop.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gateway.errors import Busy, CommitterGone, Misconfigured
from gateway.posix.wire import KEPT_SECONDS

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
STEM = "answered-"
FORGET_SECONDS = 10.0
"""How often what is old is forgotten."""
CLAIMED_SECONDS = 24 * 3600.0
"""How long a claim without an answer stays: that of a body which takes hours to come, or of a worker that died."""
OPEN_SECONDS = 5.0
"""How long the other workers are waited for that make the same file."""
WAIT_SECONDS = 0.1
"""How long another worker's write is waited for; each takes microseconds."""
PAGES_MOST = 64 << 10
"""Of 4 KiB: a memory that is full takes no more changes for a while."""

_TABLES = """
CREATE TABLE IF NOT EXISTS memory (name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answered (
    once BLOB PRIMARY KEY, at REAL NOT NULL, session INTEGER NOT NULL, answer BLOB
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answered_at ON answered (at);
"""


class AnsweredMemory:
    """The memory of the site in *folder*. *lives*: whether a session has not ended. Closed by its owner."""

    def __init__(self, folder: Path, lives: Callable[[int], bool], clock: Callable[[], float] = time.time) -> None:
        """Raises `Misconfigured` if the file cannot be used."""
        self._lives = lives
        self._clock = clock
        self._forgot = 0.0
        boot = _boot()
        path = folder / f"{STEM}{boot}.sqlite"
        try:
            try:
                self._file = _opened(path)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:  # it was torn: as good as none
                _remove(path)
                self._file = _opened(path)
            self.name = self._named(boot)
        except (sqlite3.Error, OSError) as error:
            raise Misconfigured(f"the memory of answers in {folder} cannot be used: {error}") from error
        for old in folder.glob(f"{STEM}*.sqlite"):
            if old != path:
                _remove(old)

    def _named(self, boot: str) -> str:
        name = f"{boot}-{secrets.token_hex(8)}"
        self._file.execute("INSERT INTO memory (name) SELECT ? WHERE NOT EXISTS (SELECT * FROM memory)", (name,))
        return str(self._file.execute("SELECT name FROM memory").fetchone()[0])

    def claim(self, once: bytes, session: int, attempt: int, knows: str) -> bytes | None:
        """The answer that *once* had already; None where it is *session*'s to make now.

        Raises `Busy` while somebody is at it, `CommitterGone` where nobody knows what became of an earlier try."""
        try:
            return self._claim(once, session, attempt, knows)
        except sqlite3.Error as error:
            raise Busy(f"the memory of answers: {error}") from error

    def _claim(self, once: bytes, session: int, attempt: int, knows: str) -> bytes | None:
        now = self._clock()
        self._forget(now)
        if attempt > 1:
            row = self._file.execute("SELECT session, answer FROM answered WHERE once = ?", (once,)).fetchone()
            if row is None and knows != self.name:
                raise CommitterGone("what became of an earlier try is not known: the gateway has lost its memory of it")
            if row is not None:
                return self._told(*row)
        done = self._file.execute("INSERT OR IGNORE INTO answered VALUES (?, ?, ?, NULL)", (once, now, session))
        if done.rowcount:
            return None
        return self._told(
            *self._file.execute("SELECT session, answer FROM answered WHERE once = ?", (once,)).fetchone()
        )

    def _told(self, session: int, answer: bytes | None) -> bytes:
        if answer is not None:
            return answer
        if self._lives(session):
            raise Busy("the same change, which is under way")
        raise CommitterGone("what became of an earlier try is not known: the worker that made it is gone")

    def keep(self, once: bytes, answer: bytes) -> None:
        """*answer* is what *once* gets from now on. One that cannot be kept is not: asked again, nobody knows."""
        with suppress(sqlite3.Error):
            self._file.execute("UPDATE answered SET answer = ?, at = ? WHERE once = ?", (answer, self._clock(), once))

    def drop(self, once: bytes) -> None:
        """Nothing was changed, and it may be tried again."""
        with suppress(sqlite3.Error):
            self._file.execute("DELETE FROM answered WHERE once = ?", (once,))

    def _forget(self, now: float) -> None:
        if now - self._forgot >= FORGET_SECONDS:
            self._forgot = now
            self._file.execute(
                "DELETE FROM answered WHERE at < ? AND (answer IS NOT NULL OR at < ?)",
                (now - KEPT_SECONDS, now - CLAIMED_SECONDS),
            )

    def close(self) -> None:
        self._file.close()


def _opened(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=OPEN_SECONDS, isolation_level=None)
    try:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = OFF")
        file.execute(f"PRAGMA max_page_count = {PAGES_MOST}")
        file.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT; PRAGMA busy_timeout = {round(WAIT_SECONDS * 1000)}")
    except sqlite3.Error:
        file.close()
        raise
    return file


def _remove(path: Path) -> None:
    for behind in ("", "-wal", "-shm"):
        Path(f"{path}{behind}").unlink(missing_ok=True)


def _boot() -> str:
    """Another text after each start of the machine."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError as error:
        raise Misconfigured(f"{BOOT_ID} cannot be read: {error}") from error
