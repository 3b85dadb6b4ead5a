"""Fencing: only the committer that started last may have anything deleted on a backend.

**The rule.** Each start of a committer draws a token (`DrawToken`). The keeper, or whoever else deletes or writes for
that committer, stamps each backend's marker with it by compare-and-set, together with the number and hash of the
journal at that moment, and does so again as the journal grows. On a backend nothing is deleted, but for what this
process wrote itself, unless its marker bears the current token; and nothing that died at record n, unless the marker's
number is n or more. A backend that cannot be reached is not stamped, delays nobody, and keeps everything.

**A marker is read against the journal.** Where the journal has the marker's hash at the marker's number, the committer
that stamped it belongs to this history, and its stamp may be replaced. Otherwise another copy of this journal has gone
on: this folder is older, or the two have parted. This process writes and deletes nothing there any more, and where its
places agree (`agreement`, which says why that is safe), it ends, and starts again only by `entrepot takeover`.

**Why neither of two copies loses what it acknowledged.** Let X be the original, Y a copy of its journal as of record F,
and let Y stamp a backend. Y found a marker there whose number m is not above F, or it would have ended. From then on
X's stamps fail, so X deletes nothing that died behind m. What died at m or before is dead in Y's history as well, and
no session that was open then can name it again in Y. So X may go on deleting until it notices, and Y misses nothing.
What Y deletes died in Y's history, behind F, and is kept by a pin for the grace that follows such a start; and the
sessions that X goes on with end unseen in Y's history (`gateway/journal/server.py`). The ids that both draw differ, so
what one writes is under no id that the other sweeps. No clock is compared, but for the length of the grace.

**Kills.** Between the token's record and the first stamp: the next start draws another token and finds markers of this
history. Between two backends: each marker alone says what may be deleted there. Behind a stamp whose answer was lost:
the marker bears the current token, or, read again, an older one, and is stamped again.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from backends.base import LINEAGE_MAX, Draw, Fence, Marker
from gateway.blocks.values import block_id, session_of
from gateway.journal.packed import unpack
from gateway.site.agreement import StampedElsewhere
from gateway.site.ring import Rows
from gateway.timing import Clock

_HAS_TOKENS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'token'"
_BATCH = "SELECT number + records_count - 1, hash FROM journal WHERE number <= ? ORDER BY number DESC LIMIT 2"


class Relation(Enum):
    """What a fence says to a history."""

    NONE = "never stamped"
    CURRENT = "stamped by the committer that started last here"
    EARLIER = "stamped by an earlier committer of this history, or by one whose claim was ended"
    PARTED = "stamped by another history of this site"


class Position(NamedTuple):
    """A place in a journal."""

    number: int
    hash: str
    """Hex."""


class Fencing:
    """A journal's side of the fences, and what this process may do with them."""

    def __init__(self, rows: Rows, session: Callable[[], int], clock: Clock, *, stamps: bool) -> None:
        """*session*: of this process, now; 0 for none. *stamps*: this process stamps backends."""
        self._rows = rows
        self._session = session
        self._clock = clock
        self.stamps = stamps
        self._has_tokens = False

    def token(self) -> tuple[int, str] | None:
        """The token of the committer that started last; None where none ever drew one, as in a journal that an older
        version made and still serves."""
        if not self._has_tokens:
            self._has_tokens = bool(self._rows.query(_HAS_TOKENS))
        if not self._has_tokens:
            return None
        found = self._rows.query("SELECT counter, nonce FROM token")
        return (int(found[0][0]), str(found[0][1])) if found else None

    def judge(self, fence: Fence | None) -> Relation:
        """What *fence* says to this journal."""
        token = self.token()
        if fence is None or token is None:
            return Relation.NONE
        if contains(self._rows, fence.number, fence.hash):
            return Relation.CURRENT if (fence.counter, fence.nonce) == token else Relation.EARLIER
        ended = fence.nonce in unpack(self._rows.query("SELECT over FROM token")[0][0])
        return Relation.EARLIER if ended else Relation.PARTED

    def head(self) -> Position:
        """Where the journal ends."""
        return head(self._rows)

    def stamped(self, marker: Marker) -> Marker | None:
        """*marker*, as it is read, with the current token and the journal's end; None where there is no token."""
        token = self.token()
        if token is None:
            return None
        replaces = marker.fence.key if marker.fence is not None else ""
        return marker._replace(fence=Fence(*token, *self.head(), self._clock.wall_ns(), replaces, lineage(self._rows)))

    def owns(self, key: str) -> bool:
        """Whether the block under *key* is of this process's own session: no other history ever names it, and this
        process knows whether its own does."""
        block = block_id(key)
        return block is not None and session_of(block) == self._session() != 0


def head(rows: Rows) -> Position:
    """Where the journal ends."""
    number, hashed = rows.query("SELECT number, hash FROM head")[0]
    return Position(int(number), hashed.hex())


def contains(rows: Rows, number: int, hashed: str) -> bool:
    """Whether the journal has this running hash behind this record."""
    found = rows.query(_BATCH, (number,))
    return bool(found) and found[0][0] == number and found[0][1].hex() == hashed


def lineage(rows: Rows) -> tuple[Draw, ...]:
    """The latest tokens of this journal, oldest first, each with the end of the batch before its record."""
    found = rows.query("SELECT lineage FROM token")
    drawn = unpack(found[0][0])[-LINEAGE_MAX:] if found else ()
    return tuple(Draw(counter, nonce, *_before(rows, number)) for counter, nonce, number in drawn)


def _before(rows: Rows, number: int) -> Position:
    """The end of the batch before the one that holds record *number*."""
    found = rows.query(_BATCH, (number,))
    return Position(int(found[1][0]), found[1][1].hex()) if len(found) == 2 else Position(0, "0" * 64)


def see_that_it_is_ours(fencing: Fencing, backend: str, fence: Fence | None) -> None:
    """Raises `StampedElsewhere` where *fence*, found on *backend*, is another history's."""
    if fencing.judge(fence) is Relation.PARTED and fence is not None:
        message = (
            f"it was stamped by another copy of this site's folder (token {fence.counter}): this folder is older than "
            "that one, or the two have parted"
        )
        raise StampedElsewhere(message, backend=backend)
