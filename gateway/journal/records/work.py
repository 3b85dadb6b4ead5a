"""The records of copies: where a block lies, and what is brought where it should be."""

from __future__ import annotations

from gateway.journal.records.base import record


@record(tag=76)
class BlockBackendsSet:
    """A block is now held by another set of backends. *strays*: those where bytes of it may still lie besides."""

    id: bytes
    backends: int
    strays: tuple[int, ...] = ()


@record(tag=90, feature=2)
class WorkNoted:
    """These blocks are to be looked at, at *due_ns* or sooner."""

    ids: tuple[bytes, ...]
    due_ns: int
    at_ns: int


@record(tag=91, feature=2)
class WorkBegun:
    """From here on bytes of the block may lie on these backends as well, unnamed."""

    id: bytes
    strays: tuple[int, ...]


@record(tag=92, feature=2)
class WorkDone:
    """These blocks are as they should be, and nowhere else."""

    ids: tuple[bytes, ...]


@record(tag=93, feature=2)
class WorkFailed:
    """It did not go; *word* says why. It is looked at again at *due_ns*."""

    id: bytes
    due_ns: int
    state: int
    attempts: int
    word: str


@record(tag=94, feature=2)
class CopySuspected:
    """Somebody found the block's copy on *backend* absent or damaged."""

    id: bytes
    backend: int
    word: str
    at_ns: int


@record(tag=95, feature=2)
class CopiesCleared:
    """The copies of the block on these backends are good (again)."""

    id: bytes
    backends: tuple[int, ...]


@record(tag=96, feature=2)
class PlanAdvanced:
    """All blocks up to *after* were held against what *fingerprint* says should be. *again_ns*: the walk has reached
    its end, and the next one is due then; 0 while it goes on."""

    fingerprint: bytes
    after: bytes
    walks: int
    again_ns: int


@record(tag=97, feature=2)
class BackendLost:
    """Copies on the backend are gone for good."""

    name: str


@record(tag=98, feature=4)
class CopiesPlaced:
    """Since *placed_ns*, by the site's clock, every backend that should hold the block has confirmed it. The copies
    elsewhere are kept, and the block is looked at again at *due_ns*."""

    id: bytes
    placed_ns: int
    due_ns: int


WorkRecord = (
    BlockBackendsSet
    | WorkNoted | WorkBegun | WorkDone | WorkFailed | CopySuspected | CopiesCleared | PlanAdvanced | BackendLost
    | CopiesPlaced
)  # fmt: skip
