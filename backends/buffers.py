"""Buffers that are about to be filled."""

from __future__ import annotations

import ctypes

_CLEARED_BYTES_MAX = 32 << 10
"""Up to here clearing costs less than a foreign call."""

_new = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_new.restype = ctypes.py_object


def unfilled(size: int) -> bytearray:
    """*size* bytes of whatever stood in memory, to be overwritten whole before anybody reads them, or dropped.

    `bytearray(size)` clears them, which for large ones takes as long as opening what is sealed in them. Without a
    source the C API leaves them as they are (PyByteArray_FromStringAndSize, its NULL is documented for bytes)."""
    if size <= _CLEARED_BYTES_MAX:
        return bytearray(size)
    fresh: bytearray = _new(None, size)
    return fresh
