"""Fencing: only the committer that started last may have anything deleted on a backend.

Theory of operation
-------------------
**The rule.** Each start of a committer draws a token (`DrawToken`). The keeper, and any other process that writes or
deletes for that committer, stamps the token into the marker of each backend by compare-and-set. A stamp (a *fence*)
also holds the number and the hash of the journal's end at that moment, and is renewed as the journal grows. A block on
a backend may be deleted only if both of these hold:

- The backend's marker has the current token, or this process wrote the block itself.
- If the block died at record n, the number in the marker is n or more.

A backend that cannot be reached is not stamped. It delays nobody, and nothing is deleted there.

**How a marker is compared with the journal.** If the journal has the marker's hash at the marker's number, then the
committer that stamped the marker belongs to this history, and its stamp may be replaced. Otherwise another copy of this
journal has gone on: this folder is older than that copy, or the two have diverged. This process then writes and deletes
nothing more on that backend. If the places agree (`agreement`, which says why that is safe), the process ends, and
starts again only after `entrepot takeover`.

**Why neither of two copies loses what it acknowledged.** Let X be the original, Y a copy of X's journal as of record F,
and let Y stamp a backend. The marker that Y found there had a number m of at most F, or Y would have ended.

- What X deletes: from Y's stamp on, X's stamps fail, so X deletes nothing that died after record m. What died at m or
  before is dead in Y's history, too, and no session that was open then can name it again in Y. So X may go on deleting
  until it notices Y's stamp, and Y misses nothing.
- What Y deletes: it died in Y's history, after F, and a pin keeps it for the grace that follows such a start. The
  sessions with which X goes on are ended in Y's history, which X does not see (`gateway/journal/server/server.py`).
- X and Y draw different ids, so neither sweeps an id under which the other writes.

No clocks are compared; only the length of the grace is measured.

**Kills.**

- Between the token's record and the first stamp: the next start draws another token and finds markers of this history.
- Between the stamps of two backends: each backend's marker alone says what may be deleted there.
- After a stamp whose answer was lost: the marker is read again. It has the current token, or an older one, and then
  it is stamped again.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from backends.base import LINEAGE_MAX, Fence, IssuedToken, Marker
from gateway.blocks.types import block_id_of, session_of
from gateway.journal.columns import unpack
from gateway.site.storage.agreement import StampedElsewhere
from gateway.site.storage.keyring import JournalTables
from gateway.timing import Clock

_HAS_TOKENS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'token'"
_BATCH = "SELECT number + records_count - 1, hash FROM journal WHERE number <= ? ORDER BY number DESC LIMIT 2"


class Relation(Enum):
    """How a fence is related to the history of this journal."""

    NONE = "never stamped"
    CURRENT = "stamped by the committer that started last here"
    EARLIER = "stamped by an earlier committer of this history, or by one whose claim was ended"
    DIVERGED = "stamped by another history of this site"


class Position(NamedTuple):
    """A position in a journal: a record's number and the running hash there."""

    number: int
    hash: str
    """Hex."""


class Fencing:
    """Compares backends' fences with this journal, and makes the fences that this process stamps."""

    def __init__(self, rows: JournalTables, session: Callable[[], int], clock: Clock, *, stamps: bool) -> None:
        """*session*: returns the id of this process's current session, or 0. *stamps*: this process stamps backends."""
        self._rows = rows
        self._session = session
        self._clock = clock
        self.stamps = stamps
        self._has_tokens = False

    def token(self) -> tuple[int, str] | None:
        """Return the token (counter and nonce) of the committer that started last. None if no committer ever drew one,
        as in a journal that an older version made and still serves."""
        if not self._has_tokens:
            self._has_tokens = bool(self._rows.query(_HAS_TOKENS))
        if not self._has_tokens:
            return None
        rows = self._rows.query("SELECT counter, nonce FROM token")
        return (int(rows[0][0]), str(rows[0][1])) if rows else None

    def classify(self, fence: Fence | None) -> Relation:
        """Return how *fence* is related to this journal."""
        token = self.token()
        if fence is None or token is None:
            return Relation.NONE
        if contains(self._rows, fence.number, fence.hash):
            return Relation.CURRENT if (fence.counter, fence.nonce) == token else Relation.EARLIER
        ended = fence.nonce in unpack(self._rows.query("SELECT over FROM token")[0][0])
        return Relation.EARLIER if ended else Relation.DIVERGED

    def head(self) -> Position:
        """Return the end of the journal."""
        return head(self._rows)

    def with_fence(self, marker: Marker) -> Marker | None:
        """Return *marker*, as read, with a new fence of the current token and the journal's end. None if there is no
        token."""
        token = self.token()
        if token is None:
            return None
        replaces = marker.fence.key if marker.fence is not None else ""
        return marker._replace(fence=Fence(*token, *self.head(), self._clock.wall_ns(), replaces, lineage(self._rows)))

    def owns(self, key: str) -> bool:
        """Whether this process's own session wrote the block under *key*. No other history ever names such a block, and
        this process knows whether its own history does."""
        block = block_id_of(key)
        return block is not None and session_of(block) == self._session() != 0


def head(rows: JournalTables) -> Position:
    """Return the end of the journal."""
    number, hashed = rows.query("SELECT number, hash FROM head")[0]
    return Position(int(number), hashed.hex())


def contains(rows: JournalTables, number: int, hashed: str) -> bool:
    """Whether the journal's running hash after record *number* is *hashed* (hex)."""
    batches = rows.query(_BATCH, (number,))
    return bool(batches) and batches[0][0] == number and batches[0][1].hex() == hashed


def lineage(rows: JournalTables) -> tuple[IssuedToken, ...]:
    """Return the latest tokens of this journal, oldest first, each with the end of the batch before its record."""
    token = rows.query("SELECT lineage FROM token")
    drawn = unpack(token[0][0])[-LINEAGE_MAX:] if token else ()
    return tuple(IssuedToken(counter, nonce, *_before(rows, number)) for counter, nonce, number in drawn)


def _before(rows: JournalTables, number: int) -> Position:
    """Return the end of the batch before the one that holds record *number*."""
    batches = rows.query(_BATCH, (number,))
    return Position(int(batches[1][0]), batches[1][1].hex()) if len(batches) == 2 else Position(0, "0" * 64)


def require_own_fence(fencing: Fencing, backend: str, fence: Fence | None) -> None:
    """Raise `StampedElsewhere` if *fence*, read from *backend*, belongs to another history."""
    if fencing.classify(fence) is Relation.DIVERGED and fence is not None:
        message = (
            f"it was stamped by another copy of this site's folder (token {fence.counter}): this folder is older than "
            "that one, or the two have diverged"
        )
        raise StampedElsewhere(message, backend=backend)
