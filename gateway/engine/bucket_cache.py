"""What most requests look up of their bucket, cached until the catalog changes."""

from __future__ import annotations

from gateway.journal.sqlite.read_store import ReadStore
from gateway.namespace.read import lookups
from gateway.namespace.read.lookups import BucketSummary

BUCKETS_MAX = 4_096


class BucketCache:
    """Summaries of buckets. They are never older than the last answered command (`journal/sqlite/catalog_version`)."""

    def __init__(self, store: ReadStore) -> None:
        self._store = store
        self._version: int | None = None
        self._buckets: dict[str, BucketSummary] = {}

    def find(self, name: str) -> BucketSummary | None:
        """Return the bucket, or None if there is none, which is not cached."""
        version = self._store.catalog_version()
        if version != self._version or len(self._buckets) >= BUCKETS_MAX:
            self._buckets.clear()
            self._version = version
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = lookups.bucket_summary(self._store, name)
            if bucket is not None:
                self._buckets[name] = bucket
        return bucket
