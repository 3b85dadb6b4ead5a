"""The values that writing and reading blocks take and answer. Pure."""

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
    """A backend that a copy is to be put on or read from, and the id that the journal knows it by."""

    backend: Backend
    id: int


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Targets:
    """Where blocks of one policy are put, and how many of those must have one before a write is answered."""

    policy: int
    """The policy's id."""
    set_id: int
    """The id of the interned set of these backends."""
    copies: tuple[Target, ...]
    settled: bool = True
    """A block that lies on all of them lies where it should in the end; otherwise there is work to be done."""
    needed: int = 0
    """How many must have it; 0: all."""
    some: Mapping[frozenset[int], int] = field(default_factory=dict)
    """Where not all must: the id of every interned set of *needed* or more of them, by its members."""


@dataclass(frozen=True, slots=True)
class WriteContext:
    """Under what bytes are written. What shares a pack has the same one."""

    key: ActiveKey
    """The ring key of the tenant who writes."""
    targets: Targets
    user: Hashable = field(default="", compare=False)
    """Who writes: users take turns where they wait for memory."""


class BlockFacts(NamedTuple):
    """What a reader must know of a block."""

    ring_key: int
    size: int
    """Sealed bytes."""
    backends: int
    """The set that holds it."""


FactsOf = Callable[[bytes], BlockFacts | None]
"""A block's facts by its id; None when the journal does not (or no longer) name it."""
CopiesOf = Callable[[BlockFacts], Sequence[Target]]
"""The backends that hold a block, the one to try first in front."""
ReportBadCopy = Callable[[bytes, int, str], None]
"""Told of a block, a backend whose copy of it is no good, and a word for why: `ABSENT` or `DAMAGED`. Must not wait."""
ABSENT, DAMAGED = "absent", "damaged"


class ReadRange(NamedTuple):
    """A stretch of plain bytes to read: *length* from *start* on, inside *extent*.

    *run* and *nth* say where the extent stands in the journal, so that it can be looked up anew if its block went
    away meanwhile; a run of 0 says that it cannot. *facts* are its block's, where the look-up told them too."""

    extent: Extent
    start: int
    length: int
    run: int = 0
    nth: int = 0
    facts: BlockFacts | None = None


def block_path(block_id: bytes) -> str:
    """The key of a block on every backend: the session's hex, a slash, the rest. Keys sort as ids do."""
    return f"{block_id[:SESSION_BYTES].hex()}/{block_id[SESSION_BYTES:].hex()}"


def block_id_of(key: str) -> bytes | None:
    """The block whose key this is, None if it is nobody's."""
    session, slash, drawn = key.partition("/")
    if not slash or len(session) != 2 * SESSION_BYTES or len(drawn) != 2 * (RANDOM_BYTES):
        return None
    try:
        found = bytes.fromhex(session + drawn)
    except ValueError:
        return None
    return found if block_path(found) == key else None


def session_of(block: bytes) -> int:
    """The session that wrote the block of this id."""
    return int.from_bytes(block[:SESSION_BYTES], "big")


def session_prefix(session: int) -> str:
    """What the keys of all blocks of a session begin with."""
    return f"{session:016x}/"
