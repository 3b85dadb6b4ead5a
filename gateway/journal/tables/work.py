"""The rows of the work on copies: what is not where it should be, and how far that was looked for. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from gateway.journal.tables.base import Table


class WorkState(IntEnum):
    """WAITING is tried when it is due; ASIDE failed too often and is tried once a day; LOST has no good copy left."""

    WAITING = 0
    ASIDE = 1
    LOST = 2


class Work(NamedTuple):
    """A block whose copies are not what they should be, or about whose copies something is to be found out."""

    block: bytes
    due_ns: int
    """When it is looked at next."""
    since_ns: int
    """Since when it has not been as it should be."""
    state: int
    attempts: int
    """How often it failed by itself; a backend that does not answer does not count."""
    word: str
    """What went wrong the last time."""
    suspects: bytes
    """packed: ascending list of backends whose copy is said to be absent or damaged; empty for none."""
    strays: bytes
    """packed: ascending list of backends where bytes of it may lie that its set does not name; empty for none."""
    strays_number: int
    """The number of the record since which no reader is led to them."""
    placed_ns: int = 0
    """Since when every backend that should hold the block has confirmed it. Copies elsewhere are kept for
    `Topology.recheck_seconds` from then on. 0: not every one has, or nobody has noted it yet."""


class Plan(NamedTuple):
    """How far the blocks were held against what should be; one row, whose `one` is 0."""

    one: int
    fingerprint: bytes
    """Of all that says what should be: the walk is one of these."""
    after: bytes
    """The last block that was looked at; empty at the beginning of a walk."""
    walks: int
    """How often the end was reached under this fingerprint."""
    again_ns: int
    """When the next walk is due; 0 while one is under way."""


WORK = Table("work", Work)
PLAN = Table("plan", Plan)
