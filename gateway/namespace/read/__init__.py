"""Look-ups and listings. They run in any process, over a read-only connection."""
