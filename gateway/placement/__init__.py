"""Pure: what copies should be, and in which order they are read; and the interned names of backends and policies."""

from gateway.placement.commands import COMMANDS

__all__ = ["COMMANDS"]
