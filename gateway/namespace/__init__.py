"""The tree of buckets, keys and names: `commands/` change it, `read/` looks up and lists.

S3 and POSIX share one tree (docs/architecture.md). A key is split after each slash, and a directory's name includes its
slash. A directory counts its live entries, so a listing skips directories without any.
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
"""Each command of this package and the function with which the committer runs it."""
