"""The grace period in which nothing is deleted that another copy of this journal may still need."""

from __future__ import annotations

from gateway.blocks.protocols import Tables
from gateway.journal.whereabouts import FORK_PIN


def in_fork_grace(store: Tables, now_ns: int) -> bool:
    """Return whether the grace period is not over yet: after a takeover, after a start that may be that of a copy, or
    after a restore from a backup. *now_ns*: the site's time."""
    pinned = "SELECT 1 FROM pin WHERE substr(id, 1, ?) = ? AND until_ns > ? LIMIT 1"
    return bool(store.query(pinned, (len(FORK_PIN), FORK_PIN, now_ns)))
