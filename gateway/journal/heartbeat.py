"""Whether the event loop of a process, or a thread of it, hangs. Pure, but for what reads /proc.

Each process under the supervisor reports once a second (`child.Child.report`), which it does only while its loop turns.
The supervisor counts ticks of its own loop since it last heard of a process, and kills one that misses `hung_seconds`
of them. So no clock is compared: while the machine is suspended, or the supervisor itself is stopped or starved, it
counts nothing, and reads what the processes have told meanwhile before it counts much more. Nor does a tick count
against a process that the kernel does not let run: one that a debugger or `kill -STOP` has stopped, or one that waits
for a disk, which goes on by itself and which SIGKILL would not end sooner.

Clients watch a committer without a supervisor in the same way (`gateway/site/hung_committer.py`), and every committer
its own commit thread (`commit_watch.py`).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gateway.timing.durations import ProcessesTiming


class Heartbeat:
    """One life of a process, as its supervisor hears of it."""

    __slots__ = ("_hung_seconds", "_silent_seconds", "_times")

    def __init__(self, times: ProcessesTiming) -> None:
        self._times = times
        self._silent_seconds = 0.0
        self._hung_seconds = 0.0

    def record_report(self) -> None:
        """It said something."""
        self._silent_seconds = self._hung_seconds = 0.0

    def tick(self, *, suspended: bool) -> None:
        """The supervisor has waited for `report_seconds`. *suspended*: the kernel does not let the process run."""
        self._silent_seconds += self._times.report_seconds
        if not suspended:
            self._hung_seconds += self._times.report_seconds

    @property
    def is_responsive(self) -> bool:
        """It was heard lately."""
        return self._silent_seconds < self._times.silence_seconds

    @property
    def silent_seconds(self) -> float:
        """How long it has said nothing, with the time for which the kernel did not let it run."""
        return self._silent_seconds

    def is_hung(self, *, ready: bool) -> bool:
        """It is to be ended. *ready*: whether it has said that it does its work."""
        return self._hung_seconds >= (self._times.hung_seconds if ready else self._times.hung_starting_seconds)


def is_suspended(pid: int, thread: int | None = None) -> bool:
    """Whether a process, or one thread of it, is stopped, traced or in an uninterruptible wait. False for one that is
    gone."""
    return scheduler_state(pid, thread) in SUSPENDED


SUSPENDED = frozenset({"T", "t", "D"})
"""States of a process that does not run: stopped, stopped by a debugger, in an uninterruptible wait."""


def scheduler_state(pid: int, thread: int | None = None) -> str:
    """The kernel's letter for the state of a process, or of one thread of it (proc_pid_stat(5)); "" if it is gone."""
    return "".join(_stat(f"/proc/{pid}/stat" if thread is None else f"/proc/{pid}/task/{thread}/stat")[:1])


def work_done(pid: int) -> tuple[str, ...]:
    """What process *pid* has done so far: its processor time, and the bytes that it read and wrote (proc_pid_stat(5),
    proc_pid_io(5)). Two equal values: it did nothing in between. Empty if it is gone."""
    found = _stat(f"/proc/{pid}/stat")[11:13]
    with suppress(OSError):
        found += Path(f"/proc/{pid}/io").read_text().split()
    return tuple(found)


def _stat(path: str) -> list[str]:
    """The fields of a `stat` file of /proc from the state on, behind the command's name. Empty if the process is
    gone."""
    try:
        return Path(path).read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
