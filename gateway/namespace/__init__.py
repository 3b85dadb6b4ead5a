"""The tree: what commands do to buckets, keys and names, and how readers look them up and list them.

S3 and POSIX share one tree (docs/architecture.md): a key is cut behind each slash, a directory's name carries its
slash, and a directory counts its live entries, so that a listing never meets what is dead.
"""

from __future__ import annotations

from gateway.journal.commands import CommandTable
from gateway.namespace.commands import buckets, complete, complete_prepared, names, nodes, objects, rename, uploads
from gateway.namespace.commands import copy as copies

COMMANDS: CommandTable = {
    **buckets.HANDLERS,
    **objects.HANDLERS,
    **copies.HANDLERS,
    **uploads.HANDLERS,
    **complete.HANDLERS,
    **complete_prepared.HANDLERS,
    **names.HANDLERS,
    **rename.HANDLERS,
    **nodes.HANDLERS,
}
"""Every command of this room and the function that runs it, for the committer."""
