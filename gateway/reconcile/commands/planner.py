"""The command of the planner."""

from __future__ import annotations

from gateway.blocks.commands.block_copies import require_copies_feature
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.work import PlanAdvanced, WorkNoted
from gateway.journal.tables import BLOCK, PLAN, SITE, WORK


@command(80, weight=lambda request: len(request.blocks))
class AdvancePlan(Command[bool]):
    """Sent by the planner: it has examined the blocks after *before* and up to *after*, and *blocks* of them are not
    where they should be. *walks* and *again_ns*: see `Plan`. Returns False if the plan is not as it was read."""

    fingerprint: bytes
    before: bytes
    after: bytes
    walks: int
    again_ns: int
    blocks: tuple[bytes, ...] = ()
    due_ns: int = 0


def advance_plan(request: AdvancePlan, tx: Tx) -> bool:
    tx.prefetch([(PLAN, (0,)), (SITE, (0,)), *((BLOCK, (block,)) for block in request.blocks)])
    tx.prefetch([(WORK, (block,)) for block in request.blocks])
    plan = tx.get(PLAN, (0,))
    if request.before and (plan is None or plan.fingerprint != request.fingerprint or plan.after != request.before):
        return False
    require_copies_feature(tx)
    alive = tuple(each for each in request.blocks if (block := tx.get(BLOCK, (each,))) is not None and not block.died)
    if alive:
        tx.emit(WorkNoted(alive, request.due_ns, tx.at_ns))
    tx.emit(PlanAdvanced(request.fingerprint, request.after, request.walks, request.again_ns))
    return True
