"""Read files that a config names (certificates, keys, secrets, profiles): without waiting, and up to a size limit."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

NAMED_BYTES_MAX = 1 << 20
"""More bytes than any certificate chain or key file has."""


def read_named_file(path: str | Path, limit_bytes: int = NAMED_BYTES_MAX) -> bytes:
    """Return the contents of a regular file of at most *limit_bytes*.

    Raises `OSError` for anything else: opening a FIFO would wait for a writer, and reading a device may never end. The
    same for a file that is too long, missing, or not readable."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        content = bytearray()
        while part := file.read(limit_bytes + 1 - len(content)):
            content += part
        if len(content) > limit_bytes:
            raise OSError(errno.EFBIG, f"it is longer than {limit_bytes} bytes", str(path))
        return bytes(content)
