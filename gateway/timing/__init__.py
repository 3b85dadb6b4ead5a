"""`Timing`: every duration that the code chooses itself, and the clocks. Immutable, and made once for each process.

The config holds the durations that an operator chooses (leases, deadlines, recovery points). Sizes and counts are
constants in the modules that use them.
"""

from gateway.timing.clock import Clock, SystemClock
from gateway.timing.durations import Timing
from gateway.timing.overrides import VARIABLE, parse_timing, timing_from_environment

__all__ = ["VARIABLE", "Clock", "SystemClock", "Timing", "parse_timing", "timing_from_environment"]
