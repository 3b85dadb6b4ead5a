"""Commands of blocks: what the workers that release content, sweep and compact send to the committer.

All of them are idempotent: what is done already is skipped. So two workers, or one that starts again, do no harm. The
functions work on rows in memory only.
"""

from gateway.blocks.commands.block_copies import NoteStrays, SetBlockBackends, note_strays, set_block_backends
from gateway.blocks.commands.inline_values import DropInlineValues, drop_inline_values
from gateway.blocks.commands.release_content import ReleaseContent, release_content
from gateway.blocks.commands.rewrite import (
    EndRewrite,
    MoveRewritten,
    PlaceRewrite,
    RewritePack,
    end_rewrite,
    move_rewritten,
    place_rewrite,
    rewrite_pack,
)
from gateway.blocks.commands.sweep import (
    ForgetBlocks,
    ForgetSession,
    SweepSession,
    forget_blocks,
    forget_session,
    sweep_session,
)
from gateway.journal.commands import CommandTable

COMMANDS: CommandTable = {
    ReleaseContent: release_content,
    RewritePack: rewrite_pack,
    PlaceRewrite: place_rewrite,
    MoveRewritten: move_rewritten,
    EndRewrite: end_rewrite,
    ForgetBlocks: forget_blocks,
    SweepSession: sweep_session,
    ForgetSession: forget_session,
    SetBlockBackends: set_block_backends,
    NoteStrays: note_strays,
    DropInlineValues: drop_inline_values,
}
"""The commands of this package, for the committer."""
