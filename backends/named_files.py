"""Files that a config names: certificates, keys, secrets, profiles. Opened without waiting, and read up to a limit."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

NAMED_BYTES_MAX = 1 << 20
"""More than any chain of certificates or file of keys has."""


def read_named_file(path: str | Path, limit_bytes: int = NAMED_BYTES_MAX) -> bytes:
    """The whole of a regular file of at most *limit_bytes*.

    Opening a FIFO would wait for a writer, and reading a device may never end: both raise `OSError`, as does a file
    that is too long, that is absent, or that may not be read."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(handle, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        found = bytearray()
        while piece := file.read(limit_bytes + 1 - len(found)):
            found += piece
        if len(found) > limit_bytes:
            raise OSError(errno.EFBIG, f"it is longer than {limit_bytes} bytes", str(path))
        return bytes(found)
