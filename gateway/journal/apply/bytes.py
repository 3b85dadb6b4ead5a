"""What the records of runs, bodies and blocks do. Pure.

Reference counts: a file or a part holds one count on its run or body. A body holds one count on the run of each of its
pieces. A run has extents, and these keep their blocks alive (rows of `member`). Released content is in the release
queue until `ContentReleased` lowers its counts, a bounded slice at a time. A block whose last extent is removed is
dead; its row stores the number of the record that removed it. A new pack of the compactor is alive without members
while its row in `rewrite` exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import assert_never

from gateway.journal.apply.counts import count_content
from gateway.journal.apply.work import pack_ids
from gateway.journal.columns import Extent, Piece, pack, pack_list, unpack_extents, unpack_pieces
from gateway.journal.records.bytes import (
    BlocksForgotten,
    BodyMade,
    BytesRecord,
    ContentReleased,
    ExtentsMoved,
    NewBlock,
    PackRewritten,
    RewriteEnded,
    RewritePlaced,
    RunMade,
)
from gateway.journal.rows import Rows, require
from gateway.journal.tables import (
    BLOCK,
    BODY,
    MEMBER,
    RELEASE_QUEUE,
    REWRITE,
    RUN,
    WORK,
    Block,
    Body,
    Member,
    QueuedRelease,
    Rewrite,
    Run,
    Shape,
    Work,
)


def apply_bytes(record: BytesRecord, rows: Rows, number: int) -> None:
    match record:
        case RunMade():
            _run_made(record, rows, number)
        case ContentReleased():
            _content_released(record, rows, number)
        case BodyMade():
            _body_made(record, rows)
        case ExtentsMoved():
            _extents_moved(record, rows, number)
        case BlocksForgotten():
            _blocks_forgotten(record, rows)
        case PackRewritten():
            _pack_rewritten(record, rows, number)
        case RewritePlaced():
            row = require(rows, REWRITE, (record.block,))
            rows.put(REWRITE, row._replace(placed_ns=record.placed_ns, backends=record.backends))
        case RewriteEnded():
            _rewrite_ended(record, rows, number)
        case _:
            assert_never(record)


def _run_made(record: RunMade, rows: Rows, number: int) -> None:
    size = sum(extent.length for extent in record.extents)
    rows.put(RUN, Run(record.id, 0, size, record.policy, pack_list(record.extents)))
    _add_extents(rows, record.id, record.extents, record.blocks, record.policy, number, new=True)


def _add_extents(
    rows: Rows,
    run: int,
    extents: Iterable[Extent],
    blocks: Sequence[NewBlock],
    policy: int,
    number: int,
    *,
    new: bool = False,
) -> None:
    """Add extents of *run* to the rows of the blocks that contain them. A *new* run is not a member of any block yet,
    so no row is looked up for that."""
    new_blocks = {block.id: block for block in blocks}
    lengths: dict[bytes, int] = {}
    for extent in extents:
        lengths[extent.block] = lengths.get(extent.block, 0) + extent.length
    for block_id, length in lengths.items():
        block = rows.get(BLOCK, (block_id,))
        if block is None:
            block = _new_block(rows, new_blocks[block_id], policy, number)
        joins = 1 if new or rows.get(MEMBER, (block_id, run)) is None else 0
        rows.put(
            BLOCK,
            Block(
                block_id, block.ring_key, block.size, block.plain + length, block.live + length, block.members + joins,
                block.crc32c, block.backends, block.policy, 0,
            ),
        )  # fmt: skip
        rows.put(MEMBER, Member(block_id, run))


def _new_block(rows: Rows, new: NewBlock, policy: int, number: int) -> Block:
    """Return the row of a new block without members, which the caller puts. Puts a row in `work` if the block is due
    for the mover."""
    if new.due_ns:
        strays = pack_ids(new.strays)
        rows.put(WORK, Work(new.id, new.due_ns, new.due_ns, 0, 0, "", b"", strays, number if strays else 0))
    return Block(new.id, new.ring_key, new.size, 0, 0, 0, new.crc32c, new.backends, policy, 0)


def _pack_rewritten(record: PackRewritten, rows: Rows, number: int) -> None:
    rows.put(BLOCK, _new_block(rows, record.block, record.policy, number))
    plain = sum(each.after.length for each in record.copies)
    rows.put(
        REWRITE,
        Rewrite(record.block.id, 0, record.block.backends, plain, pack(list(record.sources)), pack_list(record.copies)),
    )


def _rewrite_ended(record: RewriteEnded, rows: Rows, number: int) -> None:
    """Copies that were not moved to the new pack count as dead bytes in it, like extents that are removed later."""
    row = require(rows, REWRITE, (record.block,))
    rows.drop(REWRITE, (record.block,))
    block = rows.get(BLOCK, (record.block,))
    if block is not None and not block.died:
        died = 0 if block.members else number
        rows.put(BLOCK, block._replace(plain=max(block.plain, row.plain), died=died))


def _remove_extents(
    rows: Rows, run: int, extents: Iterable[Extent], number: int, member_of: Iterable[bytes] = ()
) -> None:
    """Remove extents of *run* from the rows of the blocks that contained them. The run has other extents in the blocks
    *member_of*, so it remains a member of these."""
    remaining = set(member_of)
    lengths: dict[bytes, int] = {}
    for extent in extents:
        lengths[extent.block] = lengths.get(extent.block, 0) + extent.length
    for block_id, length in lengths.items():
        block = require(rows, BLOCK, (block_id,))
        members = block.members
        if block_id not in remaining:
            rows.drop(MEMBER, (block_id, run))
            members -= 1
        rows.put(
            BLOCK,
            block._replace(live=block.live - length, members=members, died=number if members == 0 else 0),
        )


def _extents_moved(record: ExtentsMoved, rows: Rows, number: int) -> None:
    run = require(rows, RUN, (record.run,))
    extents = unpack_extents(run.extents)
    moved = [extents[index] for index in record.indexes]
    for index, extent in zip(record.indexes, record.extents, strict=True):
        extents[index] = extent
    rows.put(RUN, run._replace(extents=pack_list(extents)))
    _add_extents(rows, run.id, record.extents, record.blocks, run.policy, number)
    _remove_extents(rows, run.id, moved, number, member_of=[extent.block for extent in extents])


def _body_made(record: BodyMade, rows: Rows) -> None:
    made: list[Piece] = []
    for shape, content, offset, length in record.slices:
        made.extend(slice_content(rows, shape, content, offset, length))
    for run, count in Counter(piece.run for piece in made).items():
        count_content(rows, Shape.RUN, run, count)
    rows.put(BODY, Body(record.id, 0, sum(piece.length for piece in made), pack_list(made), b""))


def slice_content(rows: Rows, shape: int, content: int, offset: int, length: int) -> list[Piece]:
    """Return the pieces that make up *length* plain bytes of a run or body from *offset* on."""
    if shape == Shape.RUN:
        return [Piece(content, offset, length)] if length else []
    return slice_pieces(unpack_pieces(require(rows, BODY, (content,)).pieces), offset, length)


def slice_pieces(whole: Iterable[Piece], offset: int, length: int) -> list[Piece]:
    """Return the pieces that make up *length* plain bytes from *offset* on of a body whose pieces are *whole*."""
    pieces: list[Piece] = []
    at = 0
    for piece in whole:
        start = max(offset, at)
        end = min(offset + length, at + piece.length)
        if start < end:
            pieces.append(Piece(piece.run, piece.offset + start - at, end - start))
        at += piece.length
        if at >= offset + length:
            break
    return pieces


def _content_released(record: ContentReleased, rows: Rows, number: int) -> None:
    for queued_id, most in record.items:
        queued = require(rows, RELEASE_QUEUE, (queued_id,))
        if queued.shape == Shape.RUN:
            _release_run(rows, queued.content, number)
            rows.drop(RELEASE_QUEUE, (queued_id,))
        else:
            _release_body(rows, queued, most, number)


def _release_run(rows: Rows, run_id: int, number: int, by: int = 1) -> None:
    run = require(rows, RUN, (run_id,))
    if run.refs > by:
        rows.put(RUN, run._replace(refs=run.refs - by))
        return
    _remove_extents(rows, run_id, unpack_extents(run.extents), number)
    rows.drop(RUN, (run_id,))


def _release_body(rows: Rows, queued: QueuedRelease, most: int, number: int) -> None:
    body = require(rows, BODY, (queued.content,))
    if body.refs > 1:
        rows.put(BODY, body._replace(refs=body.refs - 1))
        rows.drop(RELEASE_QUEUE, (queued.id,))
        return
    all_pieces = unpack_pieces(body.pieces)
    upto = min(len(all_pieces), queued.cursor + most)
    for run, count in Counter(piece.run for piece in all_pieces[queued.cursor : upto]).items():
        _release_run(rows, run, number, count)
    if upto == len(all_pieces):
        rows.drop(BODY, (body.id,))
        rows.drop(RELEASE_QUEUE, (queued.id,))
    else:
        rows.put(RELEASE_QUEUE, queued._replace(cursor=upto))


def _blocks_forgotten(record: BlocksForgotten, rows: Rows) -> None:
    for block_id in record.ids:
        rows.drop(BLOCK, (block_id,))
        rows.drop(WORK, (block_id,))
