"""What a process knows of the ways to the backends: how near they are, how fast they were, whether they work.

Pure: the time and the chance come from whoever asks. One a process; nothing of it is shared or kept, since another
process's line may be another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import NamedTuple

from gateway.placement.breaker import Breaker, Health, State
from gateway.placement.latency import UNKNOWN, LatencyEstimator, prior
from gateway.placement.order import Candidate, explored, read_order
from gateway.placement.policy import Place
from gateway.timing.durations import RoutesTiming
from gateway.topology import Line

DEFAULTS = RoutesTiming()

STANDING_BYTES = 8 << 20
"""What is read as far as a standing order is concerned: a block."""
PATIENCE_TIMES = 4.0
"""A read that takes so many times what it should, and `hedge_seconds`, is slow: another copy is asked as well."""
DEARER_TIMES = 4.0
"""So much longer is waited before the other copy is one whose line costs more."""
HEDGED_SHARE = 0.05
"""Of the reads that had another copy, this share may ask it as well because the first was slow."""
HEDGED_BURST = 8.0
"""So many may do so at once where none has for long."""


class Reason(NamedTuple):
    """Why a copy stands where it does in the order, for people."""

    id: int
    name: str
    near: bool
    expected_s: float
    """For the size that was asked about."""
    reads: int
    """From how many reads that was measured; 0: it is what the topology says."""
    price_per_gib: float
    health: Health

    def __str__(self) -> str:
        if self.health.state is State.OPEN:
            return f"last, since it does not work: {self.health.why}"
        where = "in this cluster" if self.near else "in another cluster"
        source = f"measured over {self.reads} reads" if self.reads else "by the topology"
        told = f"{where}, {self.expected_s * 1000:.3g} ms expected ({source})"
        return f"{told}; being tried again after {self.health.why}" if self.health.why else told


class _Known:
    """What is known of one backend."""

    __slots__ = ("breaker", "measured", "name", "near", "placed", "price_per_gib")

    def __init__(self, timing: RoutesTiming) -> None:
        self.measured = LatencyEstimator(UNKNOWN)
        self.breaker = Breaker(timing)
        self.place("", None, "", {})

    def place(self, name: str, cluster: str | None, home: str, lines: Mapping[frozenset[str], Line]) -> None:
        """The topology has it there, or, *cluster* being None, nowhere."""
        line = lines.get(frozenset((cluster, home))) if cluster is not None else None
        self.name = name
        self.placed = cluster is not None
        self.near = cluster is not None and cluster == home
        self.price_per_gib = line.price_per_gib if line is not None else 0.0
        self.measured.prior = prior(cluster, home, lines)

    def expected_s(self, size: int) -> float:
        return self.measured.speed.seconds(size)


class Routes:
    """The ways from one cluster, with what this process measured."""

    def __init__(
        self,
        places: Iterable[Place] = (),
        home: str = "",
        lines: Mapping[frozenset[str], Line] | None = None,
        chance: Random | None = None,
        *,
        timing: RoutesTiming = DEFAULTS,
    ) -> None:
        """*chance*: decides which reads explore. Backends that are no *places* count as ones of unknown clusters."""
        self._chance = chance or Random()  # noqa: S311 (nobody gains by foreseeing it)
        self._known: dict[int, _Known] = {}
        self._timing = timing
        self._hedges = HEDGED_BURST
        self.version = 0
        """Grows with each `set_topology`, for who remembers `standing` orders."""
        self.set_topology(places, home, lines or {})

    def set_topology(self, places: Iterable[Place], home: str, lines: Mapping[frozenset[str], Line]) -> None:
        """The topology is another one from here on. What was measured stays."""
        for known in self._known.values():
            known.place("", None, home, lines)
        for place in places:
            self._of(place.id).place(place.name, place.cluster, home, lines)
        self.version += 1

    # ---- orders --------------------------------------------------------------------------------------------------

    def standing(self, backends: Iterable[int]) -> list[int]:
        """All of *backends* by what the topology says alone: for what is at hand or is not, and so is never slow."""
        return [way.id for way in read_order(self._as_said(each) for each in backends)]

    def order(self, backends: Iterable[int], size: int, now_s: float) -> list[int]:
        """All of *backends* in which order to read *size* bytes of a copy now."""
        ranked = read_order([self._as_seen(each, size, now_s) for each in backends])
        return [way.id for way in explored(ranked, self._chance)]

    def reasons(self, backends: Iterable[int], size: int, now_s: float) -> list[Reason]:
        """As `order`, but without chance, and why."""
        found: list[Reason] = []
        for way in read_order(self._as_seen(each, size, now_s) for each in backends):
            known = self._of(way.id)
            name, reads, health = known.name or f"backend {way.id}", known.measured.reads, known.breaker.health(now_s)
            found.append(Reason(way.id, name, way.near, way.expected_s, reads, way.price_per_gib, health))
        return found

    # ---- slowness ------------------------------------------------------------------------------------------------

    def patience_s(self, asked: int, other: int, size: int) -> float:
        """How long to wait for *asked* before *other* is asked as well."""
        slow, next_one = self._of(asked), self._of(other)
        patience = max(self._timing.hedge_seconds, PATIENCE_TIMES * slow.expected_s(size))
        return patience * DEARER_TIMES if next_one.price_per_gib > slow.price_per_gib else patience

    def may_hedge(self, slow: int, now_s: float) -> bool:
        """Whether another copy may be asked because *slow* is. Where *slow* does not work at all by now, that is no
        hedging, and always allowed."""
        if self._of(slow).breaker.health(now_s).state is not State.CLOSED:
            return True
        if self._hedges < 1.0:
            return False
        self._hedges -= 1.0
        return True

    # ---- what became of a call -----------------------------------------------------------------------------------

    def begun(self) -> None:
        """A read begins that has several copies."""
        self._hedges = min(self._hedges + HEDGED_SHARE, HEDGED_BURST)

    def asked(self, backend: int, now_s: float) -> None:
        """A call of *backend* is made."""
        self._of(backend).breaker.asked(now_s)

    def answered(self, backend: int, size: int, seconds: float, now_s: float) -> bool:
        """It answered *size* bytes within *seconds*. Answers whether it works again by that."""
        known = self._of(backend)
        known.measured.answered(size, seconds)
        return known.breaker.answered(now_s)

    def refused(self, backend: int, now_s: float) -> bool:
        """It answered that it has no such block, or not that of it: the backend as a whole works. As `answered`."""
        return self._of(backend).breaker.answered(now_s)

    def failed(self, backend: int, reason: str, now_s: float) -> bool:
        """It did not answer. Answers whether it counts as broken from now on."""
        return self._of(backend).breaker.failed(now_s, reason)

    def outrun(self, backend: int, seconds: float, now_s: float) -> bool:
        """It was given up after *seconds*, since another copy had answered by then. As `failed`. How long it would
        have taken nobody knows, so it is not expected to take longer: then more would be waited each time."""
        return self.failed(backend, f"no answer within {seconds:.3g} s", now_s)

    def healths(self, now_s: float) -> dict[str, Health]:
        """Every backend that the topology names, by name."""
        return {known.name: known.breaker.health(now_s) for known in self._known.values() if known.placed}

    # ---- one backend ---------------------------------------------------------------------------------------------

    def _as_said(self, backend: int) -> Candidate:
        known = self._of(backend)
        expected_s = known.measured.prior.seconds(STANDING_BYTES)
        return Candidate(backend, known.near, expected_s, known.price_per_gib, broken=False)

    def _as_seen(self, backend: int, size: int, now_s: float) -> Candidate:
        known = self._of(backend)
        return Candidate(backend, known.near, known.expected_s(size), known.price_per_gib, known.breaker.broken(now_s))

    def _of(self, backend: int) -> _Known:
        found = self._known.get(backend)
        if found is None:
            found = self._known[backend] = _Known(self._timing)
        return found
