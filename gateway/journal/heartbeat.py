"""Detect whether the event loop of a process, or a thread of it, hangs. Pure, except for the functions that read /proc.

Each process under the supervisor reports once a second (`child.Child.report`), which it can do only while its event
loop runs. The supervisor counts ticks of its own loop since the last report, and kills a process that has missed
`hung_seconds` of them. So no clocks are compared: while the machine is suspended, or the supervisor itself is stopped
or gets no processor time, it counts nothing, and it reads the reports that arrived meanwhile before it counts much
more. A tick is not counted against a process that the kernel does not let run: one that a debugger or `kill -STOP` has
stopped, or one that waits for a disk, which continues by itself and which SIGKILL would not end sooner.

Clients watch a committer without a supervisor in the same way (`gateway/site/hung_committer.py`), and each committer
watches its own commit thread (`commit_watch.py`).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gateway.timing.durations import ProcessesTiming


class Heartbeat:
    """What the supervisor knows of one life of a process: how long ago it reported."""

    __slots__ = ("_hung_seconds", "_silent_seconds", "_times")

    def __init__(self, times: ProcessesTiming) -> None:
        self._times = times
        self._silent_seconds = 0.0
        self._hung_seconds = 0.0

    def record_report(self) -> None:
        """The process has reported."""
        self._silent_seconds = self._hung_seconds = 0.0

    def tick(self, *, suspended: bool) -> None:
        """The supervisor has waited for `report_seconds`. *suspended*: whether the kernel does not let the process
        run."""
        self._silent_seconds += self._times.report_seconds
        if not suspended:
            self._hung_seconds += self._times.report_seconds

    @property
    def is_responsive(self) -> bool:
        """Whether it has reported within `silence_seconds`."""
        return self._silent_seconds < self._times.silence_seconds

    @property
    def silent_seconds(self) -> float:
        """Time since the last report, including the time for which the kernel did not let the process run."""
        return self._silent_seconds

    def is_hung(self, *, ready: bool) -> bool:
        """Whether the process is to be killed. *ready*: whether it has reported that it has started."""
        return self._hung_seconds >= (self._times.hung_seconds if ready else self._times.hung_starting_seconds)


def is_suspended(pid: int, thread: int | None = None) -> bool:
    """Whether a process, or one thread of it, is stopped, traced or in an uninterruptible wait. False if it has
    ended."""
    return scheduler_state(pid, thread) in SUSPENDED


SUSPENDED = frozenset({"T", "t", "D"})
"""States of a process that does not run: stopped, stopped by a debugger, in an uninterruptible wait."""


def scheduler_state(pid: int, thread: int | None = None) -> str:
    """The kernel's letter for the state of a process, or of one thread of it (proc_pid_stat(5)); "" if it has ended."""
    return "".join(_stat(f"/proc/{pid}/stat" if thread is None else f"/proc/{pid}/task/{thread}/stat")[:1])


def work_done(pid: int) -> tuple[str, ...]:
    """Return the work that process *pid* has done so far: its processor time, and the bytes that it has read and
    written (proc_pid_stat(5), proc_pid_io(5)). If two values are equal, it did nothing in between. Empty if it has
    ended."""
    counters = _stat(f"/proc/{pid}/stat")[11:13]
    with suppress(OSError):
        counters += Path(f"/proc/{pid}/io").read_text().split()
    return tuple(counters)


def _stat(path: str) -> list[str]:
    """The fields of a `stat` file of /proc after the command's name: the state and those after it. Empty if the process
    has ended."""
    try:
        return Path(path).read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
