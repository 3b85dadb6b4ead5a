"""The tree: what commands do to buckets, keys and names, and how readers look them up and list them.

S3 and POSIX share one tree (docs/architecture.md): a key is cut behind each slash, a directory's name carries its
slash, and a directory counts its live entries, so that a listing never meets what is dead.
"""

from __future__ import annotations

from gateway.journal.commands import CommandTable
from gateway.namespace import buckets, completing, copies, names, nodes, objects, preparing, renaming, uploads

COMMANDS: CommandTable = {
    **buckets.HANDLERS,
    **objects.HANDLERS,
    **copies.HANDLERS,
    **uploads.HANDLERS,
    **completing.HANDLERS,
    **preparing.HANDLERS,
    **names.HANDLERS,
    **renaming.HANDLERS,
    **nodes.HANDLERS,
}
"""Every command of this room and the function that runs it, for the committer."""
