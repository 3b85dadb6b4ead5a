"""Which ranges of which extents hold a range of a file's bytes. Pure: rows come as values or from callables.

Runs are looked up one after the other as the reader gets to them. So memory grows neither with the object's size nor
with the number of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from gateway.blocks.types import ReadRange
from gateway.errors import Corrupted
from gateway.journal.columns import Extent
from gateway.journal.tables import Shape

ExtentsOf = Callable[[int], Sequence[Extent]]
"""Returns a run's extents by its id. Raises `Corrupted` if there is no such run."""
PiecesOf = Callable[[int], Sequence[tuple[int, int, int]]]
"""Returns a body's pieces by its id, as (run, offset, length). Raises `Corrupted` if there is no such body."""


def plan_read(
    shape: int, content: int, start: int, length: int, extents_of: ExtentsOf, pieces_of: PiecesOf
) -> Iterator[ReadRange]:
    """Yield the ranges to read for *length* plain bytes from *start* of a file's content (its *shape* and *content*).

    Raises `Corrupted` at the end if the content holds fewer bytes."""
    match shape:
        case Shape.NONE:
            ranges: Iterator[ReadRange] = iter(())
        case Shape.RUN:
            ranges = plan_run(content, extents_of(content), start, length)
        case _:
            ranges = plan_pieces(pieces_of(content), start, length, extents_of)
    yield from _checked(ranges, length, content)


def plan_run(run: int, extents: Iterable[Extent], start: int, length: int) -> Iterator[ReadRange]:
    """Yield the ranges of one run's extents."""
    at, end = 0, start + length
    for nth, extent in enumerate(extents):
        if at >= end:
            return
        begins, ends = max(start, at), min(end, at + extent.length)
        if begins < ends:
            yield ReadRange(extent, begins - at, ends - begins, run, nth)
        at += extent.length


def plan_pieces(
    pieces: Iterable[tuple[int, int, int]], start: int, length: int, extents_of: ExtentsOf
) -> Iterator[ReadRange]:
    """Yield the ranges of a body's pieces, each (run, offset, length)."""
    at, end = 0, start + length
    for run, offset, size in pieces:
        if at >= end:
            return
        begins, ends = max(start, at), min(end, at + size)
        if begins < ends:
            yield from plan_run(run, extents_of(run), offset + begins - at, ends - begins)
        at += size


def _checked(ranges: Iterator[ReadRange], length: int, content: int) -> Iterator[ReadRange]:
    """Yield *ranges*. Raises `Corrupted` if they do not have *length* bytes."""
    for read_range in ranges:
        length -= read_range.length
        yield read_range
    if length:
        raise Corrupted(f"content {content} ends {length} bytes before its file does")
