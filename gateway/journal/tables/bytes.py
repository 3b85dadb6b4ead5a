"""The rows that say where bytes are stored: runs, bodies, blocks, and content to be released. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from gateway.journal.tables.base import Table


class Shape(IntEnum):
    """What a content id refers to: nothing (no bytes), a run, or a body."""

    NONE = 0
    RUN = 1
    BODY = 2


class Run(NamedTuple):
    """An immutable list of extents: what one PUT, one part or one flush wrote."""

    id: int
    refs: int
    """How many files, parts and pieces of bodies refer to it."""
    size: int
    policy: int
    extents: bytes
    """packed: list of `Extent`. Only compaction changes it, conditionally; the location of an extent is stored nowhere
    else."""


class Body(NamedTuple):
    """A reference-counted, immutable list of slices of runs."""

    id: int
    refs: int
    size: int
    pieces: bytes
    """packed: list of `Piece`."""
    parts: bytes
    """packed: list of `PartSummary` if it was uploaded in parts; empty otherwise."""


class Block(NamedTuple):
    """A sealed block that the journal names."""

    id: bytes
    """24 bytes: the id of the session that wrote it, big-endian, and 16 random bytes."""
    ring_key: int
    size: int
    """In sealed bytes, as it is stored."""
    plain: int
    """Plain bytes of all extents that the journal has ever named in it."""
    live: int
    """Plain bytes of its live extents."""
    members: int
    """How many runs have extents in it (rows of `member`)."""
    crc32c: int
    """CRC32C of the sealed bytes, as confirmed by the backend."""
    backends: int
    """The `BackendSet` that holds it."""
    policy: int
    died: int
    """The number of the record that removed its last extent; 0 while it is alive."""


class InlineValue(NamedTuple):
    """The sealed bytes of a small block whose local backend has no file of it yet. They came with a command, outside
    its records, and are durable since that command's transaction. The keeper writes the file and then drops the row."""

    block: bytes
    backend: int
    """The local backend that the block's file will be on."""
    number: int
    """The number that the next record had when the row was made."""
    crc32c: int
    """CRC32C of the value."""
    value: bytes


class Member(NamedTuple):
    """A run that has extents in a block. Compaction and draining look this up."""

    block: bytes
    run: int


class Rewrite(NamedTuple):
    """A new pack with copies of extents of older packs. No run names the copies, and the older packs are kept, until
    all backends that should hold the new pack have confirmed it and have held it for a while."""

    block: bytes
    """The new pack. While this row exists, the pack is alive even without members."""
    placed_ns: int
    """Since when, by the site's clock, all backends that should hold the pack have had it, as far as is known; 0: not
    all have it."""
    backends: int
    """The `BackendSet` that held it then."""
    plain: int
    """Plain bytes of all copies in it."""
    sources: bytes
    """packed: list of the block ids of the older packs."""
    copies: bytes
    """packed: list of `Rewritten`."""


class QueuedRelease(NamedTuple):
    """Content that a file, part or upload has released. Its reference counts are lowered later, in slices."""

    id: int
    """The id of the file, part or upload, or a fresh id if a file released content that was replaced in place."""
    shape: int
    """What `content` refers to. `Shape.NONE` means that `id` is an ended upload whose parts are to be dropped."""
    content: int
    cursor: int
    """For a body: how many of its pieces have been released."""


RUN = Table("run", Run)
BODY = Table("body", Body)
BLOCK = Table("block", Block)
INLINE_VALUE = Table("inline_value", InlineValue, truth=False, cached=False)
MEMBER = Table("member", Member, 2)
RELEASE_QUEUE = Table("freed", QueuedRelease)
REWRITE = Table("rewrite", Rewrite)
