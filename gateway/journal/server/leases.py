"""The live sessions, with their leases and horizons. Kept in memory only.

A successor does not know the horizons that its predecessor knew. So each session that is still live in the tables gets
a whole lease to reconnect, and until it has done so, its horizon counts as 0: nothing that died is deleted meanwhile.

A session that is being ended keeps its horizon until its end is durable. Its own commands may still be queued before
that, and one of them may name a block that died meanwhile (see `gateway/blocks/write/block_put.py`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass


@dataclass
class Lease:
    session: int
    horizon: int
    """The lowest record number at which the session still reads; 0: unknown."""
    until: float
    """When it expires, in seconds, by the clock whose times the caller of `Leases` passes."""
    seen: bool = True
    """Whether the session's process is known to belong to this history."""


class Leases:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._leases: dict[int, Lease] = {}
        self._ending: dict[int, Lease] = {}

    def inherit(self, sessions: Iterable[int], now: float, unseen: Container[int] = ()) -> None:
        """Add the sessions that a predecessor left. If this journal is a copy, the processes of those in *unseen* may
        run elsewhere, with the original; once a process reconnects here, its session is seen."""
        for session in sessions:
            self._leases[session] = Lease(session, 0, now + self.seconds, session not in unseen)

    def open(self, session: int, horizon: int, now: float) -> None:
        """Add a new session."""
        self._leases[session] = Lease(session, horizon, now + self.seconds)

    def knows(self, session: int) -> bool:
        """Whether *session* is live, and not being ended."""
        return session in self._leases

    def renew(self, session: int, now: float, horizon: int | None = None) -> None:
        """Renew the lease of *session*, if it is live, and raise its horizon. A horizon never falls."""
        lease = self._leases.get(session)
        if lease is not None:
            lease.until, lease.seen = now + self.seconds, True
            if horizon is not None:
                lease.horizon = max(lease.horizon, horizon)

    def end(self, session: int) -> bool:
        """Begin to end *session*: it is not known any more, and its horizon counts until `ended`. Returns whether its
        process is known to belong to this history."""
        lease = self._leases.pop(session, None)
        if lease is not None:
            self._ending[session] = lease
        return lease is not None and lease.seen

    def ended(self, session: int) -> None:
        """The end of *session* is durable: drop its horizon, since none of its commands can be committed any more."""
        self._ending.pop(session, None)

    def revive(self, session: int, now: float) -> None:
        """The end of *session* could not be made durable: give it a lease again, which will expire once more."""
        lease = self._ending.pop(session, None)
        if lease is not None:
            self._leases[session] = Lease(session, lease.horizon, now + self.seconds, lease.seen)

    def extend_all(self, seconds: float) -> None:
        """Extend every lease by *seconds*, during which this process did not run and could read no renewal."""
        for lease in self._leases.values():
            lease.until += seconds

    def expired(self, now: float) -> list[int]:
        """The sessions whose lease has expired at *now*."""
        return [lease.session for lease in self._leases.values() if lease.until < now]

    def horizon(self, head: int, pins: Iterable[int]) -> int:
        """Return the lowest record number at which anybody may still read: the lowest of *head*, the horizons and
        *pins*. What died at it or before is not read any more."""
        held = (*self._leases.values(), *self._ending.values())
        return min([head, *(lease.horizon for lease in held), *pins])

    def __len__(self) -> int:
        return len(self._leases)
