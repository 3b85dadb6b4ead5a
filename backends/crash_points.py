"""The steps of a local backend's work at which tests stop the process. `reach` does nothing until somebody watches.

Backends import nothing of ours, so the table of these names, and the arming, are `gateway.failpoints`'.
"""

from __future__ import annotations

from collections.abc import Callable


def _unwatched(step: str) -> None:
    """Nobody watches."""


_watcher: Callable[[str], None] = _unwatched


def reach(step: str) -> None:
    """The process stands at this *step*."""
    _watcher(step)


def watch(watcher: Callable[[str], None]) -> None:
    """Tell *watcher* of each step from now on."""
    global _watcher  # noqa: PLW0603 (one process, one watcher)
    _watcher = watcher
