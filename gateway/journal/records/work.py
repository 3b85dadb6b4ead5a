"""The records of copies: which backends hold a block, and the work on blocks whose copies are not as they should be."""

from __future__ import annotations

from gateway.journal.records.base import record


@record(tag=76)
class BlockBackendsSet:
    """A block is now held by another set of backends. *strays*: other backends that may still have bytes of it."""

    id: bytes
    backends: int
    strays: tuple[int, ...] = ()


@record(tag=90, feature=2)
class WorkNoted:
    """These blocks are to be processed at *due_ns* or sooner."""

    ids: tuple[bytes, ...]
    due_ns: int
    at_ns: int


@record(tag=91, feature=2)
class WorkBegun:
    """From here on, these backends may also have bytes of the block, without being named by its set."""

    id: bytes
    strays: tuple[int, ...]


@record(tag=92, feature=2)
class WorkDone:
    """These blocks have the copies that they should have, and no others."""

    ids: tuple[bytes, ...]


@record(tag=93, feature=2)
class WorkFailed:
    """The work on a block failed; *word* says why. It is tried again at *due_ns*."""

    id: bytes
    due_ns: int
    state: int
    attempts: int
    word: str


@record(tag=94, feature=2)
class CopySuspected:
    """A block's copy on *backend* was found to be absent or damaged."""

    id: bytes
    backend: int
    word: str
    at_ns: int


@record(tag=95, feature=2)
class CopiesCleared:
    """The copies of a block on these backends are good, or good again."""

    id: bytes
    backends: tuple[int, ...]


@record(tag=96, feature=2)
class PlanAdvanced:
    """All blocks up to *after* were compared with where they should be according to *fingerprint*. *again_ns*: the walk
    is finished, and the next one is due then; 0: the walk is in progress."""

    fingerprint: bytes
    after: bytes
    walks: int
    again_ns: int


@record(tag=97, feature=2)
class BackendLost:
    """All copies on the backend are permanently lost."""

    name: str


@record(tag=98, feature=4)
class CopiesPlaced:
    """Since *placed_ns*, by the site's clock, every backend that should hold the block has confirmed it. Copies
    elsewhere are kept, and the block is processed again at *due_ns*."""

    id: bytes
    placed_ns: int
    due_ns: int


WorkRecord = (
    BlockBackendsSet
    | WorkNoted | WorkBegun | WorkDone | WorkFailed | CopySuspected | CopiesCleared | PlanAdvanced | BackendLost
    | CopiesPlaced
)  # fmt: skip
