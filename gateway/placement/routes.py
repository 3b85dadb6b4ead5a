"""What a process knows of the ways to the backends: how near they are, how fast they were, whether they work.

Pure: the time and the chance come from whoever asks. One a process; nothing of it is shared or kept, since another
process's line may be another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import NamedTuple

from gateway.placement.breaker import Breaker, Health, State
from gateway.placement.measured import Measured, prior
from gateway.placement.order import Way, explored, read_order
from gateway.placement.policy import Place
from gateway.topology import Line

PATIENCE_TIMES = 4.0
"""A read that takes so many times what it should is slow: another copy is asked as well."""
PATIENCE_LEAST_S = 0.25
"""But nobody is slow before that."""
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


class Routes:
    """The ways from one cluster, with what this process measured."""

    def __init__(
        self,
        places: Iterable[Place] = (),
        home: str = "",
        lines: Mapping[frozenset[str], Line] | None = None,
        chance: Random | None = None,
    ) -> None:
        """*chance*: decides which reads explore. Backends that are no *places* count as ones of unknown clusters."""
        self._chance = chance or Random()  # noqa: S311 (nobody gains by foreseeing it)
        self._measured: dict[int, Measured] = {}
        self._breakers: dict[int, Breaker] = {}
        self._hedges = HEDGED_BURST
        self.version = 0
        """Grows with each `learn`, for who remembers `standing` orders."""
        self.learn(places, home, lines or {})

    def learn(self, places: Iterable[Place], home: str, lines: Mapping[frozenset[str], Line]) -> None:
        """The topology is another one from here on. What was measured stays."""
        self._places = {place.id: place for place in places}
        self._home = home
        self._lines = lines
        for backend, measured in self._measured.items():
            measured.prior = prior(self._cluster(backend), home, lines)
        self.version += 1

    # ---- orders --------------------------------------------------------------------------------------------------

    def standing(self, backends: Iterable[int]) -> list[int]:
        """All of *backends* by what the topology says alone: for what is at hand or is not, and so is never slow."""
        return [way.id for way in read_order(self._way(each, 0, None) for each in backends)]

    def order(self, backends: Iterable[int], size: int, now_s: float) -> list[int]:
        """All of *backends* in which order to read *size* bytes of a copy now."""
        ranked = read_order(self._way(each, size, now_s) for each in backends)
        return [way.id for way in explored(ranked, self._chance)]

    def reasons(self, backends: Iterable[int], size: int, now_s: float) -> list[Reason]:
        """As `order`, but without chance, and why."""
        found: list[Reason] = []
        for way in read_order(self._way(each, size, now_s) for each in backends):
            place = self._places.get(way.id)
            name = place.name if place else f"backend {way.id}"
            reads, health = self._of(way.id).reads, self._breaker(way.id).health(now_s)
            found.append(Reason(way.id, name, way.near, way.expected_s, reads, way.price_per_gib, health))
        return found

    # ---- slowness ------------------------------------------------------------------------------------------------

    def patience_s(self, asked: int, other: int, size: int) -> float:
        """How long to wait for *asked* before *other* is asked as well."""
        patience = max(PATIENCE_LEAST_S, PATIENCE_TIMES * self._of(asked).speed.seconds(size))
        return patience * DEARER_TIMES if self._price(other) > self._price(asked) else patience

    def may_hedge(self, slow: int, now_s: float) -> bool:
        """Whether another copy may be asked because *slow* is. Where *slow* does not work at all by now, that is no
        hedging, and always allowed."""
        if self._breaker(slow).health(now_s).state is not State.CLOSED:
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
        self._breaker(backend).asked(now_s)

    def answered(self, backend: int, size: int, seconds: float, now_s: float) -> bool:
        """It answered *size* bytes within *seconds*. Answers whether it works again by that."""
        self._of(backend).answered(size, seconds)
        return self._breaker(backend).answered(now_s)

    def refused(self, backend: int, now_s: float) -> bool:
        """It answered that it has no such block, or not that of it: the backend as a whole works. As `answered`."""
        return self._breaker(backend).answered(now_s)

    def failed(self, backend: int, reason: str, now_s: float) -> bool:
        """It did not answer. Answers whether it counts as broken from now on."""
        return self._breaker(backend).failed(now_s, reason)

    def outrun(self, backend: int, size: int, seconds: float, now_s: float) -> bool:
        """It was given up after *seconds*, since another copy had answered by then. As `failed`."""
        self._of(backend).unanswered(size, seconds)
        return self.failed(backend, f"no answer within {seconds:.3g} s", now_s)

    def healths(self, now_s: float) -> dict[str, Health]:
        """Every backend that was ever asked, by name."""
        named = ((self._places.get(backend), breaker) for backend, breaker in self._breakers.items())
        return {place.name: breaker.health(now_s) for place, breaker in named if place is not None}

    # ---- one backend ---------------------------------------------------------------------------------------------

    def _way(self, backend: int, size: int, now_s: float | None) -> Way:
        cluster = self._cluster(backend)
        near = cluster is not None and cluster == self._home
        if now_s is None:
            expected = prior(cluster, self._home, self._lines).seconds(8 << 20)
            return Way(backend, near, expected, self._price(backend), broken=False)
        expected = self._of(backend).speed.seconds(size)
        return Way(backend, near, expected, self._price(backend), self._breaker(backend).broken(now_s))

    def _cluster(self, backend: int) -> str | None:
        place = self._places.get(backend)
        return place.cluster if place is not None else None

    def _price(self, backend: int) -> float:
        cluster = self._cluster(backend)
        line = self._lines.get(frozenset((cluster, self._home))) if cluster is not None else None
        return line.price_per_gib if line is not None else 0.0

    def _of(self, backend: int) -> Measured:
        found = self._measured.get(backend)
        if found is None:
            found = self._measured[backend] = Measured(prior(self._cluster(backend), self._home, self._lines))
        return found

    def _breaker(self, backend: int) -> Breaker:
        found = self._breakers.get(backend)
        if found is None:
            found = self._breakers[backend] = Breaker()
        return found
