"""Which backends should hold a block, and in which order its copies are read. Also the journal's ids of configured
names.

Everything here is pure: callers pass the time, the random source and the topology.
"""

from gateway.placement.commands import COMMANDS

__all__ = ["COMMANDS"]
