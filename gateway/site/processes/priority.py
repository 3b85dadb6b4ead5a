"""Which of a site's processes the kernel runs first."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

AUTOGROUP = Path("/proc/self/autogroup")


def give_way(niceness: int) -> None:
    """Let other processes have the processor first, by so many steps of `nice(2)`.

    Where the kernel shares processors out by session first, a process's niceness counts within its session alone, and
    each of ours has one of its own; so the session is made nice as well (sched(7), "The autogroup feature"). Where it
    does not, or cannot be told, the process's own niceness is what counts.
    """
    os.nice(niceness)
    with suppress(OSError):
        AUTOGROUP.write_text(f"{niceness}\n")
