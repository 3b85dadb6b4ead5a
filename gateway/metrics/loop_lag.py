"""How long a ready callback waits for the event loop: the greatest delay of a timer since the last snapshot."""

from __future__ import annotations

import asyncio

from gateway.metrics.instruments import gauge, histogram
from gateway.timing.durations import MetricsTiming

LAG = histogram(
    "entrepot_loop_lag_seconds", "How late a timer of the event loop was, every twentieth of a second.", ("process",)
)
LAG_MAX = gauge("entrepot_loop_lag_seconds_max", "The latest of those in the last second.", ("process",), "max")


async def watch_loop(process: str, timing: MetricsTiming) -> None:
    """Measure for ever, as a task of the loop that is measured."""
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
