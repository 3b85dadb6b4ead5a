"""The committer's queue. Pure.

A job's weight is about the number of rows that its command looks up (`commands.command`). Light jobs are first come,
first served. Heavy ones wait in a lane for each user and take turns, one at a time between the light ones: so nobody
waits for more than one heavy command of each other user, however many of them one user sends.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from gateway.journal.turns import FairQueue

TURN_WEIGHT = 256
"""Weight of the light jobs that are taken at once: a few milliseconds of work."""
HEAVY_WEIGHT = 64
"""A job of this weight is heavy."""


class Job(NamedTuple):
    """A command to run, and who waits for its answer."""

    session: int
    slot: int
    number: int
    command: Any
    size: int
    """Bytes on the wire."""
    waiter: Any


class JobQueue:
    """Jobs that wait to be run."""

    def __init__(self) -> None:
        self._light: deque[tuple[int, Job]] = deque()
        """With their weights."""
        self._heavy: FairQueue[Job] = FairQueue()
        self._count = 0
        self.size = 0
        """Bytes of all jobs."""

    def __len__(self) -> int:
        return self._count

    def push(self, job: Job) -> None:
        """Add *job* behind the others of its lane."""
        weight = weight_of(job.command)
        if weight < HEAVY_WEIGHT:
            self._light.append((weight, job))
        else:
            self._heavy.push(getattr(job.command, "user", 0), job)
        self._count += 1
        self.size += job.size

    def take(self, jobs_max: int, bytes_max: int) -> list[Job]:
        """Remove and return the jobs to run without a break: light ones up to `TURN_WEIGHT`, and one heavy one."""
        taken: list[Job] = []
        size = weight = 0
        light = self._light
        while light and weight < TURN_WEIGHT and len(taken) < jobs_max and size < bytes_max:
            more, job = light.popleft()
            weight += more
            size += job.size
            taken.append(job)
        if self._heavy and len(taken) < jobs_max and size < bytes_max:
            job = self._heavy.pop()
            size += job.size
            taken.append(job)
        self._count -= len(taken)
        self.size -= size
        return taken

    def clear(self) -> list[Job]:
        """Remove and return all jobs."""
        jobs = [job for _, job in self._light]
        jobs += self._heavy
        self._light.clear()
        self._heavy.clear()
        self._count = self.size = 0
        return jobs


def weight_of(command: Any) -> int:
    """About how many rows a command looks up."""
    weigh = type(command).WEIGHT
    if weigh is None:
        return 1
    try:
        return int(weigh(command))
    except (TypeError, ValueError, AttributeError):
        return HEAVY_WEIGHT  # its fields are not what they should be; the command will fail, alone
