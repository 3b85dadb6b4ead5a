"""Exponential backoff with trials, for backends (or other resources) that fail. Pure except for its clock.

A resource that failed is paused, and each further failure doubles the pause. After a pause only one block at a time is
tried there (a trial) until something succeeds. So a backend that still fails costs few requests, and delays few of the
blocks that another backend could take.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from gateway.timing import Clock

REJECTED_BLOCKS = 4
"""After a backend has rejected this many blocks as damaged, without storing one in between, the backend is at fault."""


K = TypeVar("K", bound=Hashable)


class BackendBackoff(Generic[K]):
    """Which resources have failed, which of them are paused now (`resource in backoff`), and why."""

    def __init__(self, clock: Clock, first_seconds: float, most_seconds: float) -> None:
        """*first_seconds*: the pause after a first failure. Each further failure doubles it, up to *most_seconds*."""
        self.clock = clock.monotonic
        self._first_seconds, self._most_seconds = first_seconds, most_seconds
        self._until: dict[K, float] = {}
        self._seconds: dict[K, float] = {}
        self._since: dict[K, float] = {}
        self._trying: dict[K, bytes] = {}
        self._rejected: dict[K, set[bytes]] = {}
        self._reasons: dict[K, str] = {}

    def record_failure(self, resource: K, reason: str, asked_seconds: float | None = None) -> bool:
        """Pause *resource*. *asked_seconds*: the shortest pause that the backend itself asked for.

        Returns whether it was not paused yet: several callers may meet the same failure at once, and it counts once."""
        self._reasons[resource] = reason
        if resource in self:
            return False
        seconds = 2 * self._seconds[resource] if resource in self._seconds else self._first_seconds
        seconds = self._seconds[resource] = min(self._most_seconds, max(seconds, asked_seconds or 0.0))
        self._since[resource] = self.clock()
        self._until[resource] = self._since[resource] + seconds
        return True

    def record_rejection(self, resource: K, block: bytes) -> bool:
        """Record that *resource* reports *block* to differ from what was sent. Returns whether *resource* itself is at
        fault: it has rejected `REJECTED_BLOCKS` blocks and stored none in between."""
        rejected = self._rejected.setdefault(resource, set())
        if len(rejected) < REJECTED_BLOCKS:
            rejected.add(block)
        return len(rejected) >= REJECTED_BLOCKS

    def record_success(self, resources: Iterable[K], began: float | None = None) -> None:
        """Record that calls of *resources* succeeded. *began*: when the calls began, by this object's clock. A call
        that began before the failure proves nothing, and is ignored."""
        for resource in resources:
            self._rejected.pop(resource, None)
            if resource in self._seconds and (began is None or began >= self._since[resource]):
                del self._seconds[resource], self._until[resource], self._since[resource], self._reasons[resource]
                self._trying.pop(resource, None)

    def allows(self, resource: K, block: bytes) -> bool:
        """Whether *block* may be tried at *resource* now."""
        return resource not in self._seconds or (resource not in self and self._trying.get(resource, block) == block)

    def start_trial(self, resources: Iterable[K], block: bytes) -> None:
        """Make *block* the only one that may be tried at those of *resources* that have failed, until `end_trial`."""
        for resource in resources:
            if resource in self._seconds:
                self._trying.setdefault(resource, block)

    def end_trial(self, block: bytes) -> None:
        """Let other blocks be tried where *block* was."""
        for resource in [resource for resource, trying in self._trying.items() if trying == block]:
            del self._trying[resource]

    def reasons(self) -> dict[K, str]:
        """Return the reason of the last failure of each resource, except those that nobody has tried for long."""
        latest = self.clock() - 2 * self._most_seconds
        return {resource: reason for resource, reason in self._reasons.items() if latest < self._until[resource]}

    def paused(self) -> list[K]:
        """Return the resources that are paused now."""
        return [resource for resource in self._until if resource in self]

    def __len__(self) -> int:
        """The number of resources that have failed and not succeeded since."""
        return len(self._seconds)

    def __contains__(self, resource: K) -> bool:
        """Whether *resource* is paused now."""
        return self._until.get(resource, 0.0) > self.clock()
