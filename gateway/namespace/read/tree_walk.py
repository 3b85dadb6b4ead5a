"""The tree walk of all listings: from a given key on, in byte order, over live entries or over all. Synchronous.

**Theory of operation.** A walk has two states. After `Walk.begin` it *seeks* (`_seek` is set): it descends the
directories on the path to the first key. Then it *reads*: `_frames` is a stack with one frame for each directory from
the prefix's directory to the current one. A frame has the rows that were fetched and not emitted yet, and the name at
which the next range begins. Only `begin` and `turn` change this state. The walk has ended when there is neither a seek
nor a frame.

A walk reads no rows that it does not return:
- live listings read the range of the entries' key in which `dead` is 0, and a directory without live entries is dead;
- keys of one common prefix are skipped by continuing at the successor of the prefix;
- small adjacent directories are fetched together, level by level, as many as the turn may still return.

`Walk.turn` does a bounded amount of work, counted in queries and rows, and can be called again. The walk keeps its
position between turns, so all turns must read one snapshot. Its memory is bounded: one path, a few numbers for each
directory on it, and about `HELD_ROWS` rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from gateway.namespace.keys import SLASH, common_prefix, directory_of, key_after, split, successor
from gateway.namespace.read.lookups import DESCENT_LEVELS, Reads, find_directories
from gateway.namespace.read.walk_state import CountedReads, Frame, Row, Seek, Table

SLICE = 1024
"""About how many items one turn reads without yielding to the event loop. A page of S3's usual size is one turn."""
QUERIES = 192
"""About how many queries one turn makes: a few milliseconds. Only deep or scattered trees need this many for a page."""
HELD_ROWS = 8 * SLICE
"""About how many rows a walk holds for the directories above the current one. It drops others and reads them again."""
SEEK_LEVELS = DESCENT_LEVELS
"""Directories that the walk descends with one query. That many count as `SEEK_QUERIES`, fewer in proportion."""
SEEK_QUERIES = 32
PAGE_BYTES = 2 << 20
"""A page ends early once its keys and prefixes have this many bytes. A thousand keys of S3 have fewer; only paths that
were made by renaming directories are longer."""
AHEAD = 256
"""How many adjacent directories are considered for fetching small ones together."""
MOST_AHEAD = 512
"""A turn ends after this many rows of small directories: they cost several times as much as rows of one directory."""
SMALL = 64
"""The most entries of a directory that is fetched together with others."""
LEVELS = 16
"""How far down small directories are fetched ahead."""
FIRST_BATCH = 16
"""How many rows are fetched at first if a delimiter may roll all of them up."""

EmitRows = Callable[[bytes, list[Row], int], tuple[int, int]]
"""Called with (path, rows that are not directories, room). Adds items for these rows to the page, at most *room*.
Returns (rows used, items added)."""
EmitPrefixes = Callable[[list[bytes]], None]
"""Called with common prefixes to add to the page."""


def _after_name(name: bytes) -> bytes:
    """Return the least name that may follow *name*. Nothing follows a directory `a/` before `a0`, the byte after the
    slash: no other name in its parent begins with `a/`."""
    return name[:-1] + b"0" if name.endswith(b"/") else name + b"\0"


class Walk:
    """A walk over the keys below *root* that begin with *prefix*, rolled up by *delimiter*."""

    def __init__(self, reads: Reads, table: Table, root: int, prefix: bytes, delimiter: bytes) -> None:
        self._reads = CountedReads(reads)
        self._table = table
        self._root = root
        self._prefix = prefix
        self._delimiter = delimiter
        self._ends_at_slash = delimiter in (b"", SLASH)
        self._ahead: dict[int, list[Row] | None] = {}
        """The rows of small directories, fetched before the walk enters them; None for one that is not to be fetched
        ahead."""
        self._ahead_held = 0
        """Rows of `_ahead`."""
        self._fetched_ahead = 0
        """Rows that were added to `_ahead` in this turn."""
        self._path = bytearray()
        """The path of the deepest frame."""
        self._frames: list[Frame] = []
        self._held = 0
        """Rows of all frames."""
        self._first_held = 0
        """The index in `_frames` of the first frame that may hold rows."""
        self._seek: Seek | None = None

    def first(self, after: bytes) -> bytes | None:
        """Return the least key after *after* that may be listed; None if there is none. A common prefix is listed only
        if it is itself greater than *after*."""
        if after < self._prefix:
            return self._prefix
        if not after.startswith(self._prefix):
            return None
        rolled = common_prefix(after, self._prefix, self._delimiter)
        return successor(rolled) if rolled is not None else key_after(after) if after else b""

    def begin(self, low: bytes) -> None:
        """Continue at *low*, regardless of the current position."""
        self._frames, self._held, self._first_held = [], 0, 0
        self._path.clear()
        self._ahead, self._ahead_held = {}, 0
        self._seek = None
        if low.startswith(self._prefix):
            base_names = split(directory_of(self._prefix))[:-1]
            self._seek = Seek(low, split(low)[:-1], len(base_names), self._root)
            if not base_names:
                self._enter_base(self._root)

    def turn(self, room: int, emit_rows: EmitRows, emit_prefixes: EmitPrefixes) -> bool:
        """Emit the next items, at most *room*, until the turn's work is used up. Returns whether there may be more.

        If it returns True after fewer than *room* items, the turn's work was used up, or *emit_rows* reported that
        nothing more fits."""
        last = self._reads.count + QUERIES
        self._fetched_ahead = 0
        while self._seek is not None and self._reads.count < last:
            self._descend(self._seek)
        while self._frames:
            # What was fetched ahead is emitted first: the next turn would have to keep it.
            used_up = self._reads.count >= last or (self._fetched_ahead >= MOST_AHEAD and not self._ahead)
            if room <= 0 or used_up:
                return True
            frame = self._frames[-1]
            if frame.at < len(frame.rows):
                room = self._emit_held_rows(frame, room, emit_rows, emit_prefixes)
            elif frame.more:
                room -= self._fetch(frame, room, emit_prefixes)
            else:
                self._pop(frame)
        return self._seek is not None

    # --- frames ---

    def _push(self, frame: Frame) -> None:
        """Enter a directory, whose path the walk's path is already. If too many rows are held, those of the frames
        closest to the root are dropped, to be read again later."""
        frames = self._frames
        while self._held > HELD_ROWS and self._first_held < len(frames):
            upper = frames[self._first_held]
            if upper.at < len(upper.rows):
                upper.low, upper.more = bytes(upper.rows[upper.at][0]), True
            self._set_rows(upper, [])
            self._first_held += 1
        frames.append(frame)
        self._held += len(frame.rows)

    def _pop(self, frame: Frame) -> None:
        self._set_rows(frame, [])
        frames = self._frames
        frames.pop()
        self._first_held = min(self._first_held, max(0, len(frames) - 1))
        del self._path[frames[-1].end if frames else 0 :]

    def _set_rows(self, frame: Frame, rows: list[Row]) -> None:
        """Replace the fetched rows of a frame."""
        self._held += len(rows) - len(frame.rows)
        frame.rows, frame.at = rows, 0

    # --- seeking ---

    def _enter_base(self, node: int) -> None:
        """Push the first frame: the directory in which the prefix ends."""
        base = directory_of(self._prefix)
        self._path += base
        batch = SLICE if self._ends_at_slash else FIRST_BATCH
        assert self._seek is not None
        self._push(Frame(node, len(base), b"", successor(self._prefix[len(base) :]), batch))

    def _descend(self, seek: Seek) -> None:
        """Descend the next directories on the path to the first key. After the last one, the seek ends."""
        names = seek.names[seek.at : seek.at + SEEK_LEVELS]
        rolled = seek.low.find(self._delimiter, len(self._prefix)) if self._delimiter else -1
        found = self._nodes(seek.node, names)
        for name, node in zip(names, found, strict=False):
            end = seek.end + len(name)
            if seek.at >= seek.base_depth:
                if 0 <= rolled <= end - len(self._delimiter):
                    return self._end_seek(seek)  # a common prefix covers everything below
                self._frames[-1].low = _after_name(name)
                self._path += name
                batch = SLICE if self._ends_at_slash else FIRST_BATCH
                self._push(Frame(node, end, b"", None, batch))
            elif seek.at == seek.base_depth - 1:
                self._enter_base(node)
            seek.at, seek.node, seek.end = seek.at + 1, node, end
        if len(found) < len(names) or seek.at == len(seek.names):
            self._end_seek(seek)
        return None

    def _end_seek(self, seek: Seek) -> None:
        if self._frames:
            self._frames[-1].low = seek.low[seek.end :]
        self._seek = None

    def _nodes(self, node: int, names: list[bytes]) -> list[int]:
        """Return the directories of these names, each in the one before, up to the first that does not exist."""
        self._reads.count += SEEK_QUERIES * len(names) // SEEK_LEVELS
        return find_directories(self._reads, node, names, self._table.dead)

    def _fetch(self, frame: Frame, room: int, emit_prefixes: EmitPrefixes) -> int:
        """Fetch the next rows of a directory with the cheapest statement. Returns how many items were emitted at
        once."""
        most = min(frame.batch, self._items_max(frame, room), SLICE)
        place = (self._reads, frame.node, frame.low, frame.high, most)
        counts = self._reads.query(f"SELECT d.subdirs, d.{self._table.count} FROM dir d WHERE d.id = ?", (frame.node,))
        subdirs, entries = counts[0]
        frame.batch = min(frame.batch * 4, SLICE)
        if self._delimiter == SLASH and subdirs * 8 > entries * 7:  # nearly all are directories
            names = self._table.directories(*place)
            if names is not None:
                return self._roll_up(frame, names, most, emit_prefixes)
        self._set_rows(frame, self._table.entries(*place) if subdirs else self._table.only_files(*place))
        frame.more = len(frame.rows) == most
        if frame.more:
            frame.low = _after_name(frame.rows[-1][0])
        return 0

    @staticmethod
    def _items_max(frame: Frame, room: int) -> int:
        """Return how many items of a directory may be emitted at once."""
        return min(room, max(1, PAGE_BYTES // (frame.end + 1)))

    def _roll_up(self, frame: Frame, names: list[bytes], most: int, emit_prefixes: EmitPrefixes) -> int:
        """Emit directories as common prefixes without entering them."""
        path = bytes(self._path)
        emit_prefixes([path + name for name in names] if path else names)
        self._set_rows(frame, [])
        frame.more = len(names) == most
        if frame.more:
            frame.low = _after_name(names[-1])
        return len(names)

    # --- emitting ---

    def _emit_held_rows(self, frame: Frame, room: int, emit_rows: EmitRows, emit_prefixes: EmitPrefixes) -> int:
        """Emit the fetched rows until one is a directory to enter, or rows or room are used up. Returns the room
        left."""
        path, rows = bytes(self._path), frame.rows
        delimiter, begins = self._delimiter, len(self._prefix)
        while frame.at < len(rows) and room > 0:
            row = rows[frame.at]
            is_directory = row[1] is None
            if not is_directory and self._ends_at_slash:
                used, items = emit_rows(
                    path, self._rows_of_kind(frame, self._items_max(frame, room), directories=False), room
                )
                frame.at += used
                room -= items
                continue
            if is_directory and delimiter == SLASH:
                beside = self._rows_of_kind(frame, self._items_max(frame, room), directories=True)
                emit_prefixes([path + each[0] for each in beside] if path else [each[0] for each in beside])
                frame.at += len(beside)
                room -= len(beside)
                continue
            key = path + row[0]
            cut = key.find(delimiter, begins) if delimiter else -1
            if cut >= 0:
                emit_prefixes([key[: cut + len(delimiter)]])
                room -= 1
                self._step_over(frame, key[: cut + len(delimiter)])
            elif is_directory:
                frame.at += 1
                self._path += row[0]
                self._push(self._below(frame, row[-2], room))
                return room
            else:
                used, items = emit_rows(path, [row], room)
                frame.at += used
                room -= items
        return room

    @staticmethod
    def _rows_of_kind(frame: Frame, room: int, *, directories: bool) -> list[Row]:
        """Return the next rows of *frame* up to the first of the other kind: directories or not. At most *room*."""
        rows, at = frame.rows, frame.at
        end, last = at, min(at + room, len(rows))
        while end < last and (rows[end][1] is None) == directories:
            end += 1
        return rows[at:end] if at or end < len(rows) else rows

    def _step_over(self, frame: Frame, rolled: bytes) -> None:
        """Skip all names that begin with the common prefix *rolled*."""
        beginning = rolled[frame.end :]
        rows = frame.rows
        first = frame.at
        frame.at += 1
        if beginning == rows[first][0] and beginning.endswith(b"/"):
            return  # a directory: no other name begins with its own
        while frame.at < len(rows) and rows[frame.at][0].startswith(beginning):
            frame.at += 1
        if frame.at == len(rows) and frame.more and rows[-1][0].startswith(beginning):
            following = successor(beginning)
            if following is None or (frame.high is not None and following >= frame.high):
                frame.more = False
            else:
                frame.low = max(frame.low, following)
            if frame.at - first > 1:
                frame.batch = FIRST_BATCH

    def _below(self, frame: Frame, node: int, room: int) -> Frame:
        if node not in self._ahead and self._ahead_held <= HELD_ROWS:
            beside = [row[-2] for row in frame.rows[frame.at : frame.at + min(room, AHEAD)] if row[1] is None]
            self._fetch_ahead([node, *beside], room)
        below = Frame(node, len(self._path), b"", None, SLICE if self._ends_at_slash else FIRST_BATCH)
        rows = self._ahead.pop(node, None)
        if rows is not None:
            below.rows, below.more = rows, False
            self._ahead_held -= len(rows)
        return below

    def _fetch_ahead(self, nodes: list[int], room: int) -> None:
        """Fetch the rows of the small ones among *nodes*, and of the small directories in these, level by level, up to
        *room* rows."""
        for _ in range(LEVELS):
            chosen = self._small(nodes, room)
            if not chosen or self._fetched_ahead >= 2 * MOST_AHEAD:
                return
            found = self._table.children(self._reads, json.dumps(chosen))
            nodes = []
            for node in chosen:
                rows = found.get(node, [])
                self._ahead[node] = rows
                self._fetched_ahead += len(rows)
                self._ahead_held += len(rows)
                nodes.extend(row[-2] for row in rows if row[1] is None)
            if not nodes:
                return

    def _small(self, nodes: list[int], room: int) -> list[int]:
        """Return the first of *nodes* that are small, until they have about *room* rows, or one is not small. The first
        one that is left out is not to be fetched ahead."""
        sql = f"SELECT d.id, d.{self._table.count} FROM json_each(?) j CROSS JOIN dir d ON d.id = j.value"
        counts: dict[int, int] = dict(self._reads.query(sql, (json.dumps(nodes[:AHEAD]),)))
        most = SMALL if self._ends_at_slash else FIRST_BATCH
        chosen: list[int] = []
        for node in nodes[:AHEAD]:
            count = counts.get(node, 0)
            if count > most or room <= 0:
                self._ahead[node] = None
                break
            chosen.append(node)
            room -= count
        return chosen
