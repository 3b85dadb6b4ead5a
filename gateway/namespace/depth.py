"""The limit on the depth of directory trees. Works on rows in memory only.

A key that S3 makes has at most 1,024 directories, each of at least one byte, and no other way makes deeper ones: a new
directory is checked by its depth, and a directory that moves further down by its depth and its height. Trees that are
deeper, from before there was a limit, can be read, removed, and moved where they are no deeper.

A directory's height (`Dir.height`) is an upper bound, kept for tall ones only: no tree of fewer than `LOW` levels costs
a record. Whoever makes or moves a directory raises what lies above (`note_height`), so that the bound holds: a
directory is at least one level taller than each directory in it whose height is kept, and one whose height is not kept
is lower than `LOW`.
"""

from __future__ import annotations

from gateway.errors import TooDeep
from gateway.journal.commands import Tx
from gateway.journal.records.tree import DirHeightRaised
from gateway.journal.rows import require
from gateway.journal.tables import DIR, Dir

DEPTH_MAX = 1024
"""The most directories in a path, without the bucket's root."""
LOW = 32
"""The least height that is stored."""
HEIGHT_FEATURE = 7
"""The feature level of the journal that the record of a height needs."""


def height_of(row: Dir) -> int:
    """Return an upper bound of the levels of directories below a directory."""
    return max(row.height, LOW - 1) if row.subdirs else 0


def check_depth(depth: int) -> None:
    """Raise `TooDeep` if a directory *depth* levels below the root is not allowed."""
    if depth > DEPTH_MAX:
        raise TooDeep(f"a directory {depth} levels below its bucket, of at most {DEPTH_MAX}")


def check_move(row: Dir, depth: int, to_depth: int) -> None:
    """Raise `TooDeep` if a directory moves from *depth* down to *to_depth* and its subtree would be too deep there."""
    if to_depth > depth:
        check_depth(to_depth + height_of(row))


def note_height(tx: Tx, node: int, height: int) -> None:
    """Record that directories now exist *height* levels below the directory *node*. The rows of all directories above
    *node* are in memory."""
    row = require(tx.rows, DIR, (node,))
    while row.parent and height < LOW:
        row = require(tx.rows, DIR, (row.parent,))
        height += 1
    if row.parent and row.height < height:
        tx.need_feature(HEIGHT_FEATURE)
        tx.emit(DirHeightRaised(row.id, height))
