"""Retrying keeps the contract, retries what is safe and nothing else, and never makes a bad hour worse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from backends import errors
from backends.base import Backend, Marker
from backends.retry import RetryBudget, Retrying
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from backends.timing import DriverTiming
from tests.backends.contract import SITE, Contract, key, listed, put


class World:
    """A clock that only sleeping moves, and pauses that are drawn as long as they may be."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def around(self, inner: Backend, **settings: object) -> Retrying:
        given = {"clock": self, "draw": lambda: 1.0}
        return Retrying(inner, **(given | settings))  # type: ignore[arg-type]


@pytest.fixture
def world() -> World:
    return World()


class TestRetryingWhatNeverFails(Contract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        yield Retrying(Memory())


class TestRetryingWhatOftenFails(Contract):
    """A tenth of all calls fail before they take effect, a tenth after."""

    @pytest.fixture
    async def backend(self, world: World) -> AsyncIterator[Backend]:
        plan = FaultPlan([Fault(FaultKind.ERROR, share=0.1), Fault(FaultKind.ERROR_AFTER, share=0.1)], seed=11)
        yield world.around(Faulty(Memory(), plan), tries=50, within_s=1e9, share=1.0, reserve=10_000)


async def all_verbs(backend: Backend) -> None:
    await put(backend, key(1), b"x")
    assert bytes(await backend.get(key(1))) == b"x"
    assert (await backend.stat(key(1))).size == 1
    assert [line.key for line in await listed(backend.list())] == [key(1)]
    await backend.claim(Marker(SITE, 1, 1))
    assert await backend.marker() == Marker(SITE, 1, 1)
    await backend.delete(key(1))


@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.ERROR_AFTER])
@pytest.mark.parametrize("verb", ["put", "get", "stat", "list", "claim", "marker", "delete"])
async def test_every_verb_is_tried_again(world: World, verb: str, kind: FaultKind) -> None:
    plan = FaultPlan([Fault(kind, verb, times=2)])
    retried: list[str] = []
    await all_verbs(world.around(Faulty(Memory(), plan), on_retry=lambda operation, *_: retried.append(operation)))
    once = kind is FaultKind.ERROR_AFTER and verb in (
        "claim",
        "list",
    )  # the marker shows the claim; the value was yielded
    expected = 1 if once else 2
    assert retried == [verb] * expected
    assert len(world.slept) == expected


OTHERS = [
    errors.Full,
    errors.Denied,
    errors.Corrupted,
    errors.ReadOnly,
    errors.OwnedByAnotherSite,
    errors.Misconfigured,
]


@pytest.mark.parametrize("error", OTHERS)
async def test_what_will_not_be_better_is_not_tried_again(world: World, error: type[errors.BackendError]) -> None:
    plan = FaultPlan([Fault(FaultKind.ERROR, error=error)])
    backend = world.around(Faulty(Memory(), plan))
    for call in (put(backend, key(1), b"x"), backend.get(key(1)), backend.delete(key(1)), backend.marker()):
        with pytest.raises(error):
            await call
    assert len(plan.struck) == 4
    assert world.slept == []


async def test_pauses_double_up_to_the_longest_and_the_error_says_how_often(world: World) -> None:
    backend = world.around(
        Faulty(Memory(), FaultPlan([Fault(FaultKind.ERROR)])),
        tries=6,
        timing=DriverTiming(retry_first_seconds=0.1, retry_most_seconds=0.5),
        within_s=60,
    )
    with pytest.raises(errors.Unavailable) as caught:
        await backend.get(key(1))
    assert world.slept == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])
    assert caught.value.__notes__ == ["get was tried 6 times"]


async def test_a_pause_is_drawn_from_nothing_to_its_longest() -> None:
    world, draws = World(), iter([0.0, 0.5, 0.25])
    backend = world.around(
        Faulty(Memory(), FaultPlan([Fault(FaultKind.ERROR)])),
        tries=4,
        draw=lambda: next(draws),
        timing=DriverTiming(retry_first_seconds=0.4),
    )
    with pytest.raises(errors.Unavailable):
        await backend.stat(key(1))
    assert world.slept == pytest.approx([0.0, 0.4, 0.4])


async def test_no_pause_ends_behind_the_time_that_is_given(world: World) -> None:
    backend = world.around(
        Faulty(Memory(), FaultPlan([Fault(FaultKind.ERROR)])),
        tries=99,
        timing=DriverTiming(retry_first_seconds=1, retry_most_seconds=4),
        within_s=8,
    )
    with pytest.raises(errors.Unavailable):
        await backend.get(key(1))
    assert world.slept == [1, 2, 4]
    assert world.now <= 8


class Busy(Memory):
    """Asks to be left alone for a while."""

    def __init__(self, retry_after_s: float, times: int) -> None:
        super().__init__()
        self._retry_after_s, self._times = retry_after_s, times

    async def marker(self) -> Marker | None:
        if self._times:
            self._times -= 1
            error = errors.Unavailable("busy")
            error.retry_after_s = self._retry_after_s
            raise error
        return await super().marker()


async def test_a_retry_after_is_honoured(world: World) -> None:
    assert await world.around(Busy(7, times=1), timing=DriverTiming(retry_first_seconds=0.1)).marker() is None
    assert world.slept == pytest.approx([7.1])


async def test_a_retry_after_behind_the_time_that_is_given_fails_at_once(world: World) -> None:
    with pytest.raises(errors.Unavailable, match="busy"):
        await world.around(Busy(31, times=1), within_s=30).marker()
    assert world.slept == []


async def test_where_everything_fails_retries_are_a_share_of_the_calls(world: World) -> None:
    plan = FaultPlan([Fault(FaultKind.ERROR)])
    backend = world.around(Faulty(Memory(), plan), share=0.2, reserve=10, within_s=1e9)
    for _ in range(1_000):
        with pytest.raises(errors.Unavailable):
            await backend.get(key(1))
    retries = len(plan.struck) - 1_000
    assert 200 <= retries <= 0.2 * 1_000 + 10
    plan.clear()
    await put(backend, key(1), b"x")


async def test_the_reserve_grows_back_while_all_is_well_and_no_further(world: World) -> None:
    budget = RetryBudget(share=0.5, reserve=3)
    assert [budget.spend() for _ in range(4)] == [True, True, True, False]
    budget.earn()
    assert not budget.spend()
    for _ in range(100):
        budget.earn()
    assert [budget.spend() for _ in range(4)] == [True, True, True, False]


async def test_a_listing_tells_each_line_once_however_often_it_breaks_off(world: World) -> None:
    inner = Memory()
    for number in range(50):
        await put(inner, key(number), b"x")
    plan = FaultPlan(
        [Fault(FaultKind.ERROR, "list", share=0.3), Fault(FaultKind.ERROR_AFTER, "list", share=0.2)], seed=3
    )
    backend = world.around(Faulty(inner, plan), tries=20, within_s=1e9, reserve=1_000)
    assert [line.key for line in await listed(backend.list())] == [key(number) for number in range(50)]
    assert len(plan.struck) > 10


async def test_a_listing_earns_retries_by_the_page(world: World) -> None:
    inner = Memory()
    for number in range(10_000):
        await put(inner, key(number), b"")
    plan = FaultPlan([Fault(FaultKind.ERROR, "list", key=f"*{number:x}999", times=1) for number in range(16)])
    backend = world.around(Faulty(inner, plan), share=1.0, reserve=1)
    assert len(await listed(backend.list())) == 10_000
    assert len(plan.struck) == 2


async def test_a_listing_that_gets_nowhere_is_given_up(world: World) -> None:
    backend = world.around(Faulty(Memory(), FaultPlan([Fault(FaultKind.ERROR, "list")])), tries=3)
    await put(backend, key(1), b"x")
    with pytest.raises(errors.Unavailable):
        await listed(backend.list())
    assert len(world.slept) == 2


class Overruled(Memory):
    """Its first claim gets no answer, and before the second a later incarnation of the site has claimed the place."""

    calls = 0

    async def claim(self, marker: Marker) -> None:
        self.calls += 1
        await super().claim(marker)
        if self.calls == 1:
            await super().claim(marker._replace(incarnation=marker.incarnation + 1))
            raise errors.Unavailable("no answer")


async def test_a_claim_that_was_overruled_meanwhile_is_foreign(world: World) -> None:
    inner = Overruled()
    with pytest.raises(errors.OwnedByAnotherSite, match="restored"):
        await world.around(inner).claim(Marker(SITE, 1, 1))
    assert await inner.marker() == Marker(SITE, 1, 2)


async def test_what_is_at_hand_needs_no_retry(world: World) -> None:
    backend = world.around(Memory())
    await put(backend, key(1), b"x")
    assert backend.get_now(key(1)) == b"x"
    assert backend.name == "memory"
    await backend.close()


BAD: list[Callable[[], object]] = [
    lambda: Retrying(Memory(), tries=0),
    lambda: Retrying(Memory(), within_s=-1),
    lambda: Retrying(Memory(), share=2),
    lambda: Retrying(Memory(), reserve=-1),
]


@pytest.mark.parametrize("make", BAD)
def test_nonsense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="no "):
        make()
