"""What the largest buckets store, as metrics. Their number is bounded, so that a site with very many buckets does not
make as many time series."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from gateway.metrics import gauge
from gateway.site.admin.usage import LargestBuckets, largest_buckets

if TYPE_CHECKING:
    from gateway.site.site import Site

log = logging.getLogger(__name__)

BUCKET_BYTES = gauge(
    "entrepot_bucket_bytes",
    "Plain bytes of all versions in one of the largest buckets; `(others)`: in all other buckets together.",
    ("bucket",),
)
BUCKET_OBJECTS = gauge(
    "entrepot_bucket_objects",
    "Objects in one of the buckets with most bytes; `(others)`: in all other buckets together.",
    ("bucket",),
)
BUCKETS_SHOWN = 50
OTHERS = "(others)"
"""The label of all other buckets. No bucket can have this name."""


async def count_usage(site: Site) -> None:
    """Update the metrics at intervals, until cancelled. Runs in the keeper."""
    while True:
        try:
            set_gauges(await asyncio.to_thread(_read, site.journal_path))
        except (sqlite3.Error, OSError) as error:  # the keeper has more important work than this
            log.warning("the usage of buckets cannot be read now: %s", error)
        await site.timing.clock.sleep(site.timing.probes.copies_seconds)


def _read(journal: Path) -> LargestBuckets:
    store = ReadStore(JournalPaths(journal).database, cache_kib=8_192)
    try:
        return largest_buckets(store, BUCKETS_SHOWN)
    finally:
        store.close()


def set_gauges(usage: LargestBuckets) -> None:
    """Set the gauges to *usage*."""
    BUCKET_BYTES.only({each.bucket: each.bytes for each in usage.largest} | {OTHERS: usage.other_bytes})
    BUCKET_OBJECTS.only({each.bucket: each.objects for each in usage.largest} | {OTHERS: usage.other_objects})
