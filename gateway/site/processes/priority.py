"""The scheduling priority of processes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

AUTOGROUP = Path("/proc/self/autogroup")


def lower_priority(niceness: int) -> None:
    """Lower the priority of this process by *niceness*, as `nice(2)` does.

    With the kernel's autogroup feature (sched(7)) a niceness counts only within a session, and each of Entrepot's
    processes has its own session. So the niceness of the session is set as well, if the kernel has that feature.
    """
    os.nice(niceness)
    with suppress(OSError):
        AUTOGROUP.write_text(f"{niceness}\n")
