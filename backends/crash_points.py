"""Points in a local backend's work at which tests stop the process. `reach` does nothing until a test installs a
watcher.

Backends import nothing of `gateway`. So the table of the points' names, and the code that arms them, is in
`gateway.failpoints`.
"""

from __future__ import annotations

from collections.abc import Callable


def _ignore(point: str) -> None:
    """The watcher while no test watches."""


_watcher: Callable[[str], None] = _ignore


def reach(point: str) -> None:
    """Report that the process has reached *point*."""
    _watcher(point)


def watch(watcher: Callable[[str], None]) -> None:
    """Call *watcher* with each point that is reached from now on."""
    global _watcher  # noqa: PLW0603 (one process, one watcher)
    _watcher = watcher
