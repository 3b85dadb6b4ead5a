"""Allocate buffers that the caller fills at once."""

from __future__ import annotations

import ctypes

_CLEARED_BYTES_MAX = 32 << 10
"""Up to this size, clearing costs less than a foreign call."""

_new = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_new.restype = ctypes.py_object


def unfilled(size: int) -> bytearray:
    """Return *size* bytes of uninitialized memory. The caller overwrites all of them before they are read, or drops
    the buffer.

    `bytearray(size)` clears the memory, which for large buffers takes as long as decrypting into them. The C API does
    not clear it where the source is NULL (PyByteArray_FromStringAndSize; documented for the function for bytes)."""
    if size <= _CLEARED_BYTES_MAX:
        return bytearray(size)
    buffer: bytearray = _new(None, size)
    return buffer
