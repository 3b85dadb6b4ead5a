"""A backend that fails as planned: errors, delays, torn answers, lies. For tests, of this and of every other room.

    plan = Plan([Fault(Kind.FLIP, verb="get", nth=3), Fault(Kind.ERROR, share=0.1, error=Unavailable)], seed=7)
    backend = Faulty(Memory(), plan)

The same plan, seed and sequence of calls give the same faults.
"""

from __future__ import annotations

import asyncio
import fnmatch
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from backends import errors
from backends.base import Backend, Buffer, Listed, Marker, Stat, crc32c_of


class FaultKind(Enum):
    """What goes wrong."""

    ERROR = auto()  # the call raises and has no effect
    ERROR_AFTER = auto()  # the call takes effect, and raises all the same: its answer was lost
    DELAY = auto()  # the call takes `seconds` longer (`get_now` has nothing at hand instead)
    SHORT = auto()  # get: the answer lacks its second half. list: it ends here
    FLIP = auto()  # get: one bit of the answer differs
    STALE = auto()  # get: bytes of the right length that were never put
    DROP = auto()  # put: says yes and stores nothing. delete: says yes and keeps it
    HALF = auto()  # put: says yes and stores the first half
    GONE = auto()  # get, stat: says that there is no such value. list: leaves it out


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. It may strike where *verb* (None: any) and *key* (a pattern as of `fnmatch`) fit.

    *nth*: only the nth such call, from 1 on. *share*: with this probability. *times*: at most so often.
    Verbs are the methods' names; `get_now` is struck as `get` too. *kind* must suit the verb; it is passed over where
    it means nothing.
    """

    kind: FaultKind
    verb: str | None = None
    key: str = "*"
    nth: int | None = None
    share: float = 1.0
    times: int | None = None
    error: type[errors.BackendError] = errors.Unavailable
    seconds: float = 0.01


class FaultPlan:
    """Faults, and how often each has met a call that fits and struck."""

    def __init__(self, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        self.faults = list(faults)
        self.struck: list[tuple[str, str, FaultKind]] = []  # (verb, key, kind) of each strike, for assertions
        self._random = random.Random(seed)  # noqa: S311 (repeatable on purpose)
        self._met: dict[int, int] = {}
        self._struck: dict[int, int] = {}

    def add(self, fault: Fault) -> None:
        """One more from now on."""
        self.faults.append(fault)

    def clear(self) -> None:
        """From now on nothing goes wrong."""
        self.faults.clear()
        self._met.clear()
        self._struck.clear()

    def strike(self, verb: str, key: str, kinds: frozenset[FaultKind]) -> Fault | None:
        """The first fault that strikes this call, if any; it must be one of *kinds*."""
        for number, fault in enumerate(self.faults):
            if fault.kind in kinds and self._strikes(number, fault, verb, key):
                self.struck.append((verb, key, fault.kind))
                return fault
        return None

    def flipped(self, value: Buffer) -> Buffer:
        """*value* with one bit turned over; an empty one as it is."""
        torn = bytearray(value)
        if torn:
            torn[self._random.randrange(len(torn))] ^= 1 << self._random.randrange(8)
        return torn

    def noise(self, size: int) -> Buffer:
        """Bytes that nobody put."""
        return self._random.randbytes(size)

    def _strikes(self, number: int, fault: Fault, verb: str, key: str) -> bool:
        if fault.verb not in (None, verb) and not (fault.verb == "get" and verb == "get_now"):
            return False
        if not fnmatch.fnmatchcase(key, fault.key):
            return False
        self._met[number] = self._met.get(number, 0) + 1
        if fault.nth not in (None, self._met[number]):
            return False
        if fault.times is not None and self._struck.get(number, 0) >= fault.times:
            return False
        if fault.share < 1.0 and self._random.random() >= fault.share:
            return False
        self._struck[number] = self._struck.get(number, 0) + 1
        return True


_ANY = frozenset({FaultKind.ERROR, FaultKind.ERROR_AFTER, FaultKind.DELAY})
_PUT = _ANY | {FaultKind.DROP, FaultKind.HALF}
_GET = _ANY | {FaultKind.SHORT, FaultKind.FLIP, FaultKind.STALE, FaultKind.GONE}


class Faulty(Backend):
    """*inner*, but for what *plan* lets go wrong."""

    def __init__(self, inner: Backend, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan

    @property
    def name(self) -> str:
        return self._inner.name

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        fault = await self._begin("put", key, _PUT)
        if fault is None:
            await self._inner.put(key, value, crc32c)
        elif fault.kind is FaultKind.HALF:
            whole = b"".join(value)
            half = whole[: len(whole) // 2]
            await self._inner.put(key, [half], crc32c_of([half]))
        elif fault.kind is not FaultKind.DROP:
            await self._inner.put(key, value, crc32c)
            self._end("put", key, fault)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        fault = await self._begin("get", key, _GET)
        if fault is not None and fault.kind is FaultKind.GONE:
            raise errors.NotFound("no such value, as planned", backend=self.name, key=key)
        value = await self._inner.get(key, start, length)
        self._end("get", key, fault)
        return self._spoilt(value, fault)

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        value = self._inner.get_now(key, start, length)
        if value is None:
            return None
        fault = self._plan.strike("get_now", key, _GET)
        if fault is not None and fault.kind not in (FaultKind.SHORT, FaultKind.FLIP, FaultKind.STALE):
            return None
        return self._spoilt(value, fault)

    async def stat(self, key: str) -> Stat:
        fault = await self._begin("stat", key, _ANY | {FaultKind.GONE})
        if fault is not None and fault.kind is FaultKind.GONE:
            raise errors.NotFound("no such value, as planned", backend=self.name, key=key)
        found = await self._inner.stat(key)
        self._end("stat", key, fault)
        return found

    async def delete(self, key: str) -> None:
        fault = await self._begin("delete", key, _ANY | {FaultKind.DROP})
        if fault is None or fault.kind is not FaultKind.DROP:
            await self._inner.delete(key)
            self._end("delete", key, fault)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        async for line in self._inner.list(prefix, after):
            fault = await self._begin("list", line.key, _ANY | {FaultKind.SHORT, FaultKind.GONE})
            if fault is not None and fault.kind is FaultKind.SHORT:
                return
            if fault is not None and fault.kind is FaultKind.GONE:
                continue
            yield line
            self._end("list", line.key, fault)

    async def marker(self) -> Marker | None:
        fault = await self._begin("marker", "", _ANY)
        found = await self._inner.marker()
        self._end("marker", "", fault)
        return found

    async def claim(self, marker: Marker) -> None:
        fault = await self._begin("claim", "", _ANY | {FaultKind.DROP})
        if fault is None or fault.kind is not FaultKind.DROP:
            await self._inner.claim(marker)
            self._end("claim", "", fault)

    async def close(self) -> None:
        await self._inner.close()

    async def _begin(self, verb: str, key: str, kinds: frozenset[FaultKind]) -> Fault | None:
        """What strikes this call, once what comes before the call is done: an error or a delay."""
        fault = self._plan.strike(verb, key, kinds)
        if fault is None:
            return None
        if fault.kind is FaultKind.ERROR:
            raise fault.error(f"{verb} fails, as planned", backend=self.name, key=key or None)
        if fault.kind is FaultKind.DELAY:
            await asyncio.sleep(fault.seconds)
        return fault

    def _end(self, verb: str, key: str, fault: Fault | None) -> None:
        if fault is not None and fault.kind is FaultKind.ERROR_AFTER:
            raise fault.error(f"the answer to {verb} is lost, as planned", backend=self.name, key=key or None)

    def _spoilt(self, value: Buffer, fault: Fault | None) -> Buffer:
        match fault.kind if fault is not None else None:
            case FaultKind.SHORT:
                return value[: len(value) // 2]
            case FaultKind.FLIP:
                return self._plan.flipped(value)
            case FaultKind.STALE:
                return self._plan.noise(len(value))
            case _:
                return value
