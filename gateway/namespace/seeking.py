"""One walk for every listing: from any key on, in byte order, over what is live or over everything. Synchronous.

`Walk.slice` goes to a key by *seek*: down the directories that stand on its way, one look-up each, and from there on
through ranges of entries. It never meets what it does not return:
- live listings walk the part of the entries' key where `dead` is 0, and a directory without live entries is dead;
- what a delimiter rolls up is stepped over by going on at the successor of the common prefix;
- small directories side by side are fetched together, level by level, as many as the slice has room for.

A slice is one snapshot. Nothing is kept between slices but the key to go on from, so a tree that changes in between
is listed as it then is, and nothing that stood all the time is missed or told twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from gateway.namespace.keys import SLASH, behind, directory_of, rolled_up, split, successor
from gateway.namespace.reading import Reads

SLICE = 1024
"""Rows of a slice, about: what is read without giving the loop to others. A page of S3's usual size is one."""
AHEAD = 256
"""Directories of which a slice fetches small ones together, at a time."""
MOST_AHEAD = 512
"""Rows fetched so, behind which a slice ends: they cost several times what rows in a row do."""
SMALL = 64
"""Entries of a directory that is fetched together with others."""
LEVELS = 16
"""How far down small directories are fetched ahead."""
FIRST_BATCH = 16
"""Rows that are fetched at first where a delimiter may roll them all up."""

Row = tuple[Any, ...]
"""(name, size, …, node, parent): size None for a directory."""


class Table(Protocol):
    """Which entries a walk meets."""

    count: str
    """The column of `dir` that counts them."""
    dead: str
    """SQL that says of an entry `e` that it is met."""

    def entries(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[Row]:
        """The first entries of a directory, names from *low* up to before *high*, in order."""

    def directories(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[bytes] | None:
        """The names of the same entries, much quicker, where all of them are directories; None where one is not."""

    def only_files(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[Row]:
        """The same, quick where there is no directory among them."""

    def children(self, reads: Reads, parents: str) -> dict[int, list[Row]]:
        """All entries of the directories in a JSON list, each directory's in order."""


class _Frame:
    """A directory that the walk is in: the rows at hand, and whether there are more behind them."""

    __slots__ = ("at", "batch", "high", "low", "more", "node", "path", "rows")

    def __init__(self, node: int, path: bytes, low: bytes, high: bytes | None, batch: int) -> None:
        self.node = node
        self.path = path
        self.low = low
        self.high = high
        self.batch = batch
        self.rows: list[Row] = []
        self.at = 0
        self.more = True


Tell = Callable[[bytes, list[Row], int], tuple[int, int]]
"""(path, rows that are no directories, room): tells what they stand for, as many as there is room for. Answers how many
rows that was, and how many items."""
Roll = Callable[[list[bytes]], None]
"""Tells common prefixes."""


def _past(name: bytes) -> bytes:
    """Where to go on behind a name: nothing in a directory begins with another directory's name and its slash."""
    return name[:-1] + b"0" if name.endswith(b"/") else name + b"\0"


class Walk:
    """A walk over the keys below *root* that begin with *prefix*, rolled up by *delimiter*."""

    def __init__(self, reads: Reads, table: Table, root: int, prefix: bytes, delimiter: bytes) -> None:
        self._reads = reads
        self._table = table
        self._root = root
        self._prefix = prefix
        self._delimiter = delimiter
        self._ends_at_slash = delimiter in (b"", SLASH)
        self._ahead: dict[int, list[Row] | None] = {}
        self._fetched_ahead = 0

    def first(self, after: bytes) -> bytes | None:
        """The least key that may be told behind *after*; None when there can be none. What is rolled up is told only
        where its common prefix itself lies behind *after*."""
        if after < self._prefix:
            return self._prefix
        if not after.startswith(self._prefix):
            return None
        rolled = rolled_up(after, self._prefix, self._delimiter)
        return successor(rolled) if rolled is not None else behind(after) if after else b""

    def slice(self, low: bytes, room: int, tell: Tell, roll: Roll) -> bytes | None:
        """Tell what stands from *low* on, *room* items at most.

        Answers the least key that was not looked at, or None at the end."""
        if not low.startswith(self._prefix):
            return None
        with self._reads.snapshot():
            frames = self._seek(low)
            self._ahead, self._fetched_ahead = {}, 0
            while frames:
                if room <= 0 or (self._fetched_ahead >= MOST_AHEAD and not self._ahead):
                    return self._position(frames)
                frame = frames[-1]
                if frame.at < len(frame.rows):
                    room = self._go_on(frames, frame, room, tell, roll)
                elif frame.more:
                    room -= self._fetch(frame, room, roll)
                else:
                    frames.pop()
            return None

    @staticmethod
    def _position(frames: list[_Frame]) -> bytes | None:
        """Where a walk would go on: the next row of the deepest directory that has one."""
        for frame in reversed(frames):
            if frame.at < len(frame.rows):
                return frame.path + bytes(frame.rows[frame.at][0])
            if frame.more:
                return frame.path + frame.low
        return None

    # --- getting there ---

    def _seek(self, low: bytes) -> list[_Frame]:
        """The directories on the way to *low*, each to go on behind what is below it."""
        base = directory_of(self._prefix)
        node = self._descend(self._root, split(base)[:-1])
        if node is None:
            return []
        batch = SLICE if self._ends_at_slash else FIRST_BATCH
        rest = low[len(base) :]
        frame = _Frame(node, base, rest, successor(self._prefix[len(base) :]), batch)
        frames = [frame]
        for name in split(rest)[:-1]:
            if rolled_up(frame.path + name, self._prefix, self._delimiter) is not None:
                break  # nothing below is told
            below = self._descend(frame.node, [name])
            if below is None:
                break
            frame.low = _past(name)
            rest = rest[len(name) :]
            frame = _Frame(below, frame.path + name, rest, None, batch)
            frames.append(frame)
        return frames

    def _descend(self, node: int, names: list[bytes]) -> int | None:
        sql = f"SELECT e.node FROM entry e WHERE e.parent = ? AND {self._table.dead} AND e.name = ?"
        for name in names:
            rows = self._reads.query(sql, (node, name))
            if not rows:
                return None
            node = rows[0][0]
        return node

    def _fetch(self, frame: _Frame, room: int, roll: Roll) -> int:
        """The next rows of a directory, the quickest way. Answers how many items were told already."""
        most = min(frame.batch, room, SLICE)
        place = (self._reads, frame.node, frame.low, frame.high, most)
        counts = self._reads.query(f"SELECT d.subdirs, d.{self._table.count} FROM dir d WHERE d.id = ?", (frame.node,))
        subdirs, entries = counts[0]
        frame.at = 0
        frame.batch = min(frame.batch * 4, SLICE)
        if self._delimiter == SLASH and subdirs * 8 > entries * 7:
            names = self._table.directories(*place)
            if names is not None:
                return self._roll_up(frame, names, most, roll)
        frame.rows = self._table.entries(*place) if subdirs else self._table.only_files(*place)
        frame.more = len(frame.rows) == most
        if frame.more:
            frame.low = _past(frame.rows[-1][0])
        return 0

    @staticmethod
    def _roll_up(frame: _Frame, names: list[bytes], most: int, roll: Roll) -> int:
        """Tell directories, none of which is entered."""
        path = frame.path
        roll([path + name for name in names] if path else names)
        frame.rows = []
        frame.more = len(names) == most
        if frame.more:
            frame.low = _past(names[-1])
        return len(names)

    # --- telling ---

    def _go_on(self, frames: list[_Frame], frame: _Frame, room: int, tell: Tell, roll: Roll) -> int:
        """Tells the rows at hand, until one leads down, they end or the room does. Answers the room left."""
        path, rows = frame.path, frame.rows
        delimiter, begins = self._delimiter, len(self._prefix)
        while frame.at < len(rows) and room > 0:
            row = rows[frame.at]
            is_directory = row[1] is None
            if not is_directory and self._ends_at_slash:
                told, items = tell(path, self._alike_from(frame, room, directories=False), room)
                frame.at += told
                room -= items
                continue
            if is_directory and delimiter == SLASH:
                beside = self._alike_from(frame, room, directories=True)
                roll([path + each[0] for each in beside] if path else [each[0] for each in beside])
                frame.at += len(beside)
                room -= len(beside)
                continue
            key = path + row[0]
            cut = key.find(delimiter, begins) if delimiter else -1
            if cut >= 0:
                roll([key[: cut + len(delimiter)]])
                room -= 1
                self._step_over(frame, key[: cut + len(delimiter)])
            elif is_directory:
                frame.at += 1
                frames.append(self._below(frame, row[-2], key, room))
                return room
            else:
                told, items = tell(path, [row], room)
                frame.at += told
                room -= items
        return room

    @staticmethod
    def _alike_from(frame: _Frame, room: int, *, directories: bool) -> list[Row]:
        """The rows at hand, as many as there is room for, that like the next one are directories, or are not."""
        rows, at = frame.rows, frame.at
        end, last = at, min(at + room, len(rows))
        while end < last and (rows[end][1] is None) == directories:
            end += 1
        return rows[at:end] if at or end < len(rows) else rows

    def _step_over(self, frame: _Frame, rolled: bytes) -> None:
        """Go on behind all that begins with the common prefix."""
        beginning = rolled[len(frame.path) :]
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

    def _below(self, frame: _Frame, node: int, path: bytes, room: int) -> _Frame:
        if node not in self._ahead:
            beside = [row[-2] for row in frame.rows[frame.at : frame.at + min(room, AHEAD)] if row[1] is None]
            self._fetch_ahead([node, *beside], room)
        below = _Frame(node, path, b"", None, SLICE if self._ends_at_slash else FIRST_BATCH)
        rows = self._ahead.pop(node, None)
        if rows is not None:
            below.rows, below.more = rows, False
        return below

    def _fetch_ahead(self, nodes: list[int], room: int) -> None:
        """The small ones of these directories, and the small ones in them, as far as there is room."""
        for _ in range(LEVELS):
            chosen = self._small(nodes, room)
            if not chosen:
                return
            found = self._table.children(self._reads, json.dumps(chosen))
            nodes = []
            for node in chosen:
                rows = found.get(node, [])
                self._ahead[node] = rows
                self._fetched_ahead += len(rows)
                nodes.extend(row[-2] for row in rows if row[1] is None)
            if not nodes:
                return

    def _small(self, nodes: list[int], room: int) -> list[int]:
        """The first of these directories that are small and together fit; the first that is not ends it."""
        sql = f"SELECT d.id, d.{self._table.count} FROM json_each(?) j CROSS JOIN dir d ON d.id = j.value"
        counts = dict(self._reads.query(sql, (json.dumps(nodes[:AHEAD]),)))
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
