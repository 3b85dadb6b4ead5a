"""Making the truth tables again from the journal alone, and checking the journal's running hash."""

from __future__ import annotations

from gateway.errors import Damaged
from gateway.journal.apply import apply
from gateway.journal.cache import ROWS_MAX, RowCache
from gateway.journal.codec import RECORD_CODEC
from gateway.journal.rows import Climb, Load, Missing, Overlay
from gateway.journal.store import EMPTY_HEAD, Batch, Head, JournalRow, Store, running_hash
from gateway.journal.tables import DIR


def check(row: JournalRow, before: Head) -> Head:
    """Where the journal stands behind *row*. Raises `Damaged` unless it follows *before*."""
    if row.number != before.number + 1:
        raise Damaged(f"the journal goes from record {before.number} to {row.number}")
    if running_hash(before.hash, row.records) != row.hash:
        raise Damaged(f"the journal's records from {row.number} on are not what was written")
    return Head(before.number + row.records_count, row.hash, row.at_ns, row.next_id)


def verify(store: Store) -> Head:
    """Go through all batches of a store. Raises `Damaged` at the first that is not what was written."""
    head = EMPTY_HEAD
    for row in store.batches():
        head = check(row, head)
    if head[:2] != store.head()[:2]:
        raise Damaged(f"the journal ends at record {head.number}, the tables at {store.head().number}")
    return head


def replay(source: Store, target: Store, rows_max: int = ROWS_MAX) -> Head:
    """Apply all of *source*'s journal to the empty *target*, with about *rows_max* rows in memory. Raises `Damaged`,
    also for a record of an unknown tag."""
    cache = RowCache(target, rows_max)
    head = EMPTY_HEAD
    for row in source.batches():
        after = check(row, head)
        overlay = Overlay(cache)
        for at, record in enumerate(RECORD_CODEC.unpack(row.records)):
            while True:
                attempt = Overlay(overlay)
                try:
                    apply(record, attempt, row.number + at)
                except Missing as these:
                    cache.load([_with_those_above(each) for each in these.wanted])
                    continue
                attempt.merge_into(overlay)
                break
        target.write(_rows(overlay, after, row))
        cache.merge(overlay.changed)
        cache.shrink()
        head = after
    return head


def _with_those_above(missing: Load) -> Load:
    """A directory's row is loaded with those above it: counts of live entries may climb through all of them."""
    return Climb(missing[1][0]) if isinstance(missing, tuple) and missing[0] is DIR else missing


def _rows(overlay: Overlay, head: Head, row: JournalRow) -> Batch:
    batch = Batch(head, row)
    batch.add_changes(overlay)
    return batch
