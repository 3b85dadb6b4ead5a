"""The command that releases the content of deleted files, parts and uploads."""

from __future__ import annotations

from gateway.journal.columns import unpack_extents, unpack_pieces
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.bytes import (
    ContentReleased,
)
from gateway.journal.rows import RowKey
from gateway.journal.tables import (
    BLOCK,
    BODY,
    MEMBER,
    RELEASE_QUEUE,
    RUN,
    QueuedRelease,
    Shape,
)


@command(60, frees=True, weight=lambda command: sum(most for _, most in command.items))
class ReleaseContent(Command[int]):
    """Lower the counts of what queued releases hold. Each item is (id in the queue, most pieces of a body to release).

    Returns how many of the items were in the queue."""

    items: tuple[tuple[int, int], ...]


def release_content(command: ReleaseContent, tx: Tx) -> int:
    most_pieces = dict(command.items)
    tx.prefetch([(RELEASE_QUEUE, (queued,)) for queued in most_pieces])
    rows = [row for queued in most_pieces if (row := tx.get(RELEASE_QUEUE, (queued,))) is not None]
    releases = [row for row in rows if row.shape != Shape.NONE]
    _prefetch_contents(tx, releases, most_pieces)
    if releases:
        tx.emit(ContentReleased(tuple((row.id, max(1, most_pieces[row.id])) for row in releases)))
    return len(releases)


def _prefetch_contents(tx: Tx, releases: list[QueuedRelease], most_pieces: dict[int, int]) -> None:
    """Load the rows that applying the record touches, one level at a time instead of one row at a time."""
    tx.prefetch([(BODY if row.shape == Shape.BODY else RUN, (row.content,)) for row in releases])
    runs: list[int] = []
    for row in releases:
        if row.shape == Shape.RUN:
            runs.append(row.content)
        elif (body := tx.get(BODY, (row.content,))) is not None and body.refs == 1:
            upto = row.cursor + max(1, most_pieces[row.id])
            runs.extend(piece.run for piece in unpack_pieces(body.pieces)[row.cursor : upto])
    tx.prefetch([(RUN, (run,)) for run in runs])
    keys: list[RowKey] = []
    for run_id in dict.fromkeys(runs):
        run = tx.get(RUN, (run_id,))
        if run is not None and run.refs <= runs.count(run_id):
            for extent in unpack_extents(run.extents):
                keys += [(BLOCK, (extent.block,)), (MEMBER, (extent.block, run_id))]
    tx.prefetch(keys)
