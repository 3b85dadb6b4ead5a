"""The read path: which extents hold a range, and fetching them from the best copies."""
