"""A backend that fails as planned: errors, delays, truncated, altered and false answers. For tests of every package.

    plan = FaultPlan([Fault(FaultKind.FLIP, "get", nth=3), Fault(FaultKind.ERROR, share=0.1)], seed=7)
    backend = Faulty(Memory(), plan)

The same plan, seed and sequence of calls cause the same faults.
"""

from __future__ import annotations

import asyncio
import fnmatch
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeVar, cast

from backends import errors
from backends.base import Backend, Buffer, Listed, crc32c_of
from backends.wrappers import Wrapper

T = TypeVar("T")


class FaultKind(Enum):
    """What goes wrong."""

    ERROR = auto()  # the call raises and has no effect
    ERROR_AFTER = auto()  # the call takes effect and raises: its answer was lost
    DELAY = auto()  # the call takes `seconds` longer; `get_now` returns None instead
    SHORT = auto()  # get: the answer lacks its second half. list: it ends here
    FLIP = auto()  # get: one bit of the answer differs
    STALE = auto()  # get: bytes of the right length that were never put
    DROP = auto()  # put: returns and stores nothing. delete, claim: returns and changes nothing
    HALF = auto()  # put: returns and stores the first half
    GONE = auto()  # get, stat: `NotFound`. list: the value is left out


_ANY = frozenset({FaultKind.ERROR, FaultKind.ERROR_AFTER, FaultKind.DELAY})
_ALTERING = frozenset({FaultKind.SHORT, FaultKind.FLIP, FaultKind.STALE})
_KINDS = {
    "put": _ANY | {FaultKind.DROP, FaultKind.HALF},
    "get": _ANY | _ALTERING | {FaultKind.GONE},
    "get_now": _ANY | _ALTERING | {FaultKind.GONE},
    "stat": _ANY | {FaultKind.GONE},
    "delete": _ANY | {FaultKind.DROP},
    "list": _ANY | {FaultKind.SHORT, FaultKind.GONE},
    "marker": _ANY,
    "claim": _ANY | {FaultKind.DROP},
    "close": frozenset[FaultKind](),
}
"""The faults that each operation can have."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong in the calls of *verb* (None: any) whose key matches *key*, a pattern of `fnmatch`.

    *nth*: only in the nth matching call, counted from 1. *share*: with this probability. *times*: at most so often.
    *verb* is a method's name; a fault of `get` strikes `get_now` too. A fault does nothing in an operation that cannot
    have its *kind*.
    """

    kind: FaultKind
    verb: str | None = None
    key: str = "*"
    nth: int | None = None
    share: float = 1.0
    times: int | None = None
    error: type[errors.BackendError] = errors.Unavailable
    seconds: float = 0.01


class Strike(NamedTuple):
    """A fault that struck a call."""

    verb: str
    key: str
    kind: FaultKind


class FaultPlan:
    """A list of faults, with counts of the calls that each matched and struck. `struck` lists all strikes."""

    def __init__(self, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        self.faults = list(faults)
        self.struck: list[Strike] = []
        self._random = random.Random(seed)  # noqa: S311 (repeatable on purpose)
        self._matched: dict[int, int] = {}
        self._struck: dict[int, int] = {}

    def add(self, fault: Fault) -> None:
        """Add *fault* to the plan, for calls from now on."""
        self.faults.append(fault)

    def clear(self) -> None:
        """Remove all faults and counts; `struck` stays."""
        self.faults.clear()
        self._matched.clear()
        self._struck.clear()

    def strike(self, verb: str, key: str) -> Fault | None:
        """Return the first fault that strikes this call; None where none does."""
        for number, fault in enumerate(self.faults):
            if fault.kind in _KINDS[verb] and self._strikes(number, fault, verb, key):
                self.struck.append(Strike(verb, key, fault.kind))
                return fault
        return None

    def alter(self, value: Buffer, kind: FaultKind) -> Buffer:
        """Return *value* as a fault of *kind* leaves it."""
        match kind:
            case FaultKind.SHORT:
                return value[: len(value) // 2]
            case FaultKind.FLIP:
                return self._flip_a_bit(value)
            case FaultKind.STALE:
                return self._random.randbytes(len(value))
            case _:
                return value

    def _flip_a_bit(self, value: Buffer) -> Buffer:
        flipped = bytearray(value)
        if flipped:
            flipped[self._random.randrange(len(flipped))] ^= 1 << self._random.randrange(8)
        return flipped

    def _strikes(self, number: int, fault: Fault, verb: str, key: str) -> bool:
        if fault.verb not in (None, verb) and not (fault.verb == "get" and verb == "get_now"):
            return False
        if not fnmatch.fnmatchcase(key, fault.key):
            return False
        self._matched[number] = self._matched.get(number, 0) + 1
        if fault.nth not in (None, self._matched[number]):
            return False
        if fault.times is not None and self._struck.get(number, 0) >= fault.times:
            return False
        if fault.share < 1.0 and self._random.random() >= fault.share:
            return False
        self._struck[number] = self._struck.get(number, 0) + 1
        return True


class Faulty(Wrapper):
    """Behaves as *inner*, except for the faults of *plan*."""

    def __init__(self, inner: Backend, plan: FaultPlan) -> None:
        super().__init__(inner)
        self._plan = plan

    async def _around(self, operation: str, key: str | None, call: Callable[[], Awaitable[T]]) -> T:
        fault = await self._begin(operation, key or "")
        if fault is None:
            return await call()
        if fault.kind is FaultKind.GONE:
            raise errors.NotFound("no such value, as planned", backend=self.name, key=key)
        if fault.kind is FaultKind.DROP:
            return cast("T", None)  # only operations without a result are dropped
        result = await call()
        self._end(operation, key or "", fault)
        return cast("T", self._plan.alter(cast("Buffer", result), fault.kind)) if fault.kind in _ALTERING else result

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        fault = await self._begin("put", key)
        if fault is not None and fault.kind is FaultKind.HALF:
            whole = b"".join(value)
            value = [whole[: len(whole) // 2]]
            crc32c = crc32c_of(value)
        if fault is None or fault.kind is not FaultKind.DROP:
            await self._inner.put(key, value, crc32c)
            self._end("put", key, fault)

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        value = self._inner.get_now(key, start, length)
        if value is None:
            return None
        fault = self._plan.strike("get_now", key)
        if fault is None:
            return value
        return self._plan.alter(value, fault.kind) if fault.kind in _ALTERING else None

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        async for value in self._inner.list(prefix, after):
            fault = await self._begin("list", value.key)
            if fault is not None and fault.kind is FaultKind.SHORT:
                return
            if fault is not None and fault.kind is FaultKind.GONE:
                continue
            yield value
            self._end("list", value.key, fault)

    async def _begin(self, verb: str, key: str) -> Fault | None:
        """Return the fault that strikes this call, after the part that precedes the call: an error or a delay."""
        fault = self._plan.strike(verb, key)
        if fault is None:
            return None
        if fault.kind is FaultKind.ERROR:
            raise fault.error(f"{verb} fails, as planned", backend=self.name, key=key or None)
        if fault.kind is FaultKind.DELAY:
            await asyncio.sleep(fault.seconds)
        return fault

    def _end(self, verb: str, key: str, fault: Fault | None) -> None:
        """Raise the error of a fault that loses the answer of a call that took effect."""
        if fault is not None and fault.kind is FaultKind.ERROR_AFTER:
            raise fault.error(f"the answer to {verb} is lost, as planned", backend=self.name, key=key or None)
