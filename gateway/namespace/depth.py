"""How deep a tree may be. Rows in memory only.

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
"""Directories of a path, without the bucket's root."""
LOW = 32
"""Heights from here on are kept."""
HEIGHT_FEATURE = 7
"""The journal's level that records of heights need."""


def height_of(row: Dir) -> int:
    """The most levels of directories that a directory may have below it."""
    return max(row.height, LOW - 1) if row.subdirs else 0


def check_depth(depth: int) -> None:
    """Raises `TooDeep` for a directory so many levels below the root."""
    if depth > DEPTH_MAX:
        raise TooDeep(f"a directory {depth} levels below its bucket, of at most {DEPTH_MAX}")


def check_move(row: Dir, depth: int, to_depth: int) -> None:
    """Raises `TooDeep` for a directory at *depth* that would move down to *to_depth*, and does not fit there."""
    if to_depth > depth:
        check_depth(to_depth + height_of(row))


def note_height(tx: Tx, node: int, height: int) -> None:
    """Directories stand *height* levels below the directory *node* now. The rows of those above it are in memory."""
    row = require(tx.rows, DIR, (node,))
    while row.parent and height < LOW:
        row = require(tx.rows, DIR, (row.parent,))
        height += 1
    if row.parent and row.height < height:
        tx.need_feature(HEIGHT_FEATURE)
        tx.emit(DirHeightRaised(row.id, height))
