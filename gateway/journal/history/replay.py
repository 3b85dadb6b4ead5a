"""Rebuild the truth tables from the journal alone, with bounded memory."""

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
    """Applies a journal's batches, one after the other, to an empty store."""

    def __init__(self, target: Store, *, rows_max: int = ROWS_MAX, write_rows: int = 0) -> None:
        """Replay into *target*, with about *rows_max* rows in memory. If *write_rows* is 0, each batch is written by
        itself, with its row of the journal. Otherwise that many changed rows are written together, without the
        journal."""
        self.head = EMPTY_HEAD
        """The end of the batches that were applied."""
        self._target = target
        self._cache = RowCache(target, rows_max)
        self._overlay = Overlay(self._cache)
        self._write_rows = write_rows

    def apply(self, row: JournalRow) -> None:
        """Apply the next batch. Raises `Corrupted` if it does not follow the one before, is not what was written, or
        contains a record of an unknown tag or one that refers to a row that does not exist."""
        if self.head is EMPTY_HEAD and chain.head_before_first(row).number:
            raise Corrupted(NOT_FROM_THE_START.format(row.number))
        head = chain.check(row, self.head)
        for at, record in enumerate(RECORD_CODEC.unpack(row.records)):
            while True:
                attempt = Overlay(self._overlay)
                try:
                    apply(record, attempt, row.number + at)
                except RowsNotLoaded as missing:
                    self._cache.load([_with_directories_above(each) for each in missing.wanted])
                    continue
                attempt.merge_into(self._overlay)
                break
        self.head = head
        if not self._write_rows:
            self._write(row)
        elif len(self._overlay.changed) >= self._write_rows:
            self._write(None)

    def finish(self) -> None:
        """Write the changes that are not written yet."""
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
    """Check the hashes of all batches of a store. Raises `Corrupted` at the first fault."""
    return chain.verify(store.batches(), store.head())


def replay(source: Store, target: Store, rows_max: int = ROWS_MAX) -> Head:
    """Apply the whole journal of *source* to the empty store *target*, with about *rows_max* rows in memory. Returns
    its end. Raises `Corrupted`, also for a record of an unknown tag."""
    replaying = Replay(target, rows_max=rows_max)
    for row in source.batches():
        replaying.apply(row)
    return replaying.head


def _with_directories_above(missing: LoadRequest) -> LoadRequest:
    """For a directory's row, request also those of the directories above it: a change of its count of live entries may
    be passed on to all of them."""
    return Climb(missing[1][0]) if isinstance(missing, tuple) and missing[0] is DIR else missing
