"""The records of bytes: runs, bodies, and the blocks that contain them."""

from __future__ import annotations

from typing import NamedTuple

from gateway.journal.columns import Extent, Rewritten
from gateway.journal.records.base import record


class NewBlock(NamedTuple):
    """A block that contains extents of a run, as its writer stored it."""

    id: bytes
    ring_key: int
    size: int
    crc32c: int
    backends: int
    due_ns: int = 0
    """When the mover is to complete its copies, in ns since 1970. 0: all backends that should hold it do."""
    strays: tuple[int, ...] = ()
    """If `due_ns` is set: further backends that may have bytes of it, by puts that were not awaited or that failed."""


@record(tag=70)
class RunMade:
    """A run was made; its reference count is 0. *blocks* describes each block that contains its extents."""

    id: int
    policy: int
    extents: tuple[Extent, ...]
    blocks: tuple[NewBlock, ...]


@record(tag=71)
class BodyMade:
    """A body was made of slices of content; its reference count is 0. Each slice is (shape, id, offset, length). It is
    resolved to slices of runs, and each of these counts once on its run."""

    id: int
    slices: tuple[tuple[int, int, int, int], ...]


@record(tag=73)
class ContentReleased:
    """Released content lost its reference counts. Each item is (id in the release queue, how many pieces at most)."""

    items: tuple[tuple[int, int], ...]


@record(tag=74)
class ExtentsMoved:
    """Compaction: the extents at *indexes* of a run are now *extents*, in other blocks."""

    run: int
    indexes: tuple[int, ...]
    extents: tuple[Extent, ...]
    blocks: tuple[NewBlock, ...]


@record(tag=75)
class BlocksForgotten:
    """The bytes of these dead blocks were deleted from every backend."""

    ids: tuple[bytes, ...]


@record(tag=77, feature=8)
class PackRewritten:
    """Compaction: a new pack contains *copies* of extents of the older packs *sources*. The runs still name the old
    extents."""

    block: NewBlock
    policy: int
    sources: tuple[bytes, ...]
    copies: tuple[Rewritten, ...]


@record(tag=78, feature=8)
class RewritePlaced:
    """Since *placed_ns*, by the site's clock, all backends that should hold a new pack have it: those of the set
    *backends*. If *placed_ns* is 0, not all of them have it, or not any more."""

    block: bytes
    placed_ns: int
    backends: int


@record(tag=79, feature=8)
class RewriteEnded:
    """A rewrite has ended: the extents that had not changed were moved to the new pack, or the rewrite was given up. A
    new pack without members is dead."""

    block: bytes


BytesRecord = (
    RunMade | BodyMade | ContentReleased | ExtentsMoved | BlocksForgotten | PackRewritten | RewritePlaced | RewriteEnded
)
