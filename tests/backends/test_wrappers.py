"""Every wrapper keeps the contract, and does what it is for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest

from backends import errors
from backends.base import Backend, Marker
from backends.retry import Retrying
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from backends.timing import DriverTiming
from backends.wrappers import ConcurrencyLimited, Metered, ReadOnlyBackend, TimeLimited, Wrapper
from gateway.blocks.inline.backend import InlineBackend
from gateway.site.storage.marker_guard import MarkerGuard
from gateway.site.storage.pending_backend import PendingBackend
from gateway.timing import Timing, parse_timing
from tests.backends.contract import SITE, Contract, key, listed, put

T = TypeVar("T")


class TestConcurrencyLimited(Contract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        yield ConcurrencyLimited(Memory(), 2)


class TestTimeLimited(Contract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        yield TimeLimited(Memory(), 60)


class TestMetered(Contract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        yield Metered(Memory(), lambda *_: None)


class TestFaultyWithoutFaults(Contract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        yield Faulty(Memory(), FaultPlan())


class TestAllAtOnce(Contract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        yield Metered(TimeLimited(ConcurrencyLimited(Faulty(Memory(), FaultPlan()), 3), 60), lambda *_: None)


class TestAllAroundARemoteOne(Contract):
    """A tenth of all calls fail before they take effect, a tenth after."""

    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        plan = FaultPlan([Fault(FaultKind.ERROR, share=0.1), Fault(FaultKind.ERROR_AFTER, share=0.1)], seed=5)
        tries = Retrying(
            ConcurrencyLimited(Faulty(Memory(), plan), 3),
            tries=50,
            timing=DriverTiming(retry_first_seconds=0.0),
            share=1.0,
            reserve=10_000,
        )
        yield Metered(TimeLimited(tries, 60), lambda *_: None)


class TestMarkerGuard(Contract):
    """Before anybody has checked the marker."""

    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        yield MarkerGuard(Memory(), 3, seconds=60, timing=Timing())


async def opened_later(inner: Backend) -> PendingBackend:
    """A pending backend that has just been opened."""

    async def reopen() -> Backend:
        return inner

    timing = parse_timing("backends.reopen_seconds=0.001")
    pending, opened = PendingBackend("memory", "not yet", reopen, timing), asyncio.Event()
    pending.present = opened.set
    await opened.wait()
    return pending


class TestPendingBackendOnceOpened(Contract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        pending = await opened_later(Memory())
        yield pending
        await pending.close()


class TestALocalBackendThatWasOpenedLate(Contract):
    """All wrappers, in the order of production."""

    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        limited = TimeLimited(ConcurrencyLimited(Memory(), 3), 60)
        pending = await opened_later(Metered(limited, lambda *_: None))
        yield MarkerGuard(pending, 3, seconds=60, timing=Timing())
        await pending.close()


async def test_a_pending_backend_refuses_every_operation_with_the_reason() -> None:
    async def reopen() -> Backend:
        raise errors.Unavailable("away")

    pending = PendingBackend("far", "no route", reopen, parse_timing("backends.reopen_seconds=60"))
    operations: list[Callable[[], Awaitable[object]]] = [
        lambda: put(pending, key(1), b"x"),
        lambda: pending.get(key(1)),
        lambda: pending.stat(key(1)),
        lambda: pending.delete(key(1)),
        lambda: listed(pending.list()),
        pending.marker,
        lambda: pending.claim(Marker(SITE, 1, 1)),
    ]
    for operation in operations:
        with pytest.raises(errors.Unavailable, match="no route"):
            await operation()
    assert pending.get_now(key(1)) is None
    await pending.close()


class Recording(Wrapper):
    """Records what passes through `_around`."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.operations: list[tuple[str, str | None]] = []

    async def _around(self, operation: str, key: str | None, call: Callable[[], Awaitable[T]]) -> T:
        self.operations.append((operation, key))
        return await call()


class TestRecording(Contract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        yield Recording(Memory())


async def test_every_method_but_get_now_goes_through_around() -> None:
    backend = Recording(Memory())
    await put(backend, key(1), b"x")
    await backend.get(key(1))
    await backend.stat(key(1))
    await listed(backend.list())
    await backend.claim(Marker(SITE, 1, 1))
    await backend.marker()
    await backend.delete(key(1))
    await backend.close()
    with_key = [("put", key(1)), ("get", key(1)), ("stat", key(1))]
    listing = [("list", None), ("list", None)]  # a value, and the end
    without = [("claim", None), ("marker", None), ("delete", key(1)), ("close", None)]
    assert backend.operations == [*with_key, *listing, *without]
    methods = {operation for operation, _ in backend.operations} | {"get_now", "name"}
    assert methods == Backend.__abstractmethods__


def test_the_base_of_wrappers_overrides_every_method() -> None:
    assert set(Backend.__abstractmethods__) <= set(vars(Wrapper))


def test_the_contract_suite_runs_over_every_wrapper_of_production() -> None:
    """A new wrapper needs a class derived from `Contract`, here or in the test module of its own, and a row here."""
    tested = {ConcurrencyLimited, TimeLimited, Metered, Faulty, Retrying, MarkerGuard, PendingBackend, InlineBackend}
    tested.add(ReadOnlyBackend)  # which takes no values: its test is below
    ours = {each for each in Wrapper.__subclasses__() if not each.__module__.startswith("tests.")}
    assert ours == tested


async def test_a_read_only_backend_reads_and_refuses_every_change() -> None:
    inner = Memory()
    await put(inner, key(1), b"x")
    await inner.claim(Marker("site", 1, 1))
    backend = ReadOnlyBackend(inner)
    for change in (put(backend, key(2), b"y"), backend.delete(key(1)), backend.claim(Marker("site", 1, 2))):
        with pytest.raises(errors.ReadOnly, match="it was opened for reading only"):
            await change
    assert bytes(await backend.get(key(1))) == b"x"
    assert (await backend.stat(key(1))).size == 1
    assert [each.key async for each in backend.list()] == [key(1)]
    assert await backend.marker() == Marker("site", 1, 1)


class Counting(Memory):
    """How many calls are inside at once."""

    inside = most = 0

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes | bytearray | memoryview:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0.001)
        self.inside -= 1
        return await super().get(key, start, length)


async def test_a_limit_lets_no_more_calls_in_than_it_has_slots() -> None:
    inner = Counting()
    backend = ConcurrencyLimited(inner, 3)
    await put(backend, key(1), b"x")
    await asyncio.gather(*(backend.get(key(1)) for _ in range(20)))
    assert inner.most == 3


async def test_a_call_that_fails_or_is_cancelled_gives_its_slot_back() -> None:
    backend = ConcurrencyLimited(Faulty(Memory(), FaultPlan([Fault(FaultKind.DELAY, "stat", seconds=60)])), 1)
    with pytest.raises(errors.NotFound):
        await backend.get(key(1))
    waiting = asyncio.create_task(backend.stat(key(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    await put(backend, key(1), b"x")
    assert bytes(await backend.get(key(1))) == b"x"


async def test_a_listing_whose_reader_thinks_holds_no_slot() -> None:
    backend = ConcurrencyLimited(Memory(), 1)
    await put(backend, key(1), b"x")
    async for line in backend.list():
        assert bytes(await backend.get(line.key)) == b"x"


async def test_a_call_past_its_deadline_is_unavailable() -> None:
    plan = FaultPlan()
    backend = TimeLimited(Faulty(Memory(), plan), 0.01)
    await put(backend, key(1), b"x")
    plan.add(Fault(FaultKind.DELAY, seconds=60))
    calls = [
        put(backend, key(1), b"x"),
        backend.get(key(1)),
        backend.stat(key(1)),
        backend.delete(key(1)),
        listed(backend.list()),
        backend.marker(),
        backend.claim(Marker(SITE, 1, 1)),
    ]
    for call in calls:
        with pytest.raises(errors.Unavailable, match="within") as caught:
            await call
        assert isinstance(caught.value.__cause__, TimeoutError)


async def test_metering_tells_verb_outcome_and_bytes() -> None:
    told: list[tuple[str, str, int]] = []
    plan = FaultPlan([Fault(FaultKind.ERROR, "delete", error=errors.Full, times=1)])

    def observe(verb: str, outcome: str, seconds: float, moved: int) -> None:
        assert seconds >= 0
        told.append((verb, outcome, moved))

    backend = Metered(Faulty(Memory(), plan), observe)
    await put(backend, key(1), b"abc", b"de")
    assert backend.get_now(key(2)) is None
    assert backend.get_now(key(1), 1, 2) == b"bc"
    await backend.get(key(1), 1)
    for call in (backend.get(key(2)), backend.delete(key(1))):
        with pytest.raises(errors.BackendError):
            await call
    await listed(backend.list())
    async for _ in backend.list():
        break
    with pytest.raises(ValueError, match="key"):
        await backend.stat("")
    assert told[:7] == [
        ("put", "ok", 5),
        ("get_now", "miss", 0),
        ("get_now", "ok", 2),
        ("get", "ok", 4),
        ("get", "not_found", 0),
        ("delete", "full", 0),
        ("list", "ok", 0),
    ]
    assert ("stat", "bug", 0) in told


@pytest.mark.parametrize("wrap", [lambda inner: ConcurrencyLimited(inner, 0), lambda inner: TimeLimited(inner, 0)])
async def test_a_wrapper_that_would_let_nothing_through_is_refused(wrap: Callable[[Backend], Backend]) -> None:
    with pytest.raises(ValueError, match="nothing through"):
        wrap(Memory())
