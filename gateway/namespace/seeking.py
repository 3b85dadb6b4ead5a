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

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar

from gateway.namespace.keys import SLASH, behind, directory_of, rolled_up, split, successor
from gateway.namespace.reading import DESCENT_LEVELS, Reads, descend

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

TURNS = 128
"""Turns of a page. One that needs more ends early, with at least one item: S3 allows that, and clients go on behind
it."""

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

    __slots__ = ("at", "batch", "end", "high", "low", "more", "node", "rows")

    def __init__(self, node: int, end: int, low: bytes, high: bytes | None, batch: int) -> None:
        self.node = node
        self.end = end
        """Bytes of its path, which is the beginning of the walk's."""
        self.low = low
        self.high = high
        self.batch = batch
        self.rows: list[Row] = []
        self.at = 0
        self.more = True


class _Counted:
    """Counts the queries that a walk makes."""

    __slots__ = ("_reads", "count")

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self.count = 0

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        self.count += 1
        return self._reads.query(statement, values)

    def snapshot(self) -> AbstractContextManager[None]:
        return self._reads.snapshot()

    def apart(self) -> AbstractAsyncContextManager[Reads]:
        return self._reads.apart()


class _Seek:
    """The way to the key that a walk begins at."""

    __slots__ = ("above", "at", "end", "low", "names", "node")

    def __init__(self, low: bytes, names: list[bytes], above: int, root: int) -> None:
        self.low = low
        self.names = names
        """The key's directories."""
        self.above = above
        """So many of them are the prefix's."""
        self.at = 0
        """How many of them were entered."""
        self.end = 0
        """Bytes of their path."""
        self.node = root


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
        self._reads = _Counted(reads)
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
        self._frames: list[_Frame] = []
        self._held = 0
        """Rows of all frames."""
        self._emptied = 0
        """The frames before this one hold no rows."""
        self._seek: _Seek | None = None

    def first(self, after: bytes) -> bytes | None:
        """The least key that may be told behind *after*; None when there can be none. What is rolled up is told only
        where its common prefix itself lies behind *after*."""
        if after < self._prefix:
            return self._prefix
        if not after.startswith(self._prefix):
            return None
        rolled = rolled_up(after, self._prefix, self._delimiter)
        return successor(rolled) if rolled is not None else behind(after) if after else b""

    def begin(self, low: bytes) -> None:
        """Go on at *low*, wherever the walk was before."""
        self._frames, self._held, self._emptied = [], 0, 0
        self._path.clear()
        self._ahead, self._ahead_held = {}, 0
        self._seek = None
        if low.startswith(self._prefix):
            above = split(directory_of(self._prefix))[:-1]
            self._seek = _Seek(low, split(low)[:-1], len(above), self._root)
            if not above:
                self._enter_base(self._root)

    def turn(self, room: int, tell: Tell, roll: Roll) -> bool:
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
                room = self._go_on(frame, room, tell, roll)
            elif frame.more:
                room -= self._fetch(frame, room, roll)
            else:
                self._leave(frame)
        return self._seek is not None

    # --- frames ---

    def _push(self, frame: _Frame) -> None:
        """Enter a directory, whose path is the walk's by now. Shallow frames give up rows where there are too many."""
        frames = self._frames
        while self._held > HELD_ROWS and self._emptied < len(frames):
            above = frames[self._emptied]
            if above.at < len(above.rows):
                above.low, above.more = bytes(above.rows[above.at][0]), True
            self._hold(above, [])
            self._emptied += 1
        frames.append(frame)
        self._held += len(frame.rows)

    def _leave(self, frame: _Frame) -> None:
        self._hold(frame, [])
        frames = self._frames
        frames.pop()
        self._emptied = min(self._emptied, max(0, len(frames) - 1))
        del self._path[frames[-1].end if frames else 0 :]

    def _hold(self, frame: _Frame, rows: list[Row]) -> None:
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
        self._push(_Frame(node, len(base), b"", successor(self._prefix[len(base) :]), batch))

    def _descend(self, seek: _Seek) -> None:
        """Enter the next directories on the way to where the walk begins; behind the last, the walk can begin."""
        names = seek.names[seek.at : seek.at + SEEK_LEVELS]
        rolled = seek.low.find(self._delimiter, len(self._prefix)) if self._delimiter else -1
        found = self._nodes(seek.node, names)
        for name, node in zip(names, found, strict=False):
            end = seek.end + len(name)
            if seek.at >= seek.above:
                if 0 <= rolled <= end - len(self._delimiter):
                    return self._arrive(seek)  # nothing below is told
                self._frames[-1].low = _past(name)
                self._path += name
                batch = SLICE if self._ends_at_slash else FIRST_BATCH
                self._push(_Frame(node, end, b"", None, batch))
            elif seek.at == seek.above - 1:
                self._enter_base(node)
            seek.at, seek.node, seek.end = seek.at + 1, node, end
        if len(found) < len(names) or seek.at == len(seek.names):
            self._arrive(seek)
        return None

    def _arrive(self, seek: _Seek) -> None:
        if self._frames:
            self._frames[-1].low = seek.low[seek.end :]
        self._seek = None

    def _nodes(self, node: int, names: list[bytes]) -> list[int]:
        """The directories of these names, each in the one before, as far as they stand."""
        self._reads.count += SEEK_QUERIES * len(names) // SEEK_LEVELS
        return descend(self._reads, node, names, self._table.dead)

    def _fetch(self, frame: _Frame, room: int, roll: Roll) -> int:
        """The next rows of a directory, the quickest way. Answers how many items were told already."""
        most = min(frame.batch, self._fitting(frame, room), SLICE)
        place = (self._reads, frame.node, frame.low, frame.high, most)
        counts = self._reads.query(f"SELECT d.subdirs, d.{self._table.count} FROM dir d WHERE d.id = ?", (frame.node,))
        subdirs, entries = counts[0]
        frame.batch = min(frame.batch * 4, SLICE)
        if self._delimiter == SLASH and subdirs * 8 > entries * 7:
            names = self._table.directories(*place)
            if names is not None:
                return self._roll_up(frame, names, most, roll)
        self._hold(frame, self._table.entries(*place) if subdirs else self._table.only_files(*place))
        frame.more = len(frame.rows) == most
        if frame.more:
            frame.low = _past(frame.rows[-1][0])
        return 0

    @staticmethod
    def _fitting(frame: _Frame, room: int) -> int:
        """How many items of a directory may be told at once."""
        return min(room, max(1, PAGE_BYTES // (frame.end + 1)))

    def _roll_up(self, frame: _Frame, names: list[bytes], most: int, roll: Roll) -> int:
        """Tell directories, none of which is entered."""
        path = bytes(self._path)
        roll([path + name for name in names] if path else names)
        self._hold(frame, [])
        frame.more = len(names) == most
        if frame.more:
            frame.low = _past(names[-1])
        return len(names)

    # --- telling ---

    def _go_on(self, frame: _Frame, room: int, tell: Tell, roll: Roll) -> int:
        """Tells the rows at hand, until one leads down, they end or the room does. Answers the room left."""
        path, rows = bytes(self._path), frame.rows
        delimiter, begins = self._delimiter, len(self._prefix)
        while frame.at < len(rows) and room > 0:
            row = rows[frame.at]
            is_directory = row[1] is None
            if not is_directory and self._ends_at_slash:
                told, items = tell(path, self._alike_from(frame, self._fitting(frame, room), directories=False), room)
                frame.at += told
                room -= items
                continue
            if is_directory and delimiter == SLASH:
                beside = self._alike_from(frame, self._fitting(frame, room), directories=True)
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
                self._path += row[0]
                self._push(self._below(frame, row[-2], room))
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

    def _below(self, frame: _Frame, node: int, room: int) -> _Frame:
        if node not in self._ahead and self._ahead_held <= HELD_ROWS:
            beside = [row[-2] for row in frame.rows[frame.at : frame.at + min(room, AHEAD)] if row[1] is None]
            self._fetch_ahead([node, *beside], room)
        below = _Frame(node, len(self._path), b"", None, SLICE if self._ends_at_slash else FIRST_BATCH)
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


class Listing(Protocol):
    """A page that is being read, a turn at a time."""

    @property
    def count(self) -> int:
        """Items so far."""

    def turn(self) -> bool:
        """Read on. Returns whether the page is complete."""


L = TypeVar("L", bound=Listing)


async def in_turns(reads: Reads, begin: Callable[[Reads], L]) -> L:
    """The listing that *begin* makes over a store, read until it is complete, or has used up `TURNS`.

    Whatever it takes, it reads one snapshot. The first turn reads the store itself, and is nearly always enough; where
    it is not, the listing begins again on a connection of its own, and the loop has others' work between its turns. A
    caller that is cancelled stops there."""
    with reads.snapshot():
        listing = begin(reads)
        if listing.turn():
            return listing
    await asyncio.sleep(0)
    async with reads.apart() as still:
        listing = begin(still)
        turns = 1
        while not listing.turn() and (turns < TURNS or not listing.count):
            turns += 1
            await asyncio.sleep(0)
    return listing
