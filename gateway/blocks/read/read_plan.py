"""From a file's content and a range to the stretches of extents that hold it. Pure: rows come as values or callables.

Runs are looked up one after the other as the reading gets there, so that memory follows neither the object's size nor
the number of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from gateway.blocks.types import ReadRange
from gateway.errors import Corrupted
from gateway.journal.columns import Extent
from gateway.journal.tables import Shape

ExtentsOf = Callable[[int], Sequence[Extent]]
"""A run's extents by its id. Raises `Corrupted` where there is no such run."""
PiecesOf = Callable[[int], Sequence[tuple[int, int, int]]]
"""A body's pieces by its id: (run, offset, length). Raises `Corrupted` where there is no such body."""


def plan_read(
    shape: int, content: int, start: int, length: int, extents_of: ExtentsOf, pieces_of: PiecesOf
) -> Iterator[ReadRange]:
    """What to read for *length* plain bytes from *start* on of a file's content (its `shape` and `content`).

    Raises `Corrupted`, when it gets there, if the content holds fewer bytes."""
    match shape:
        case Shape.NONE:
            found: Iterator[ReadRange] = iter(())
        case Shape.RUN:
            found = plan_run(content, extents_of(content), start, length)
        case _:
            found = plan_pieces(pieces_of(content), start, length, extents_of)
    yield from _checked(found, length, content)


def plan_run(run: int, extents: Iterable[Extent], start: int, length: int) -> Iterator[ReadRange]:
    """The stretches of one run's extents."""
    at, end = 0, start + length
    for index, extent in enumerate(extents):
        if at >= end:
            return
        begins, ends = max(start, at), min(end, at + extent.length)
        if begins < ends:
            yield ReadRange(extent, begins - at, ends - begins, run, index)
        at += extent.length


def plan_pieces(
    pieces: Iterable[tuple[int, int, int]], start: int, length: int, extents_of: ExtentsOf
) -> Iterator[ReadRange]:
    """The stretches of a body's pieces, each (run, offset, length)."""
    at, end = 0, start + length
    for run, offset, size in pieces:
        if at >= end:
            return
        begins, ends = max(start, at), min(end, at + size)
        if begins < ends:
            yield from plan_run(run, extents_of(run), offset + begins - at, ends - begins)
        at += size


def _checked(found: Iterator[ReadRange], length: int, content: int) -> Iterator[ReadRange]:
    for want in found:
        length -= want.length
        yield want
    if length:
        raise Corrupted(f"content {content} ends {length} bytes before its file does")
