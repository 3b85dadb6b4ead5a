"""Waiting for what comes, however busy the machine is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until_true(look: Callable[[], object], what: str = "it", seconds: float = 150.0) -> None:
    """Until *look* answers something true, without blocking the loop; the limit is for what never comes."""
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.001)
