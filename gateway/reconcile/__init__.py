"""Making it so: what compares the copies that are with those that should be, and makes, drops and mends them."""

from gateway.reconcile.commands import COMMANDS

__all__ = ["COMMANDS"]
