"""How a process keeps the memory that it let go of.

A worker makes and drops buffers of a MiB all day. The C library gives each back to the kernel at once, which fetches,
clears and maps its pages anew for the next: that took a fifth of the time of a worker that stores large bodies. What
may be in flight is bounded by configuration, so what is kept is too.
"""

from __future__ import annotations

import ctypes

KEPT_BYTES = 64 << 20
"""Free memory at the heap's end that is not given back."""
LARGEST_BYTES = 32 << 20
"""Buffers up to here come from the heap: the largest that glibc takes."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h


def keep_freed_memory() -> bool:
    """Tell glibc (mallopt(3)); False where the C library is another one, which then does as it does."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # One arena: what a thread frees, another takes.
    wanted = {_MMAP_THRESHOLD: LARGEST_BYTES, _TRIM_THRESHOLD: KEPT_BYTES, _ARENA_MAX: 1}
    return all(mallopt(name, value) == 1 for name, value in wanted.items())
