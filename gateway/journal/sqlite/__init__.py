"""The store in one SQLite file, in WAL mode: its schema, the committer's connections, and those of readers."""
