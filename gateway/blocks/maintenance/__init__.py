"""Background work on blocks: releasing deleted content, sweeping, compacting, expiring uploads, collecting garbage."""
