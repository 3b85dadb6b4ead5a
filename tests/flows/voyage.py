"""A run of the tests of kills: rounds of load, kills and restarts, and behind each the look at what is left.

A round: the clients work until so many writes were acknowledged; then some processes are killed, perhaps others while
they start again; the clients work on through all of it, and a little longer; then they stop, and everything that was
touched, and some of what was not, is read and compared with the ledger.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from tests.flows.killing import PLANS, Served
from tests.flows.ledger import Broken, Ledger, check_parts, check_uploads
from tests.flows.load import AGAIN_SECONDS, BUCKET, Client
from tests.flows.wire import Unanswered, Wire, expect

T = TypeVar("T")
CLIENTS = 16
ACKNOWLEDGED = 200
"""Writes that are acknowledged in a round before anybody is killed."""
AFTERWARDS = 20
"""And behind the restart, before the clients stop."""
SAMPLE = 40
"""Keys of earlier rounds that are read again behind each."""
READERS = 8
AGAIN_MAX = 400


class Voyage:
    """A site, its clients, and what they were promised. The *seed* decides what is done and who is killed."""

    def __init__(self, served: Served, seed: str, clients: int = CLIENTS, pause_seconds: float = 0.0) -> None:
        """*pause_seconds*: what each client rests between two requests."""
        self.served = served
        self.ledger = Ledger()
        self.round = 0
        self._seed = seed
        self._chance = random.Random(seed)
        self.clients = [Client(f"c{n:02}", served.where, self.ledger, seed) for n in range(clients)]
        self._pause_seconds = pause_seconds
        self._plans: list[tuple[str, ...]] = []

    async def begin(self) -> None:
        """Make the bucket, and be ready for rounds."""
        await self.served.start()
        wire = Wire(self.served.where, BUCKET, self._seed)
        expect(await wire.request("PUT"), 200, "CreateBucket")
        wire.close()

    @property
    def done(self) -> Counter[str]:
        """What was acknowledged so far, by verb."""
        return sum((client.done for client in self.clients), Counter())

    def log(self) -> str:
        """What was done so far, for people."""
        ledger = self.ledger
        left = f"{ledger.unanswered} writes left without an answer, {ledger.unanswered_and_done} of them happened"
        return f"{self.round} rounds; killed {dict(self.served.kills)}; acknowledged {dict(self.done)}; {left}"

    @contextmanager
    def told(self) -> Iterator[None]:
        """What is broken is told with the seed and the round."""
        try:
            yield
        except Broken as broken:
            raise Broken(f"seed {self._seed}, round {self.round}: {broken}") from broken

    # ---- a round ---------------------------------------------------------------------------------------------------

    async def sail(self) -> None:
        """One round, looked at."""
        self.round += 1
        with self.told():
            await self.under_load(self._strike())
            await self.look()
            self.served.check_log()

    async def under_load(self, work: Coroutine[Any, Any, None]) -> None:
        """Do *work* while the clients do theirs; they stop once it is done."""
        stop = asyncio.Event()

        async def done() -> None:
            await work
            stop.set()

        await _together(done(), *(client.run(stop, self._pause_seconds) for client in self.clients))

    async def _strike(self) -> None:
        """Wait for the moment, kill, and see to it that everything is up again."""
        await self.acknowledged(ACKNOWLEDGED + self._chance.randint(0, 60))
        await asyncio.sleep(self._chance.uniform(0, 0.1))
        self.served.kill(self.plan(), self._chance)
        while self._chance.random() < 0.35:
            self.served.restart()
            await asyncio.sleep(self._chance.uniform(0, 1.2))
            self.served.kill(self.plan(), self._chance)
        self.served.restart()
        await self.served.until_ready()
        await self.acknowledged(AFTERWARDS)

    async def acknowledged(self, count: int) -> None:
        """Until so many more writes were acknowledged."""
        goal = self.ledger.acknowledged + count
        while self.ledger.acknowledged < goal:
            await asyncio.sleep(0.01)

    def plan(self) -> tuple[str, ...]:
        """Whom to kill next: each of `PLANS` in turn; from the second time on in a random order."""
        if not self._plans:
            self._plans = list(PLANS)
            if self.round > 1:
                self._chance.shuffle(self._plans)
        return self._plans.pop(0)

    # ---- looking ---------------------------------------------------------------------------------------------------

    async def look(self, *, everything: bool = False) -> None:
        """Nobody writes: what is there is what may be there, whichever way one looks. Raises `Broken`."""
        async with _wires(self.served, self._seed) as wires:
            await self._look_at_uploads(wires[0])
            rest = sorted(set(self.ledger.known_keys()) - self.ledger.touched)
            sample = rest if everything else self._chance.sample(rest, min(SAMPLE, len(rest)))
            keys = [*sorted(self.ledger.touched), *sample]
            await _together(*(self._look_at(wire, keys[nth::READERS]) for nth, wire in enumerate(wires)))
            self.ledger.check_listing(await _patiently(wires[0].listing))

    async def _look_at(self, wire: Wire, keys: Iterable[str]) -> None:
        """GET and HEAD of each."""
        for key in keys:
            began = self.ledger.now()
            seen = await _patiently(lambda key=key: wire.get(key))
            self.ledger.settle(key, seen, began)
            head = await _patiently(lambda key=key: wire.head(key))
            if head is not None:
                self.ledger.check_head(key, *head)
            elif seen is not None:
                raise Broken(f"{key!r}: GET shows {seen}, and HEAD nothing")

    async def _look_at_uploads(self, wire: Wire) -> None:
        """Each that was begun is there with its parts, each that was completed or aborted is gone."""
        listed = dict(await _patiently(wire.uploads))
        for client in self.clients:
            client.resolve_upload(listed)
        known = [client.upload for client in self.clients if client.upload is not None]
        unanswered = sum((client.uploads_unanswered for client in self.clients), Counter())
        for stranger, key in check_uploads({each.id: each.key for each in known}, listed, unanswered):
            query = f"uploadId={stranger}"
            expect(await _patiently(lambda key=key, query=query: wire.request("DELETE", key, query)), 204, query)
        for client in self.clients:
            client.uploads_unanswered.clear()
        for upload in known:
            parts = await _patiently(lambda upload=upload: wire.parts(upload.key, upload.id))
            check_parts(upload.key, upload.acknowledged_parts(), upload.unanswered_parts(), parts)


async def _together(*works: Coroutine[Any, Any, None]) -> None:
    """Do all of them; the first that fails ends the others, and its error is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


@asynccontextmanager
async def _wires(served: Served, seed: str) -> AsyncIterator[list[Wire]]:
    wires = [Wire(served.where, BUCKET, f"{seed}/reader {n}") for n in range(READERS)]
    try:
        yield wires
    finally:
        for wire in wires:
            wire.close()


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """What *ask* answers, asked again while nobody does. Only for what may be asked twice."""
    for _ in range(AGAIN_MAX):
        try:
            return await ask()
        except Unanswered as error:
            why = error
            await asyncio.sleep(AGAIN_SECONDS)
    raise Broken(f"asked {AGAIN_MAX} times, and nobody answers: {why}")
