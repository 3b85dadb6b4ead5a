"""A local backend that is open for as long as a test needs it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from backends.local.backend import Local
from backends.local.wal import LOG_BYTES_MIN
from backends.timing import DEFAULTS, DriverTiming


@contextlib.asynccontextmanager
async def opened(
    folder: Path,
    *,
    warm: bool = True,
    wal_bytes: int = LOG_BYTES_MIN,
    descriptors: int = 100,
    timing: DriverTiming = DEFAULTS,
) -> AsyncIterator[Local]:
    backend = await Local.open(str(folder), wal_bytes=wal_bytes, descriptors=descriptors, timing=timing)
    try:
        if warm:
            await backend.warm()
        yield backend
    finally:
        await backend.close()
