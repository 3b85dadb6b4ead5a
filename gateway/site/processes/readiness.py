"""The readiness probe: whether writes can be answered now. A commit succeeds, and backends store a value and return it.

The probe waits `quick_seconds` for all backends. After that it waits only for backends without which the writes of some
policy could not be answered; others that have not answered are reported as unavailable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from awscrt import checksums

from backends.base import Backend
from backends.errors import BackendError
from gateway.blocks.types import block_path
from gateway.crypto.ring_key_commands import DrawRingKeyId
from gateway.crypto.sealing import new_block_id
from gateway.errors import Unavailable
from gateway.journal.client import Journal
from gateway.site.processes.control_channel import Message
from gateway.site.storage.keyring import JournalTables
from gateway.timing import Timing
from gateway.topology import Topology

LEFT_MAX = 16
"""Keys per backend that are kept because a probe may have left its value there."""

VALUE = b"entrepot"


class _Trial(NamedTuple):
    began: float
    task: asyncio.Task[str]
    """Returns why the backend does not work; empty if it does."""


class ReadinessProbe:
    """The probes of the keeper. For one event loop."""

    def __init__(
        self,
        journal: Journal,
        rows: JournalTables,
        backends: Mapping[int, Backend],
        topology: Callable[[], Topology],
        timing: Timing,
    ) -> None:
        self._journal, self._rows, self._backends, self._topology = journal, rows, backends, topology
        self._limits, self._clock = timing.probes, timing.clock
        self._under_way: dict[Backend, _Trial] = {}
        self._left: dict[Backend, list[str]] = {}

    async def probe(self) -> Message:
        """Return how long the committer and the backends took, and which backends are unavailable.

        Raises `Unavailable` if writes of some policy could not be answered."""
        began = time.perf_counter()
        await self._journal.send(DrawRingKeyId())
        committed = time.perf_counter()
        away = await self._away()
        check_writes_possible(self._topology(), away)
        seconds = {"committer_seconds": committed - began, "backends_seconds": time.perf_counter() - committed}
        return seconds | ({"backends_away": away} if away else {})

    async def close(self) -> None:
        """Cancel the probes under way."""
        tasks = [trial.task for trial in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _away(self) -> dict[str, str]:
        """Return the backends that do not work, by name, and why."""
        began = self._clock.monotonic()
        open_backends = list(self._backends.values())
        for gone in self._under_way.keys() - set(open_backends):
            self._under_way.pop(gone).task.cancel()
            self._left.pop(gone, None)
        trials = {backend: self._trial_of(backend, began) for backend in open_backends}
        while True:
            away = {backend.name: why for backend, trial in trials.items() if (why := self._reason(trial))}
            away |= dict.fromkeys(self._lost(), "it was given up as lost")
            pending = [trial.task for trial in trials.values() if not trial.task.done()]
            quick = began + self._limits.quick_seconds - self._clock.monotonic()
            if not pending or (quick <= 0 and _impossible_write(self._topology(), away) is None):
                return away
            await asyncio.wait(pending, timeout=max(0.0, quick) or None, return_when=asyncio.FIRST_COMPLETED)

    def _trial_of(self, backend: Backend, now: float) -> _Trial:
        """Return the trial of *backend* that is under way, or a new one: there are never two at the same time."""
        trial = self._under_way.get(backend)
        if trial is None or trial.task.done():
            trial = self._under_way[backend] = _Trial(now, asyncio.create_task(self._bounded(backend)))
        return trial

    async def _bounded(self, backend: Backend) -> str:
        try:
            async with asyncio.timeout(self._limits.backend_seconds):
                return await self._try(backend)
        except TimeoutError:
            return f"backend {backend.name!r}: no answer within {self._limits.backend_seconds:g} s"
        except BackendError as error:
            return str(error)

    async def _try(self, backend: Backend) -> str:
        # The key of a block of this session: what a probe leaves there is swept with the session, at the latest.
        left = self._left.setdefault(backend, [])
        key = left[0] if len(left) >= LEFT_MAX else block_path(new_block_id(self._journal.session))
        if key not in left:
            left.append(key)
        await backend.put(key, [VALUE], checksums.crc32c(VALUE))
        whole = bytes(await backend.get(key)) == VALUE
        for each in list(left):
            await backend.delete(each)
            left.remove(each)
        return "" if whole else f"backend {backend.name!r}: it returned another value than the one that was stored"

    def _reason(self, trial: _Trial) -> str:
        if trial.task.done():
            return trial.task.result()
        return f"it has not answered for {self._clock.monotonic() - trial.began:.1f} s"

    def _lost(self) -> list[str]:
        return [name for (name,) in self._rows.query("SELECT name FROM backend WHERE lost = 1")]


def _impossible_write(topology: Topology, away: Mapping[str, str]) -> str | None:
    """Return why the writes of some policy cannot be answered; None if all can."""
    for policy in topology.policies.values():
        there = [name for name in topology.acked_on(policy) if name not in away]
        if len(there) < topology.copies_before_answer(policy):
            reasons = "; ".join(away[name] for name in topology.acked_on(policy) if name in away)
            return f"writes of policy {policy.name!r} cannot be answered: {reasons}"
    return None


def check_writes_possible(topology: Topology, away: Mapping[str, str]) -> None:
    """Raise `Unavailable` if the writes of some policy cannot be answered without the backends in *away*."""
    why = _impossible_write(topology, away)
    if why is not None:
        raise Unavailable(why)
