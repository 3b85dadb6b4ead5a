"""A bucket that misbehaves, a real server behind a line that a test breaks: nothing is lost, nothing is named that is
not there, nobody is asked over and over, other backends' work goes on, and once it is well again all settles by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from backends.base import Backend
from backends.s3.backend import S3
from backends.testing.memory import Memory
from gateway.journal.tables import WorkState
from gateway.reconcile.mover import Mover
from gateway.site.storage.backend_factory import with_retries
from gateway.timing import parse_timing
from gateway.topology import BackendPlace
from tests.reconcile.shores import Shores
from tests.servers.between import Between, Forward, Heard, Rule, answer, between, honest, refusal
from tests.servers.running import S3Server
from tests.waiting import until_true

WAIT_SECONDS = 120.0
TIMEOUT_SECONDS = 10.0
"""Of one request."""
OBJECTS = 12
DATA = random.Random(11).randbytes(60_000)
TIMING = parse_timing(
    "scale=0.05; workers.idle_seconds=0.05; backend_backoff.first_seconds=0.02; backend_backoff.most_seconds=0.04"
)


class Shore(NamedTuple):
    """Three backends: `b0` and `b2` in memory, `b1` in a bucket behind `line`."""

    site: Shores
    line: Between

    def names_far(self) -> int:
        """How many blocks the bucket holds, as the journal has it."""
        return sum(1 in held for held in self.site.held())

    def lost(self) -> bool:
        return any(state == WorkState.LOST for state, _, _ in self.site.work_rows())

    async def same_everywhere(self, *places: int) -> None:
        """The same blocks lie there, byte by byte, and they are all that there are."""
        keys = await self.site.copies()
        assert len({frozenset(keys[place]) for place in places}) == 1
        assert len(keys[places[0]]) == len(self.site.held())
        for key in keys[places[0]]:
            found = {bytes(await self.site.places[place].get(key)) for place in places}
            assert len(found) == 1


@pytest.fixture
async def shore(tmp_path: Path, moto_server: S3Server) -> AsyncIterator[Shore]:
    async with between(moto_server) as line:
        bucket = await S3.open(
            name="b1", bucket=f"b-{uuid.uuid4().hex}", endpoint=line.server.url, region="us-east-1",
            access_key=moto_server.access_key, secret_key=moto_server.secret_key, create_bucket=True,
            connections=8, timeout_s=TIMEOUT_SECONDS,
        )  # fmt: skip
        far: Backend = with_retries(bucket, BackendPlace("b1", "s3", "far", 8, 60.0), TIMING)
        site = Shores(tmp_path, Memory("b0"), far, Memory("b2"), timing=TIMING)
        await far.put("0/0", [b""], 0)  # from here on it is known how its puts are confirmed
        await far.delete("0/0")
        for n in range(OBJECTS):
            await site.put(b"k%d" % n, DATA + b"%d" % n)
        yield Shore(site, line)
        site.close()
        await far.close()


@pytest.fixture
async def working(shore: Shore) -> AsyncIterator[None]:
    """The planner and the mover, as the keeper has them."""
    tasks = [asyncio.create_task(worker.run()) for worker in (shore.site.planner, shore.site.mover)]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


until = partial(until_true, seconds=WAIT_SECONDS)


def refuses(raw: bytes) -> Rule:
    async def rule(request: Heard, forward: Forward) -> bytes | None:
        return raw

    return rule


async def reset(request: Heard, forward: Forward) -> bytes | None:
    """The connection is cut before an answer."""
    return None


async def reset_behind(request: Heard, forward: Forward) -> bytes | None:
    """What was asked for is done, and the answer lost."""
    await forward(request)
    return None


async def cut(request: Heard, forward: Forward) -> bytes | None:
    """The connection is cut in the middle of the answer."""
    whole = await forward(request)
    head, _, body = whole.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n" + body[: len(body) // 2] if body else head[: len(head) // 2]


async def liar(request: Heard, forward: Forward) -> bytes | None:
    """Says that it stored something else."""
    whole = await forward(request)
    if request.method != "PUT":
        return whole
    head, _, body = whole.partition(b"\r\n\r\n")
    lines = [b'ETag: "%s"' % (b"0" * 32) if line.lower().startswith(b"etag:") else line for line in head.split(b"\r\n")]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


REFUSALS = {
    "asks for fewer": refusal("503 Slow Down", "SlowDown", "Please reduce your request rate.", Retry_After="1"),
    "credentials expired": refusal("400 Bad Request", "ExpiredToken", "The provided token has expired."),
    "credentials revoked": refusal("403 Forbidden", "InvalidAccessKeyId"),
    "bucket deleted": refusal("404 Not Found", "NoSuchBucket"),
    "quota used up": refusal("403 Forbidden", "QuotaExceeded"),
    "store full": refusal("507 Insufficient Storage", "XMinioStorageFull"),
    "fails by itself": refusal("500 Internal Server Error", "InternalError"),
    "says nothing of why": answer("502 Bad Gateway", b"<html>bad gateway</html>"),
}
FAULTS: dict[str, Rule] = {
    **{name: refuses(raw) for name, raw in REFUSALS.items()},
    "connection reset": reset,
    "connection reset behind a request": reset_behind,
    "line cut in the middle of an answer": cut,
}
TRIALS = 3
"""How often a backend in trouble is tried again, before a test has seen enough."""
ASKED_MAX = 3 * 5
"""Requests of one block that is tried: a put behind a look, each with its tries."""


class Trials:
    """How often a place began to rest, and what it had been asked until then."""

    def __init__(self, shore: Shore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        for found in (shore.site.mover.health.call_backoff, shore.site.mover.health.put_backoff):
            monkeypatch.setattr(found, "record_failure", self._counted(found.record_failure, shore.line))

    def _counted(self, before: Callable[..., bool], line: Between) -> Callable[..., bool]:
        def record_failure(*arguments: object) -> bool:
            began = before(*arguments)
            if began:
                self.asked.append(len(line.heard))
            return began

        return record_failure

    async def seen(self, mover: Mover) -> None:
        """Wait until the bucket was tried again and again; raises unless one block at a time did that, and not all."""
        await until(lambda: len(self.asked) > 1 and len(mover._under_way) <= 1, "those that were under way to fail")
        first = len(self.asked)
        await until(lambda: len(self.asked) > first + TRIALS, "the bucket to be tried again and again")
        each = [after - before for before, after in itertools.pairwise(self.asked[first:])]
        assert max(each) <= ASKED_MAX


@pytest.mark.parametrize("fault", [*FAULTS, "lies about what it stored"])
async def test_copies_to_a_bucket_in_trouble_wait_and_settle_by_themselves_once_it_is_well(
    shore: Shore, working: None, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, line = shore
    line.rule = FAULTS.get(fault, liar)
    trials = Trials(shore, monkeypatch)
    site.keep("b0", "b1", "b2")
    await until(lambda: all(set(held) == {0, 2} for held in site.held()), "the other backend's copies")
    await trials.seen(site.mover)
    assert shore.names_far() == 0
    await until(lambda: [name for name, why in site.mover.health.waiting().items() if why] == ["b1"], "it to be told")
    assert not any(state for state, _, _ in site.work_rows()), "nothing is set aside for what is no block's fault"
    line.rule = honest
    await until(lambda: set(site.held()) == {(0, 1, 2)} and not site.work_rows(), "all to settle")
    await shore.same_everywhere(0, 1, 2)
    assert site.mover.health.waiting() == {}


@pytest.mark.parametrize("fault", list(FAULTS))
async def test_blocks_that_lie_in_a_bucket_in_trouble_alone_are_not_taken_for_lost(
    shore: Shore, working: None, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, line = shore
    site.keep("b1")
    await until(lambda: set(site.held()) == {(1,)} and not site.work_rows(), "all to lie in the bucket")
    line.rule = FAULTS[fault]
    trials = Trials(shore, monkeypatch)
    site.keep("b0")
    await trials.seen(site.mover)
    assert set(site.held()) == {(1,)}
    assert not shore.lost()
    await until(lambda: list(site.mover.health.waiting()) == ["b1"], "it to be told")
    line.rule = honest
    await until(lambda: set(site.held()) == {(0,)} and not site.work_rows(), "all to settle")
    await shore.same_everywhere(0)
    assert await site.stored(1) == {}
