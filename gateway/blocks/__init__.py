"""Blocks: writing, reading, background work (releasing, sweeping, compacting, expiring) and the check of a site."""

from gateway.blocks.commands import COMMANDS

__all__ = ["COMMANDS"]
