"""Keep freed memory in the process.

A worker allocates and frees many buffers of 1 MiB. By default glibc returns each to the kernel, which has to find,
clear and map pages for the next one: a fifth of the time of a worker that stores large bodies. The bytes in flight are
bounded by configuration, so the memory that is kept is bounded, too.
"""

from __future__ import annotations

import ctypes

KEPT_BYTES = 64 << 20
"""Free memory at the end of the heap that is not returned to the kernel."""
LARGEST_BYTES = 32 << 20
"""Buffers up to this size are allocated on the heap: the maximum of glibc."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h


def keep_freed_memory() -> bool:
    """Configure glibc (mallopt(3)). Returns False with another C library, which keeps its default."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # One arena, so that memory that a thread has freed is used by another thread.
    wanted = {_MMAP_THRESHOLD: LARGEST_BYTES, _TRIM_THRESHOLD: KEPT_BYTES, _ARENA_MAX: 1}
    return all(mallopt(name, value) == 1 for name, value in wanted.items())
