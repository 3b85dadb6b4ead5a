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
from gateway.placement.order import Candidate, explore, read_order
from gateway.placement.policy import PlacedBackend
from gateway.timing.durations import RoutesTiming
from gateway.topology import Line

DEFAULTS = RoutesTiming()

STATIC_ORDER_BYTES = 8 << 20
"""What is read as far as a standing order is concerned: a block."""
SLOW_TIMES = 4.0
"""A read that takes so many times what it should, and `hedge_seconds`, is slow: another copy is asked as well."""
COSTLIER_TIMES = 4.0
"""So much longer is waited before the other copy is one whose line costs more."""
HEDGED_SHARE = 0.05
"""Of the reads that had another copy, this share may ask it as well because the first was slow."""
HEDGED_BURST = 8.0
"""So many may do so at once where none has for long."""


class CopyRank(NamedTuple):
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


class _BackendState:
    """What is known of one backend."""

    __slots__ = ("breaker", "latency", "name", "near", "placed", "price_per_gib")

    def __init__(self, timing: RoutesTiming) -> None:
        self.latency = LatencyEstimator(UNKNOWN)
        self.breaker = Breaker(timing)
        self.place("", None, "", {})

    def place(self, name: str, cluster: str | None, home: str, lines: Mapping[frozenset[str], Line]) -> None:
        """The topology has it there, or, *cluster* being None, nowhere."""
        line = lines.get(frozenset((cluster, home))) if cluster is not None else None
        self.name = name
        self.placed = cluster is not None
        self.near = cluster is not None and cluster == home
        self.price_per_gib = line.price_per_gib if line is not None else 0.0
        self.latency.prior = prior(cluster, home, lines)

    def expected_s(self, size: int) -> float:
        return self.latency.speed.seconds(size)


class Routes:
    """The ways from one cluster, with what this process measured."""

    def __init__(
        self,
        places: Iterable[PlacedBackend] = (),
        home: str = "",
        lines: Mapping[frozenset[str], Line] | None = None,
        chance: Random | None = None,
        *,
        timing: RoutesTiming = DEFAULTS,
    ) -> None:
        """*chance*: decides which reads explore. Backends that are no *places* count as ones of unknown clusters."""
        self._chance = chance or Random()  # noqa: S311 (nobody gains by foreseeing it)
        self._states: dict[int, _BackendState] = {}
        self._timing = timing
        self._hedges = HEDGED_BURST
        self.version = 0
        """Grows with each `set_topology`, for who remembers `static_order` orders."""
        self.set_topology(places, home, lines or {})

    def set_topology(self, places: Iterable[PlacedBackend], home: str, lines: Mapping[frozenset[str], Line]) -> None:
        """The topology is another one from here on. What was measured stays."""
        for known in self._states.values():
            known.place("", None, home, lines)
        for place in places:
            self._of(place.id).place(place.name, place.cluster, home, lines)
        self.version += 1

    # ---- orders --------------------------------------------------------------------------------------------------

    def static_order(self, backends: Iterable[int]) -> list[int]:
        """All of *backends* by what the topology says alone: for what is at hand or is not, and so is never slow."""
        return [candidate.id for candidate in read_order(self._by_topology(each) for each in backends)]

    def order(self, backends: Iterable[int], size: int, now_s: float) -> list[int]:
        """All of *backends* in which order to read *size* bytes of a copy now."""
        ranked = read_order([self._as_measured(each, size, now_s) for each in backends])
        return [candidate.id for candidate in explore(ranked, self._chance)]

    def explain(self, backends: Iterable[int], size: int, now_s: float) -> list[CopyRank]:
        """As `order`, but without chance, and why."""
        found: list[CopyRank] = []
        for candidate in read_order(self._as_measured(each, size, now_s) for each in backends):
            known = self._of(candidate.id)
            name, reads, health = (
                known.name or f"backend {candidate.id}",
                known.latency.reads,
                known.breaker.health(now_s),
            )
            found.append(
                CopyRank(
                    candidate.id, name, candidate.near, candidate.expected_s, reads, candidate.price_per_gib, health
                )
            )
        return found

    # ---- slowness ------------------------------------------------------------------------------------------------

    def hedge_after_s(self, asked: int, other: int, size: int) -> float:
        """How long to wait for *asked* before *other* is asked as well."""
        slow, next_one = self._of(asked), self._of(other)
        patience = max(self._timing.hedge_seconds, SLOW_TIMES * slow.expected_s(size))
        return patience * COSTLIER_TIMES if next_one.price_per_gib > slow.price_per_gib else patience

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

    def record_read(self) -> None:
        """A read begins that has several copies."""
        self._hedges = min(self._hedges + HEDGED_SHARE, HEDGED_BURST)

    def record_call(self, backend: int, now_s: float) -> None:
        """A call of *backend* is made."""
        self._of(backend).breaker.record_call(now_s)

    def record_response(self, backend: int, size: int, seconds: float, now_s: float) -> bool:
        """It answered *size* bytes within *seconds*. Answers whether it works again by that."""
        known = self._of(backend)
        known.latency.record(size, seconds)
        return known.breaker.record_success(now_s)

    def record_refusal(self, backend: int, now_s: float) -> bool:
        """It answered that it has no such block, or not that of it: the backend as a whole works. As `answered`."""
        return self._of(backend).breaker.record_success(now_s)

    def record_failure(self, backend: int, reason: str, now_s: float) -> bool:
        """It did not answer. Answers whether it counts as broken from now on."""
        return self._of(backend).breaker.record_failure(now_s, reason)

    def record_overtaken(self, backend: int, seconds: float, now_s: float) -> bool:
        """It was given up after *seconds*, since another copy had answered by then. As `failed`. How long it would
        have taken nobody knows, so it is not expected to take longer: then more would be waited each time."""
        return self.record_failure(backend, f"no answer within {seconds:.3g} s", now_s)

    def health_by_name(self, now_s: float) -> dict[str, Health]:
        """Every backend that the topology names, by name."""
        return {known.name: known.breaker.health(now_s) for known in self._states.values() if known.placed}

    # ---- one backend ---------------------------------------------------------------------------------------------

    def _by_topology(self, backend: int) -> Candidate:
        known = self._of(backend)
        expected_s = known.latency.prior.seconds(STATIC_ORDER_BYTES)
        return Candidate(backend, known.near, expected_s, known.price_per_gib, broken=False)

    def _as_measured(self, backend: int, size: int, now_s: float) -> Candidate:
        known = self._of(backend)
        return Candidate(backend, known.near, known.expected_s(size), known.price_per_gib, known.breaker.is_open(now_s))

    def _of(self, backend: int) -> _BackendState:
        found = self._states.get(backend)
        if found is None:
            found = self._states[backend] = _BackendState(self._timing)
        return found
