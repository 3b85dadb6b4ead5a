"""Background work on blocks: releasing deleted content, sweeping, compaction, expiry, garbage collection."""
