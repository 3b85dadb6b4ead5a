"""Every duration that the code decides itself, and the clocks: one immutable `Timing`, made once for each process.

Durations that an operator chooses (leases, deadlines, recovery points) are the config's. Sizes and counts stand where
they are used.
"""

from gateway.timing.clock import Clock, SystemClock
from gateway.timing.durations import Timing
from gateway.timing.overrides import VARIABLE, parse_timing, timing_from_environment

__all__ = ["VARIABLE", "Clock", "SystemClock", "Timing", "parse_timing", "timing_from_environment"]
