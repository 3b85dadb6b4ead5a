"""Inline values: small sealed blocks whose bytes travel with the commands that name the block.

The committer stores the bytes in the table `inline_value`, in the same transaction as the command's records, so one
sync makes both durable. The records do not contain them.

**The crash argument.** Each command that names the block brings the value along, also if several do, as for a pack: the
value is in each frame that has such a command, once for all of them. So whichever of them is committed first stores the
value in the same transaction, in whatever order they are run, sent again to another committer, or refused. If a value
is stored twice, its bytes are the same. A refused command stores nothing, so every value in the table was named by a
record of its transaction.

**The bounds.** A process attaches at most `ATTACHED_BYTES_MAX` at a time. The answers of the committer say whether it
accepts more values (`AttachedValues.accepted`): it does not while those that it has stored take more than
`INLINE_BYTES_MAX`, its queue is long, or its WAL is, as while a backup holds a snapshot. Then blocks are put on their
backends before a command names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.errors import SessionExpired
from gateway.journal.rows import Overlay
from gateway.journal.tables import INLINE_VALUE, InlineValue

INLINE_BYTES_MAX = 64 << 20
"""The committer accepts no more values while those that it has stored count for this many bytes."""
COUNTED_BYTES_MIN = 4_096
"""A stored value counts for this many bytes at least, so that the number of values is bounded as well."""
ATTACHED_BYTES_MAX = 4 << 20
"""The bytes of all values that a process has attached at a time."""


class SentValue(NamedTuple):
    """A value on the wire; the fields are those of `InlineValue`."""

    block: bytes
    backend: int
    crc32c: int
    value: bytes


Attachment = tuple[SentValue, ...]
"""The values that a command brings along."""


class AttachedValues:
    """The values that a process has attached to blocks. A value stays until every command that may name its block was
    answered or given up. For one event loop."""

    def __init__(self) -> None:
        self.accepted = False
        """Whether the committer accepts values, according to its last answer."""
        self._values: dict[bytes, SentValue] = {}
        self._bytes = 0

    def add(self, value: SentValue) -> bool:
        """Attach *value* to its block until `remove` is called. Returns False if too many bytes are attached, or the
        committer accepts none."""
        if not self.accepted or self._bytes + len(value.value) > ATTACHED_BYTES_MAX:
            return False
        self._values[value.block] = value
        self._bytes += len(value.value)
        return True

    def remove(self, block: bytes) -> None:
        """Forget the value of *block*, if there is one: no further command will name the block."""
        value = self._values.pop(block, None)
        if value is not None:
            self._bytes -= len(value.value)

    def of(self, command: Any) -> Attachment:
        """Return the values of the blocks that *command* names in its field `blocks`."""
        if not self._values:
            return ()
        blocks = (block.id for block in getattr(command, "blocks", ()))
        return tuple(self._values[block] for block in blocks if block in self._values)


def store(rows: Overlay, values: Sequence[SentValue], session: int, number: int) -> None:
    """Put the rows of *values*, which *session* has sent. *number*: that of the next record.

    Raises `SessionExpired` for a block of another session, which may have ended."""
    for block, backend, crc32c, value in values:
        if int.from_bytes(block[:8], "big") != session:
            raise SessionExpired(session)
        rows.put(INLINE_VALUE, InlineValue(block, backend, number, crc32c, value))


def counted_bytes(value: bytes) -> int:
    """Return how many bytes a stored value counts for."""
    return max(len(value), COUNTED_BYTES_MIN)
