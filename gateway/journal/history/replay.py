"""Making the truth tables again from the journal alone, with memory bounded."""

from __future__ import annotations

from gateway.errors import Corrupted
from gateway.journal.apply import apply
from gateway.journal.codec import RECORD_CODEC
from gateway.journal.history import chain
from gateway.journal.rows import Climb, LoadRequest, Overlay, RowsNotLoaded
from gateway.journal.server.row_cache import ROWS_MAX, RowCache
from gateway.journal.store import EMPTY_HEAD, Batch, Head, JournalRow, Store
from gateway.journal.tables import DIR

NOT_FROM_THE_START = "the journal begins at record {}, with tables that were restored without their records"


class Replay:
    """Applies a journal's batches, one after the other, to the empty store *target*."""

    def __init__(self, target: Store, *, rows_max: int = ROWS_MAX, write_rows: int = 0) -> None:
        """*rows_max*: about how many rows are kept in memory. *write_rows*: so many changed rows are written together,
        and the target gets no journal; 0: each batch is written by itself, with its journal row."""
        self.head = EMPTY_HEAD
        """Where the batches that were applied end."""
        self._target = target
        self._cache = RowCache(target, rows_max)
        self._overlay = Overlay(self._cache)
        self._write_rows = write_rows

    def apply(self, row: JournalRow) -> None:
        """Apply the next batch. Raises `Corrupted` if it does not follow the one before, is not what was written,
        holds a record of an unknown tag or one that speaks of a row that is not there."""
        if self.head is EMPTY_HEAD and chain.before_first(row).number:
            raise Corrupted(NOT_FROM_THE_START.format(row.number))
        after = chain.check(row, self.head)
        for at, record in enumerate(RECORD_CODEC.unpack(row.records)):
            while True:
                attempt = Overlay(self._overlay)
                try:
                    apply(record, attempt, row.number + at)
                except RowsNotLoaded as these:
                    self._cache.load([_with_those_above(each) for each in these.wanted])
                    continue
                attempt.merge_into(self._overlay)
                break
        self.head = after
        if not self._write_rows:
            self._write(row)
        elif len(self._overlay.changed) >= self._write_rows:
            self._write(None)

    def finish(self) -> None:
        """Write what was applied and not written yet."""
        if self._overlay.changed:
            self._write(None)

    def _write(self, row: JournalRow | None) -> None:
        batch = Batch(self.head, row)
        batch.add_changes(self._overlay)
        self._target.write(batch)
        self._cache.merge(self._overlay.changed)
        self._cache.shrink()
        self._overlay = Overlay(self._cache)


def verify(store: Store) -> Head:
    """Go through all batches of a store. Raises `Corrupted` at the first that is not what was written."""
    return chain.verify(store.batches(), store.head())


def replay(source: Store, target: Store, rows_max: int = ROWS_MAX) -> Head:
    """Apply all of *source*'s journal to the empty *target*, with about *rows_max* rows in memory. Raises `Corrupted`,
    also for a record of an unknown tag."""
    replaying = Replay(target, rows_max=rows_max)
    for row in source.batches():
        replaying.apply(row)
    return replaying.head


def _with_those_above(missing: LoadRequest) -> LoadRequest:
    """A directory's row is loaded with those above it: counts of live entries may climb through all of them."""
    return Climb(missing[1][0]) if isinstance(missing, tuple) and missing[0] is DIR else missing
