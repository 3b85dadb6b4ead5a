"""Linux system calls that Python's `os` lacks. Each reports whether the kernel and the C library have it."""

from __future__ import annotations

import ctypes
import errno
import os

_ABSENT = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.E2BIG)


class SyncFs:
    """syncfs(2): syncs the whole file system that a descriptor lies on."""

    def __init__(self) -> None:
        self._call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)

    def __call__(self, fd: int) -> bool:
        """Return True once everything is durable; False where the call does not exist. Raises `OSError`: since Linux
        5.8 for each writeback that failed since *fd* was opened."""
        if self._call is None:
            return False
        if self._call(fd) == 0:
            return True
        number = ctypes.get_errno()
        if number in _ABSENT:
            return False
        raise OSError(number, os.strerror(number))


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_CACHED = 0x20


class OpenCached:
    """openat2(2) with RESOLVE_CACHED (Linux 5.12): opens a path that the kernel has in its caches, and never waits for
    the disk. As it does not wait, it keeps the interpreter's lock, which makes it cheap."""

    def __init__(self) -> None:
        call = getattr(ctypes.PyDLL(None, use_errno=True), "syscall", None)
        if call is not None:
            call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
            call.restype = ctypes.c_long
        self._call = call
        self._how = _How(os.O_RDONLY | os.O_CLOEXEC, 0, _RESOLVE_CACHED)
        self._where, self._size = ctypes.addressof(self._how), ctypes.sizeof(self._how)

    def __call__(self, folder: int, path: str) -> int | None:
        """Open *path* below the descriptor *folder* for reading; return None where that fails, for any reason."""
        if self._call is None:
            return None
        fd: int = self._call(_OPENAT2, folder, path.encode(), self._where, self._size)
        if fd >= 0:
            return fd
        if ctypes.get_errno() in _ABSENT or ctypes.get_errno() == errno.EPERM:  # a seccomp filter answers EPERM
            self._call = None
        return None
