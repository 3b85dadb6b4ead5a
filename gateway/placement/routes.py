"""The order in which a process reads the copies of a block, and when it asks a second copy (a hedged read).

Theory of operation
-------------------
A process has one `Routes`, from its own cluster (`home`) to all backends. For each backend it holds three facts:

- where the backend is: its name, whether it is in `home`, and the price of the line to it. `set_topology` changes
  these.
- the latency: what the topology expects until reads have been measured (`latency.py`). `record_response` measures.
- the circuit: whether the backend works (`breaker.py`). All `record_*` methods change it.

The reader calls, for each read of several copies: `order`; `record_read`; then for each copy that it tries
`record_call` and exactly one of `record_response`, `record_answer_without_copy`, `record_failure` and
`record_overtaken`. While it waits, it may ask another copy after `hedge_after_s`, if `may_hedge` allows that.

Invariants:

- No backend is ever excluded. A broken one is tried last, since it may hold the only copy.
- Near copies come before far ones, whatever was measured. Exploring never makes a read cross a line (`order.explore`).
- At most `HEDGED_SHARE` of the reads are hedged in the long run, with bursts of `HEDGED_BURST`: a token bucket that
  `record_read` fills and `may_hedge` empties. So hedging cannot double the load on backends that are all slow. Asking
  another copy because the first backend is broken does not count.
- A new topology keeps the measurements, as far as backends keep their ids.

Pure: callers pass the time and the random source. Nothing is stored or shared, since another process may have another
line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import NamedTuple

from gateway.placement.breaker import Breaker, CircuitHealth, CircuitState
from gateway.placement.latency import UNKNOWN, LatencyEstimator, prior
from gateway.placement.order import Candidate, explore, read_order
from gateway.placement.policy import PlacedBackend
from gateway.timing.durations import RoutesTiming
from gateway.topology import Line

DEFAULTS = RoutesTiming()

STATIC_ORDER_BYTES = 8 << 20
"""The size of a read for which `static_order` sorts: a whole block."""
SLOW_TIMES = 4.0
"""A read is slow once it takes this many times the expected time, and `hedge_seconds` at least."""
COSTLIER_TIMES = 4.0
"""How many times longer a read waits before it asks another copy whose line costs more."""
HEDGED_SHARE = 0.05
"""Share of the reads with several copies that may be hedged."""
HEDGED_BURST = 8.0
"""How many reads may be hedged in a row after a time without any."""


class CopyRank(NamedTuple):
    """Why a copy has its place in the order, for people."""

    id: int
    name: str
    near: bool
    expected_s: float
    """For the size that was given."""
    reads: int
    """The number of measured reads; 0: the topology's estimate is used."""
    price_per_gib: float
    health: CircuitHealth

    def __str__(self) -> str:
        if self.health.state is CircuitState.OPEN:
            return f"last, since it does not work: {self.health.why}"
        where = "in this cluster" if self.near else "in another cluster"
        source = f"measured over {self.reads} reads" if self.reads else "by the topology"
        text = f"{where}, {self.expected_s * 1000:.3g} ms expected ({source})"
        return f"{text}; being tried again after {self.health.why}" if self.health.why else text


class _BackendState:
    """The facts about one backend."""

    __slots__ = ("breaker", "latency", "name", "near", "placed", "price_per_gib")

    def __init__(self, timing: RoutesTiming) -> None:
        self.latency = LatencyEstimator(UNKNOWN)
        self.breaker = Breaker(timing)
        self.place("", None, "", {})

    def place(self, name: str, cluster: str | None, home: str, lines: Mapping[frozenset[str], Line]) -> None:
        """Set where the backend is. *cluster* None: the topology does not name it."""
        line = lines.get(frozenset((cluster, home))) if cluster is not None else None
        self.name = name
        self.placed = cluster is not None
        self.near = cluster is not None and cluster == home
        self.price_per_gib = line.price_per_gib if line is not None else 0.0
        self.latency.prior = prior(cluster, home, lines)

    def expected_s(self, size: int) -> float:
        return self.latency.speed.seconds(size)


class Routes:
    """The routes from one cluster to the backends, with the measurements of this process."""

    def __init__(
        self,
        places: Iterable[PlacedBackend] = (),
        home: str = "",
        lines: Mapping[frozenset[str], Line] | None = None,
        chance: Random | None = None,
        *,
        timing: RoutesTiming = DEFAULTS,
    ) -> None:
        """*chance*: decides which reads explore. A backend that *places* lacks is treated as one of an unknown
        cluster."""
        self._chance = chance or Random()  # noqa: S311 (nobody gains by predicting it)
        self._states: dict[int, _BackendState] = {}
        self._timing = timing
        self._hedges = HEDGED_BURST
        self.version = 0
        """Grows with each `set_topology`, so that callers can cache what `static_order` returns."""
        self.set_topology(places, home, lines or {})

    def set_topology(self, places: Iterable[PlacedBackend], home: str, lines: Mapping[frozenset[str], Line]) -> None:
        """Replace the topology. Measurements are kept."""
        for state in self._states.values():
            state.place("", None, home, lines)
        for place in places:
            self._of(place.id).place(place.name, place.cluster, home, lines)
        self.version += 1

    # ---- orders --------------------------------------------------------------------------------------------------

    def static_order(self, backends: Iterable[int]) -> list[int]:
        """Sort *backends* by the topology alone, without measurements and health.

        For copies in the page cache: those are present or absent, and never slow."""
        return [candidate.id for candidate in read_order(self._by_topology(each) for each in backends)]

    def order(self, backends: Iterable[int], size: int, now_s: float) -> list[int]:
        """Sort *backends* into the order in which to try them for a read of *size* bytes now."""
        ranked = read_order([self._as_measured(each, size, now_s) for each in backends])
        return [candidate.id for candidate in explore(ranked, self._chance)]

    def explain(self, backends: Iterable[int], size: int, now_s: float) -> list[CopyRank]:
        """Return the order of `order`, without exploring, with the reason for each place."""
        ranks: list[CopyRank] = []
        for each in read_order(self._as_measured(backend, size, now_s) for backend in backends):
            state = self._of(each.id)
            name, health = state.name or f"backend {each.id}", state.breaker.health(now_s)
            ranks.append(
                CopyRank(each.id, name, each.near, each.expected_s, state.latency.reads, each.price_per_gib, health)
            )
        return ranks

    # ---- hedging -------------------------------------------------------------------------------------------------

    def hedge_after_s(self, tried: int, other: int, size: int) -> float:
        """Return how long to wait for a read of *size* bytes from *tried* before *other* is asked as well."""
        slow, next_one = self._of(tried), self._of(other)
        wait_s = max(self._timing.hedge_seconds, SLOW_TIMES * slow.expected_s(size))
        return wait_s * COSTLIER_TIMES if next_one.price_per_gib > slow.price_per_gib else wait_s

    def may_hedge(self, slow: int, now_s: float) -> bool:
        """Whether another copy may be asked because *slow* has not answered. Always true if *slow* counts as broken by
        now; otherwise this takes one hedge from the allowance."""
        if self._of(slow).breaker.health(now_s).state is not CircuitState.CLOSED:
            return True
        if self._hedges < 1.0:
            return False
        self._hedges -= 1.0
        return True

    # ---- outcomes of calls ---------------------------------------------------------------------------------------

    def record_read(self) -> None:
        """Record that a read with several copies starts."""
        self._hedges = min(self._hedges + HEDGED_SHARE, HEDGED_BURST)

    def record_call(self, backend: int, now_s: float) -> None:
        """Record that a call of *backend* starts."""
        self._of(backend).breaker.record_call(now_s)

    def record_response(self, backend: int, size: int, seconds: float, now_s: float) -> bool:
        """Record that *backend* returned *size* bytes within *seconds*. Returns whether it works again by that."""
        state = self._of(backend)
        state.latency.record(size, seconds)
        return state.breaker.record_success(now_s)

    def record_answer_without_copy(self, backend: int, now_s: float) -> bool:
        """Record that *backend* answered that it lacks the block or the range: the backend as a whole works. Returns
        whether it works again by that."""
        return self._of(backend).breaker.record_success(now_s)

    def record_failure(self, backend: int, reason: str, now_s: float) -> bool:
        """Record that *backend* did not answer. Returns whether it counts as broken from now on."""
        return self._of(backend).breaker.record_failure(now_s, reason)

    def record_overtaken(self, backend: int, seconds: float, now_s: float) -> bool:
        """Record that a call was cancelled after *seconds*, since another copy had answered by then. It counts as a
        failure; returns whether *backend* counts as broken from now on.

        The latency is not updated: how long the call would have taken is unknown, and a longer expected time would make
        the next read wait longer before it is hedged."""
        return self.record_failure(backend, f"no answer within {seconds:.3g} s", now_s)

    def health_by_name(self, now_s: float) -> dict[str, CircuitHealth]:
        """Return the health of every backend that the topology names."""
        return {state.name: state.breaker.health(now_s) for state in self._states.values() if state.placed}

    # ---- one backend ---------------------------------------------------------------------------------------------

    def _by_topology(self, backend: int) -> Candidate:
        state = self._of(backend)
        expected_s = state.latency.prior.seconds(STATIC_ORDER_BYTES)
        return Candidate(backend, state.near, expected_s, state.price_per_gib, broken=False)

    def _as_measured(self, backend: int, size: int, now_s: float) -> Candidate:
        state = self._of(backend)
        return Candidate(backend, state.near, state.expected_s(size), state.price_per_gib, state.breaker.is_open(now_s))

    def _of(self, backend: int) -> _BackendState:
        state = self._states.get(backend)
        if state is None:
            state = self._states[backend] = _BackendState(self._timing)
        return state
