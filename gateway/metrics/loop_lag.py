"""Event loop lag: how late the timers of a process's event loop fire."""

from __future__ import annotations

import asyncio

from gateway.metrics.instruments import gauge, histogram
from gateway.timing.durations import MetricsTiming

LAG = histogram(
    "entrepot_loop_lag_seconds", "How late a timer of the event loop was, every twentieth of a second.", ("process",)
)
LAG_MAX = gauge("entrepot_loop_lag_seconds_max", "The latest of those in the last second.", ("process",), "max")


async def watch_loop(process: str, timing: MetricsTiming) -> None:
    """Measure the lag of the running event loop until the task is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        greatest = 0.0
        end = loop.time() + timing.lag_seconds
        while loop.time() < end:
            due = loop.time() + timing.tick_seconds
            await asyncio.sleep(timing.tick_seconds)
            late = max(0.0, loop.time() - due)
            LAG.observe(late, process)
            greatest = max(greatest, late)
        LAG_MAX.set(greatest, process)
