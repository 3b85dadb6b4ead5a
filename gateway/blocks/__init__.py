"""Blocks: cutting, packing, placing and reading them; sweeping and compacting what is dead; checking what stands."""

from gateway.blocks.commands import COMMANDS

__all__ = ["COMMANDS"]
