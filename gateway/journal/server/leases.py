"""Who is with the committer: sessions, their leases and their horizons. Scratch, in memory.

A successor does not know the horizons that its predecessor knew, so each session that is still live in the tables gets
a whole lease to come back, and until it has, its horizon counts as 0: nothing that died is deleted meanwhile.

A session that is being ended keeps its horizon until its end is durable: commands of its own may stand in the queue
before that, and one of them may name a block that died meanwhile (see `gateway/blocks/write/block_put.py`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass


@dataclass
class Lease:
    session: int
    horizon: int
    """The lowest number that it still reads at; 0 for not known."""
    until: float
    """On the clock that `Leases` is told, seconds."""
    seen: bool = True
    """Its process is known to belong to this history."""


class Leases:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._leases: dict[int, Lease] = {}
        self._ending: dict[int, Lease] = {}

    def inherit(self, sessions: Iterable[int], now: float, unseen: Container[int] = ()) -> None:
        """Sessions that a predecessor left. The processes of those in *unseen* may live elsewhere, with the original of
        a journal of which this is a copy; unless they come back here."""
        for session in sessions:
            self._leases[session] = Lease(session, 0, now + self.seconds, session not in unseen)

    def open(self, session: int, horizon: int, now: float) -> None:
        self._leases[session] = Lease(session, horizon, now + self.seconds)

    def knows(self, session: int) -> bool:
        return session in self._leases

    def beat(self, session: int, now: float, horizon: int | None = None) -> None:
        """It is still here. A horizon only rises."""
        lease = self._leases.get(session)
        if lease is not None:
            lease.until, lease.seen = now + self.seconds, True
            if horizon is not None:
                lease.horizon = max(lease.horizon, horizon)

    def end(self, session: int) -> bool:
        """It is not known any more; its horizon still counts, until `ended`. Answers whether its process is known to
        belong to this history."""
        lease = self._leases.pop(session, None)
        if lease is not None:
            self._ending[session] = lease
        return lease is not None and lease.seen

    def ended(self, session: int) -> None:
        """Its end is durable: none of its commands can be committed any more."""
        self._ending.pop(session, None)

    def revive(self, session: int, now: float) -> None:
        """Its end could not be made durable: it expires once more."""
        lease = self._ending.pop(session, None)
        if lease is not None:
            self._leases[session] = Lease(session, lease.horizon, now + self.seconds, lease.seen)

    def wait(self, seconds: float) -> None:
        """Nobody could be heard for so long (this process stood still): every lease runs so much longer."""
        for lease in self._leases.values():
            lease.until += seconds

    def expired(self, now: float) -> list[int]:
        return [lease.session for lease in self._leases.values() if lease.until < now]

    def horizon(self, head: int, pins: Iterable[int]) -> int:
        """The lowest number at which anybody may still read: what died at a lower one or at it is out of sight."""
        held = (*self._leases.values(), *self._ending.values())
        return min([head, *(lease.horizon for lease in held), *pins])

    def __len__(self) -> int:
        return len(self._leases)
