"""The values that writing and reading blocks take and return. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from backends.base import Backend
from gateway.crypto.ring import ActiveKey
from gateway.crypto.sealing import MAX_BLOCK_PLAIN, RANDOM_BYTES, SESSION_BYTES
from gateway.journal.columns import Extent

BLOCK_BYTES = MAX_BLOCK_PLAIN
"""The most plain bytes of a block."""


class Target(NamedTuple):
    """A backend that a copy is put on or read from, and the backend's id in the journal."""

    backend: Backend
    id: int


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Targets:
    """The backends that blocks of one policy are put on, and how many must have a block before a write is answered."""

    policy: int
    """The policy's id."""
    set_id: int
    """The id of the interned set of all these backends."""
    copies: tuple[Target, ...]
    is_final: bool = True
    """A block that is on all of `copies` needs no further work. False: the mover has to look at it."""
    needed: int = 0
    """How many of `copies` must have the block before the write is answered; 0 means all."""
    partial_sets: Mapping[frozenset[int], int] = field(default_factory=dict)
    """If `needed` is fewer than all: the id of each interned set of *needed* or more of the backends, by its
    members."""


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What a block is written under: key, targets and user. Only bodies with the same key and targets share a pack."""

    key: ActiveKey
    """The ring key of the tenant that writes."""
    targets: Targets
    user: Hashable = field(default="", compare=False)
    """The user that writes. Users take turns when they wait for memory."""
    may_attach: bool = False
    """Whether small blocks may be attached to the command that names them (`gateway/blocks/inline`): that command has
    them in its field `blocks`."""


class BlockFacts(NamedTuple):
    """What a reader needs to know about a block."""

    ring_key: int
    size: int
    """Sealed bytes."""
    backends: int
    """The id of the set of backends that hold the block."""


FactsOf = Callable[[bytes], BlockFacts | None]
"""Returns a block's facts by its id; None if the journal does not name the block."""
CopiesOf = Callable[[BlockFacts], Sequence[Target]]
"""Returns the backends that hold a block, the one to try first in front."""
ReportBadCopy = Callable[[bytes, int, str], None]
"""Called with a block id, the id of a backend whose copy is bad, and `ABSENT` or `DAMAGED`. Must not wait."""
ABSENT, DAMAGED = "absent", "damaged"


class ReadRange(NamedTuple):
    """A range of plain bytes to read: *length* bytes from *start*, relative to *extent*.

    The extent is the *nth* one of the run *run* (from 0), so that it can be looked up again if its block has been
    deleted meanwhile; a *run* of 0 means that it cannot. *facts* are those of the extent's block, if already looked
    up."""

    extent: Extent
    start: int
    length: int
    run: int = 0
    nth: int = 0
    facts: BlockFacts | None = None


def block_path(block_id: bytes) -> str:
    """Return the key of a block on every backend: the session id in hex, a slash, and the random bits in hex.

    These keys sort as block ids do."""
    return f"{block_id[:SESSION_BYTES].hex()}/{block_id[SESSION_BYTES:].hex()}"


def block_id_of(key: str) -> bytes | None:
    """Return the id of the block that a backend stores under *key*; None if *key* is not a block's."""
    session, slash, random_bits = key.partition("/")
    if not slash or len(session) != 2 * SESSION_BYTES or len(random_bits) != 2 * RANDOM_BYTES:
        return None
    try:
        block_id = bytes.fromhex(session + random_bits)
    except ValueError:
        return None
    return block_id if block_path(block_id) == key else None


def session_of(block_id: bytes) -> int:
    """Return the id of the session that wrote the block."""
    return int.from_bytes(block_id[:SESSION_BYTES], "big")


def session_prefix(session: int) -> str:
    """Return the prefix of the keys of all blocks of a session."""
    return f"{session:016x}/"
