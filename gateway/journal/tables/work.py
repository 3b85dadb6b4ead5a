"""The rows of the work on copies: blocks whose copies need work, and the progress of the search for them. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from gateway.journal.tables.base import Table


class WorkState(IntEnum):
    """WAITING: it is tried when it is due. ASIDE: it failed too often and is tried once a day. LOST: the block has no
    good copy left."""

    WAITING = 0
    ASIDE = 1
    LOST = 2


class Work(NamedTuple):
    """A block whose copies are not what they should be, or have to be checked."""

    block: bytes
    due_ns: int
    """When the block is processed next."""
    since_ns: int
    """Since when the row exists."""
    state: int
    attempts: int
    """How often the work failed because of the block itself. A backend that does not answer does not count."""
    word: str
    """What went wrong the last time, for people."""
    suspects: bytes
    """packed: ascending list of the backends whose copy is reported as absent or damaged; empty: none."""
    strays: bytes
    """packed: ascending list of the backends that its set does not name and that may have bytes of it; empty: none."""
    strays_number: int
    """The number of the record since which no reader is directed to the strays."""
    placed_ns: int = 0
    """Since when every backend that should hold the block has confirmed it. Copies elsewhere are kept for
    `Topology.recheck_seconds` from then on. 0: not every one has, or that is not recorded yet."""


class Plan(NamedTuple):
    """The progress of the planner's walk over all blocks; one row, whose `one` is 0."""

    one: int
    fingerprint: bytes
    """A hash of everything that decides where blocks should be. The walk is valid for this fingerprint."""
    after: bytes
    """The id of the last block that was checked; empty at the beginning of a walk."""
    walks: int
    """How many walks were finished under this fingerprint."""
    again_ns: int
    """When the next walk is due; 0 while a walk is in progress."""


WORK = Table("work", Work)
PLAN = Table("plan", Plan)
