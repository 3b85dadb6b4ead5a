"""What each record does to the tables: the only code that changes truth tables. Pure: rows in, rows out.

Each subject has a module with a closed `match` over its records. Nothing here draws an id, a time or a random number,
or depends on anything except the record, its number and the rows. So replaying the journal into an empty store gives
identical truth tables.
"""

from __future__ import annotations

from typing import assert_never

from gateway.journal.apply.bytes import apply_bytes
from gateway.journal.apply.site import apply_site
from gateway.journal.apply.tree import apply_tree
from gateway.journal.apply.uploads import apply_uploads
from gateway.journal.apply.work import apply_work
from gateway.journal.records import Record
from gateway.journal.records.bytes import BytesRecord
from gateway.journal.records.site import SiteRecord
from gateway.journal.records.tree import TreeRecord
from gateway.journal.records.uploads import UploadRecord
from gateway.journal.records.work import WorkRecord
from gateway.journal.rows import Rows


def apply(record: Record, rows: Rows, number: int) -> None:
    """Apply *record*, the *number*-th of the journal, to *rows*. Raises `RowsNotLoaded` for rows that are not in
    memory, `Corrupted` for rows that do not exist."""
    # first those that every PUT emits
    if isinstance(record, BytesRecord):
        apply_bytes(record, rows, number)
    elif isinstance(record, TreeRecord):
        apply_tree(record, rows)
    elif isinstance(record, UploadRecord):
        apply_uploads(record, rows)
    elif isinstance(record, WorkRecord):
        apply_work(record, rows, number)
    elif isinstance(record, SiteRecord):
        apply_site(record, rows, number)
    else:
        assert_never(record)
