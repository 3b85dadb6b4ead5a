"""The records of bytes: runs and bodies, and the blocks that they lie in."""

from __future__ import annotations

from typing import NamedTuple

from gateway.journal.columns import Extent, Rewritten
from gateway.journal.records.base import record


class NewBlock(NamedTuple):
    """A block that a run's extents lie in, as its writer stored it."""

    id: bytes
    ring_key: int
    size: int
    crc32c: int
    backends: int
    due: int = 0
    """When it is to be brought to where it should be, in ns since 1970; 0: it lies there already."""
    strays: tuple[int, ...] = ()
    """Where, if it is due, bytes of it may come to lie besides: puts that nobody awaited, or that failed."""


@record(tag=70)
class RunMade:
    """A run that nobody counts yet. *blocks* are the facts of each block that its extents lie in."""

    id: int
    policy: int
    extents: tuple[Extent, ...]
    blocks: tuple[NewBlock, ...]


@record(tag=71)
class BodyMade:
    """A body that nobody counts yet, of slices of content: each is (shape, id, offset, length) and is resolved to
    slices of runs, each counted once a slice."""

    id: int
    slices: tuple[tuple[int, int, int, int], ...]


@record(tag=73)
class ContentReleased:
    """What was let go of lost its counts. Each item is (freed id, how many pieces at most)."""

    items: tuple[tuple[int, int], ...]


@record(tag=74)
class ExtentsMoved:
    """Compaction: the extents at *indexes* of a run now lie elsewhere."""

    run: int
    indexes: tuple[int, ...]
    extents: tuple[Extent, ...]
    blocks: tuple[NewBlock, ...]


@record(tag=75)
class BlocksForgotten:
    """Dead blocks whose bytes are gone from every backend."""

    ids: tuple[bytes, ...]


@record(tag=77, feature=8)
class PackRewritten:
    """Compaction: a new pack holds *copies* of extents of the older packs *sources*. The runs still name those."""

    block: NewBlock
    policy: int
    sources: tuple[bytes, ...]
    copies: tuple[Rewritten, ...]


@record(tag=78, feature=8)
class RewritePlaced:
    """Since *placed_ns*, by the site's clock, all places that should hold a new pack have it, which are those of the
    set *backends*. 0: not any more, or not yet."""

    block: bytes
    placed_ns: int
    backends: int


@record(tag=79, feature=8)
class RewriteEnded:
    """The extents that are still as they were read have moved to the new pack; or it was given up. Without members it
    is dead."""

    block: bytes


BytesRecord = (
    RunMade | BodyMade | ContentReleased | ExtentsMoved | BlocksForgotten | PackRewritten | RewritePlaced | RewriteEnded
)
