"""Reconciliation: compares the copies that exist with those that should, and makes, repairs and deletes copies."""

from gateway.reconcile.commands import COMMANDS

__all__ = ["COMMANDS"]
