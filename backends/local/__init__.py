"""A local folder as a backend: files, a write-ahead log for small values, and direct I/O for large ones."""
