"""Commands of the planner and the mover: planning, beginning, settling and postponing work on copies. Rows in memory
only.

A command takes many blocks, and each item is conditional on what the sender read: a block that has changed or died
meanwhile, or whose work is done, is passed over, and its result is False. So two movers at once, or one that starts
again, do no harm.
"""

from gateway.journal.commands import CommandTable
from gateway.reconcile.commands.lost_copies import (
    ClearCopies,
    LoseBackend,
    SuspectCopy,
    clear_copies,
    lose_backend,
    suspect_copy,
)
from gateway.reconcile.commands.mover import (
    Begin,
    BeginWork,
    Drop,
    DropCopies,
    Fail,
    FailWork,
    Finish,
    FinishWork,
    KeepOld,
    KeepOldCopies,
    SetBlockHolders,
    SetHolders,
    begin_work,
    drop_copies,
    fail_work,
    finish_work,
    keep_old_copies,
    set_block_holders,
)
from gateway.reconcile.commands.planner import AdvancePlan, advance_plan

__all__ = [
    "COMMANDS",
    "AdvancePlan",
    "Begin",
    "BeginWork",
    "ClearCopies",
    "Drop",
    "DropCopies",
    "Fail",
    "FailWork",
    "Finish",
    "FinishWork",
    "KeepOld",
    "KeepOldCopies",
    "LoseBackend",
    "SetBlockHolders",
    "SetHolders",
    "SuspectCopy",
]

COMMANDS: CommandTable = {
    AdvancePlan: advance_plan,
    BeginWork: begin_work,
    SetBlockHolders: set_block_holders,
    FinishWork: finish_work,
    FailWork: fail_work,
    SuspectCopy: suspect_copy,
    ClearCopies: clear_copies,
    LoseBackend: lose_backend,
    KeepOldCopies: keep_old_copies,
    DropCopies: drop_copies,
}
"""The commands of this package and the functions that run them, for the committer."""
