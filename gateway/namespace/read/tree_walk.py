"""One walk for every listing: from any key on, in byte order, over what is live or over everything. Synchronous.

`Walk.begin` goes to a key by *seek*: down the directories that stand on its way, and from there on through ranges of
entries. A walk never meets what it does not return:
- live listings walk the part of the entries' key where `dead` is 0, and a directory without live entries is dead;
- what a delimiter rolls up is stepped over by going on at the successor of the common prefix;
- small directories side by side are fetched together, level by level, as many as the turn has room for.

`Walk.turn` does a bounded amount of work, counted in queries and rows, and can be called again. Between two turns the
walk holds its place, so all turns must read one snapshot. What it holds is bounded as well: one path, a few numbers for
each directory on it, and `HELD_ROWS` rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from gateway.namespace.keys import SLASH, common_prefix, directory_of, key_after, split, successor
from gateway.namespace.read.lookups import DESCENT_LEVELS, Reads, find_directories
from gateway.namespace.read.walk_state import CountedReads, Frame, Row, Seek, Table

SLICE = 1024
"""Items of a turn, about: what is read without giving the loop to others. A page of S3's usual size is one turn."""
QUERIES = 192
"""Queries of a turn, about: a few milliseconds. Only deep or scattered trees take so many for a page."""
HELD_ROWS = 8 * SLICE
"""Rows that a walk holds for the directories above the one that it is in, about. Further ones are read again."""
SEEK_LEVELS = DESCENT_LEVELS
"""Directories that the walk descends at once; that counts as `SEEK_QUERIES`."""
SEEK_QUERIES = 32
PAGE_BYTES = 2 << 20
"""A page whose keys and prefixes have so many bytes ends early. S3's keys never have: only paths that were made by
renaming directories do."""
AHEAD = 256
"""Directories of which a slice fetches small ones together, at a time."""
MOST_AHEAD = 512
"""Rows fetched so, behind which a turn ends: they cost several times what rows in a row do."""
SMALL = 64
"""Entries of a directory that is fetched together with others."""
LEVELS = 16
"""How far down small directories are fetched ahead."""
FIRST_BATCH = 16
"""Rows that are fetched at first where a delimiter may roll them all up."""

EmitRows = Callable[[bytes, list[Row], int], tuple[int, int]]
"""(path, rows that are no directories, room): tells what they stand for, as many as there is room for. Answers how many
rows that was, and how many items."""
EmitPrefixes = Callable[[list[bytes]], None]
"""Tells common prefixes."""


def _after_name(name: bytes) -> bytes:
    """Where to go on behind a name: nothing in a directory begins with another directory's name and its slash."""
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
        self._ahead_held = 0
        """Rows of `_ahead`."""
        self._fetched_ahead = 0
        """Rows that were added to `_ahead` in this turn."""
        self._path = bytearray()
        """Of the deepest frame."""
        self._frames: list[Frame] = []
        self._held = 0
        """Rows of all frames."""
        self._emptied = 0
        """The frames before this one hold no rows."""
        self._seek: Seek | None = None

    def first(self, after: bytes) -> bytes | None:
        """The least key that may be told behind *after*; None when there can be none. What is rolled up is told only
        where its common prefix itself lies behind *after*."""
        if after < self._prefix:
            return self._prefix
        if not after.startswith(self._prefix):
            return None
        rolled = common_prefix(after, self._prefix, self._delimiter)
        return successor(rolled) if rolled is not None else key_after(after) if after else b""

    def begin(self, low: bytes) -> None:
        """Go on at *low*, wherever the walk was before."""
        self._frames, self._held, self._emptied = [], 0, 0
        self._path.clear()
        self._ahead, self._ahead_held = {}, 0
        self._seek = None
        if low.startswith(self._prefix):
            above = split(directory_of(self._prefix))[:-1]
            self._seek = Seek(low, split(low)[:-1], len(above), self._root)
            if not above:
                self._enter_base(self._root)

    def turn(self, room: int, emit_rows: EmitRows, emit_prefixes: EmitPrefixes) -> bool:
        """Tell what comes next, *room* items at most, as far as a turn's work goes. Returns whether there may be more.

        Where it returns True and told fewer than *room*, the turn's work was used up, or *tell* answered with no room
        left."""
        last = self._reads.count + QUERIES
        self._fetched_ahead = 0
        while self._seek is not None and self._reads.count < last:
            self._descend(self._seek)
        while self._frames:
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
        """Enter a directory, whose path is the walk's by now. Shallow frames give up rows where there are too many."""
        frames = self._frames
        while self._held > HELD_ROWS and self._emptied < len(frames):
            above = frames[self._emptied]
            if above.at < len(above.rows):
                above.low, above.more = bytes(above.rows[above.at][0]), True
            self._set_rows(above, [])
            self._emptied += 1
        frames.append(frame)
        self._held += len(frame.rows)

    def _pop(self, frame: Frame) -> None:
        self._set_rows(frame, [])
        frames = self._frames
        frames.pop()
        self._emptied = min(self._emptied, max(0, len(frames) - 1))
        del self._path[frames[-1].end if frames else 0 :]

    def _set_rows(self, frame: Frame, rows: list[Row]) -> None:
        """These are the rows at hand of a frame now."""
        self._held += len(rows) - len(frame.rows)
        frame.rows, frame.at = rows, 0

    # --- getting there ---

    def _enter_base(self, node: int) -> None:
        """The directory that the prefix ends in is the first frame."""
        base = directory_of(self._prefix)
        self._path += base
        batch = SLICE if self._ends_at_slash else FIRST_BATCH
        assert self._seek is not None
        self._push(Frame(node, len(base), b"", successor(self._prefix[len(base) :]), batch))

    def _descend(self, seek: Seek) -> None:
        """Enter the next directories on the way to where the walk begins; behind the last, the walk can begin."""
        names = seek.names[seek.at : seek.at + SEEK_LEVELS]
        rolled = seek.low.find(self._delimiter, len(self._prefix)) if self._delimiter else -1
        found = self._nodes(seek.node, names)
        for name, node in zip(names, found, strict=False):
            end = seek.end + len(name)
            if seek.at >= seek.above:
                if 0 <= rolled <= end - len(self._delimiter):
                    return self._end_seek(seek)  # nothing below is told
                self._frames[-1].low = _after_name(name)
                self._path += name
                batch = SLICE if self._ends_at_slash else FIRST_BATCH
                self._push(Frame(node, end, b"", None, batch))
            elif seek.at == seek.above - 1:
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
        """The directories of these names, each in the one before, as far as they stand."""
        self._reads.count += SEEK_QUERIES * len(names) // SEEK_LEVELS
        return find_directories(self._reads, node, names, self._table.dead)

    def _fetch(self, frame: Frame, room: int, emit_prefixes: EmitPrefixes) -> int:
        """The next rows of a directory, the quickest way. Answers how many items were told already."""
        most = min(frame.batch, self._items_max(frame, room), SLICE)
        place = (self._reads, frame.node, frame.low, frame.high, most)
        counts = self._reads.query(f"SELECT d.subdirs, d.{self._table.count} FROM dir d WHERE d.id = ?", (frame.node,))
        subdirs, entries = counts[0]
        frame.batch = min(frame.batch * 4, SLICE)
        if self._delimiter == SLASH and subdirs * 8 > entries * 7:
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
        """How many items of a directory may be told at once."""
        return min(room, max(1, PAGE_BYTES // (frame.end + 1)))

    def _roll_up(self, frame: Frame, names: list[bytes], most: int, emit_prefixes: EmitPrefixes) -> int:
        """Tell directories, none of which is entered."""
        path = bytes(self._path)
        emit_prefixes([path + name for name in names] if path else names)
        self._set_rows(frame, [])
        frame.more = len(names) == most
        if frame.more:
            frame.low = _after_name(names[-1])
        return len(names)

    # --- telling ---

    def _emit_held_rows(self, frame: Frame, room: int, emit_rows: EmitRows, emit_prefixes: EmitPrefixes) -> int:
        """Tells the rows at hand, until one leads down, they end or the room does. Answers the room left."""
        path, rows = bytes(self._path), frame.rows
        delimiter, begins = self._delimiter, len(self._prefix)
        while frame.at < len(rows) and room > 0:
            row = rows[frame.at]
            is_directory = row[1] is None
            if not is_directory and self._ends_at_slash:
                told, items = emit_rows(
                    path, self._rows_of_kind(frame, self._items_max(frame, room), directories=False), room
                )
                frame.at += told
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
                told, items = emit_rows(path, [row], room)
                frame.at += told
                room -= items
        return room

    @staticmethod
    def _rows_of_kind(frame: Frame, room: int, *, directories: bool) -> list[Row]:
        """The rows at hand, as many as there is room for, that like the next one are directories, or are not."""
        rows, at = frame.rows, frame.at
        end, last = at, min(at + room, len(rows))
        while end < last and (rows[end][1] is None) == directories:
            end += 1
        return rows[at:end] if at or end < len(rows) else rows

    def _step_over(self, frame: Frame, rolled: bytes) -> None:
        """Go on behind all that begins with the common prefix."""
        beginning = rolled[frame.end :]
        rows = frame.rows
        told = frame.at
        frame.at += 1
        if beginning == rows[told][0] and beginning.endswith(b"/"):
            return  # a directory: no other name begins with its own
        while frame.at < len(rows) and rows[frame.at][0].startswith(beginning):
            frame.at += 1
        if frame.at == len(rows) and frame.more and rows[-1][0].startswith(beginning):
            following = successor(beginning)
            if following is None or (frame.high is not None and following >= frame.high):
                frame.more = False
            else:
                frame.low = max(frame.low, following)
            if frame.at - told > 1:
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
        """The small ones of these directories, and the small ones in them, as far as there is room."""
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
        """The first of these directories that are small and together fit; the first that is not ends it."""
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
