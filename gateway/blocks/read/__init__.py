"""The read path: which extents hold a range of bytes, and reading them from the best copies."""
