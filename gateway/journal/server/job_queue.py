"""The committer's queue of jobs. Pure.

A job's weight is about the number of rows that its command looks up (`commands.command`). Light jobs are served in the
order in which they arrive. Heavy jobs wait in one queue per user; the users take turns, and one heavy job runs at a
time between the light ones. So a user waits for at most one heavy command of each other user, however many these send.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from gateway.journal.commands import HEAVY_WEIGHT, weight_of
from gateway.journal.inline_values import Attachment
from gateway.journal.turns import FairQueue

TURN_WEIGHT = 256
"""Total weight of the light jobs that run without a break: a few milliseconds of work."""


class Job(NamedTuple):
    """A command to run, and the waiter for its result."""

    session: int
    slot: int
    number: int
    command: Any
    size: int
    """Bytes on the wire."""
    waiter: Any
    """A function of the `CommandResult`, a `ClientConnection`, or None."""
    attachment: Attachment = ()


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
        """Add *job* at the end of its queue: that of the light jobs, or that of its user's heavy ones."""
        weight = weight_of(job.command)
        if weight < HEAVY_WEIGHT:
            self._light.append((weight, job))
        else:
            self._heavy.push(getattr(job.command, "user", 0), job)
        self._count += 1
        self.size += job.size

    def take(self, jobs_max: int, bytes_max: int) -> list[Job]:
        """Remove and return jobs to run without a break: light ones up to `TURN_WEIGHT`, and one heavy one; at most
        *jobs_max*, and none once *bytes_max* is reached."""
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
