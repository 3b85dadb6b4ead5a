"""The rows of what bytes lie where: runs, bodies, blocks, and what was let go of. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from gateway.journal.tables.base import Table


class Shape(IntEnum):
    """What a content id names: nothing (no bytes), one run, or a body of several."""

    NONE = 0
    RUN = 1
    BODY = 2


class Run(NamedTuple):
    """An immutable row of extents: what one PUT, part or flush wrote."""

    id: int
    refs: int
    """Files, parts and bodies that name it."""
    size: int
    policy: int
    extents: bytes
    """packed: list of `Extent`. Only compaction changes it, conditionally; an extent's place stands nowhere else."""


class Body(NamedTuple):
    """A counted, immutable list of slices of runs."""

    id: int
    refs: int
    size: int
    pieces: bytes
    """packed: list of `Piece`."""
    parts: bytes
    """packed: list of `PartSummary`, for what was uploaded in parts; empty otherwise."""


class Block(NamedTuple):
    """A sealed block, named by the journal."""

    id: bytes
    """24 bytes: the session that wrote it, big-endian, and 16 drawn at random."""
    ring_key: int
    size: int
    """Sealed bytes, as stored."""
    plain: int
    """Plain bytes of all extents that the journal ever named in it."""
    live: int
    """Plain bytes of those that still live."""
    members: int
    """Live extents in it."""
    crc32c: int
    """Of the sealed bytes, as confirmed by the backend."""
    backends: int
    """The `BackendSet` that holds it."""
    policy: int
    died: int
    """The number of the record that took its last extent; 0 while it lives."""


class Member(NamedTuple):
    """A run that has extents in a block: what compaction and draining ask for. No other columns."""

    block: bytes
    run: int


class Rewrite(NamedTuple):
    """A new pack with copies of extents of older packs. No run names the copies before all places that should hold the
    new pack have confirmed it and kept it for a while; so long the older packs stay."""

    block: bytes
    """The new pack. While this row stands, it lives also without members."""
    placed_ns: int
    """Since when, by the site's clock, all places that should hold it have it, as far as is known; 0: not yet."""
    backends: int
    """The `BackendSet` that held it then."""
    plain: int
    """Plain bytes of all copies in it."""
    sources: bytes
    """packed: list of the older packs."""
    copies: bytes
    """packed: list of `Rewritten`."""


class QueuedRelease(NamedTuple):
    """Something that let go of its content, whose counts are taken down later, in slices."""

    id: int
    """The id of the file, part or upload that let go."""
    shape: int
    """What `content` is; `Shape.NONE` here means that the id is an upload whose parts are to go."""
    content: int
    cursor: int
    """For a body: how many pieces were let go of already."""


RUN = Table("run", Run)
BODY = Table("body", Body)
BLOCK = Table("block", Block)
MEMBER = Table("member", Member, 2)
RELEASE_QUEUE = Table("freed", QueuedRelease)
REWRITE = Table("rewrite", Rewrite)
