"""What the records of copies do: which set holds a block, and the rows of blocks that are not as they should be. Pure.

A block whose copies are as they should be has no row. The column `strays` lists the backends that may have bytes of the
block and that its set does not name: a copy that is being made, or one that was dropped and is not deleted yet. So
whoever deletes a block altogether knows every backend that may have bytes of it, and nothing that a kill interrupted is
forgotten.
"""

from __future__ import annotations

from typing import assert_never

from gateway.journal.columns import pack, unpack
from gateway.journal.records.work import (
    BackendLost,
    BlockBackendsSet,
    CopiesCleared,
    CopiesPlaced,
    CopySuspected,
    PlanAdvanced,
    WorkBegun,
    WorkDone,
    WorkFailed,
    WorkNoted,
    WorkRecord,
)
from gateway.journal.rows import Rows, require
from gateway.journal.tables import BACKEND, BLOCK, PLAN, REWRITE, WORK, Plan, Work, WorkState


def apply_work(record: WorkRecord, rows: Rows, number: int) -> None:
    match record:
        case BlockBackendsSet():
            _block_backends_set(record, rows, number)
        case WorkNoted():
            _work_noted(record, rows)
        case WorkBegun():
            _work_begun(record, rows, number)
        case WorkDone():
            _work_done(record, rows)
        case WorkFailed():
            _work_failed(record, rows)
        case CopySuspected():
            _copy_suspected(record, rows)
        case CopiesCleared():
            _copies_cleared(record, rows)
        case PlanAdvanced():
            _plan_advanced(record, rows)
        case BackendLost():
            _backend_lost(record, rows)
        case CopiesPlaced():
            _copies_placed(record, rows)
        case _:
            assert_never(record)


def _block_backends_set(record: BlockBackendsSet, rows: Rows, number: int) -> None:
    rows.put(BLOCK, require(rows, BLOCK, (record.id,))._replace(backends=record.backends))
    work = rows.get(WORK, (record.id,))
    if work is not None:
        strays = pack_ids(record.strays)
        work = work._replace(state=WorkState.WAITING, attempts=0, word="", strays=strays, strays_number=number)
        rows.put(WORK, work._replace(placed_ns=0))  # a wait for another set of copies does not count for this one


def _work_noted(record: WorkNoted, rows: Rows) -> None:
    for block in record.ids:
        work = rows.get(WORK, (block,))
        if work is None:
            rows.put(WORK, Work(block, record.due_ns, record.at_ns, WorkState.WAITING, 0, "", b"", b"", 0))
        else:
            rows.put(WORK, work._replace(due_ns=min(work.due_ns, record.due_ns)))


def _work_begun(record: WorkBegun, rows: Rows, number: int) -> None:
    work = require(rows, WORK, (record.id,))
    strays = {*unpack_ids(work.strays), *record.strays}
    rows.put(WORK, work._replace(strays=pack_ids(strays), strays_number=number))


def _work_done(record: WorkDone, rows: Rows) -> None:
    for block in record.ids:
        rows.drop(WORK, (block,))


def _work_failed(record: WorkFailed, rows: Rows) -> None:
    work = require(rows, WORK, (record.id,))
    rows.put(WORK, work._replace(due_ns=record.due_ns, state=record.state, attempts=record.attempts, word=record.word))


def _copy_suspected(record: CopySuspected, rows: Rows) -> None:
    rewrite = rows.get(REWRITE, (record.id,))
    if rewrite is not None:  # a copy that is made again was not there during the wait
        rows.put(REWRITE, rewrite._replace(placed_ns=0))
    work = rows.get(WORK, (record.id,))
    if work is None:
        work = Work(record.id, record.at_ns, record.at_ns, WorkState.WAITING, 0, "", b"", b"", 0)
    suspects = {*unpack_ids(work.suspects), record.backend}
    due_ns = min(work.due_ns, record.at_ns)
    rows.put(WORK, work._replace(due_ns=due_ns, suspects=pack_ids(suspects), word=record.word, placed_ns=0))


def _copies_cleared(record: CopiesCleared, rows: Rows) -> None:
    work = require(rows, WORK, (record.id,))
    left = [each for each in unpack_ids(work.suspects) if each not in record.backends]
    rows.put(WORK, work._replace(state=WorkState.WAITING, attempts=0, word="", suspects=pack_ids(left)))


def _plan_advanced(record: PlanAdvanced, rows: Rows) -> None:
    rows.put(PLAN, Plan(0, record.fingerprint, record.after, record.walks, record.again_ns))


def _copies_placed(record: CopiesPlaced, rows: Rows) -> None:
    work = require(rows, WORK, (record.id,))
    rows.put(WORK, work._replace(placed_ns=record.placed_ns, due_ns=record.due_ns))


def _backend_lost(record: BackendLost, rows: Rows) -> None:
    rows.put(BACKEND, require(rows, BACKEND, (record.name,))._replace(lost=1))


def unpack_ids(packed: bytes) -> tuple[int, ...]:
    """Decode a packed list of backend ids."""
    return unpack(packed) or ()


def pack_ids(ids: tuple[int, ...] | set[int] | list[int]) -> bytes:
    """Encode backend ids for a packed column."""
    return pack(sorted(ids)) if ids else b""
