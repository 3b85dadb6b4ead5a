"""Readiness: what it waits for, what it does not, and what it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from backends import errors
from backends.base import Backend
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway.errors import Unavailable
from gateway.journal.client import Journal
from gateway.site.processes.readiness import LEFT_MAX, ReadinessProbe
from gateway.timing import parse_timing
from gateway.topology import BackendPlace, Policy, Topology
from tests.blocks.gated_backends import Silent
from tests.endpoint import started
from tests.new_sites import new_site
from tests.servers.moto import moto, silent
from tests.site.running import SECRET, add_cloud, client, until, watch


class Commits:
    session = 7

    async def send(self, command: object) -> int:
        return 1


class Rows:
    def __init__(self, *lost: str) -> None:
        self.lost = lost

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return [(name,) for name in self.lost]

    def catalog_version(self) -> int:
        return 1


def topology(ack: Sequence[str], keep: Sequence[str], copies: int = 0) -> Topology:
    names = sorted({*ack, *keep})
    places = {name: BackendPlace(name, "local", "here", 8, 60.0, False, f"/{name}") for name in names}
    return Topology("here", {}, {}, places, {"default": Policy("default", tuple(ack), tuple(keep), ack_copies=copies)})


@pytest.fixture
async def probing_of() -> AsyncIterator[Any]:
    made: list[ReadinessProbe] = []

    def make(
        wanted: Topology, *backends: Backend, probe_seconds: float = 600.0, lost: Sequence[str] = ()
    ) -> ReadinessProbe:
        standing = dict(enumerate(backends))
        journal = cast("Journal", Commits())
        timing = parse_timing(f"probes.quick_seconds=0.01; probes.backend_seconds={probe_seconds}")
        made.append(ReadinessProbe(journal, Rows(*lost), standing, lambda: wanted, timing))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def test_a_silent_backend_that_no_write_waits_for_is_told_and_not_waited_for(probing_of: Any) -> None:
    near, far = Memory("disk"), Silent("far")
    probing = probing_of(topology(["disk"], ["disk", "far"]), near, far)
    for _ in range(3):
        told = await probing.probe()
        assert list(told["backends_away"]) == ["far"]
        assert told["backends_away"]["far"].startswith("it has not answered for ")
    assert far.puts == 1, "one trial at a time"
    far.answers.set()
    while "backends_away" in await probing.probe():
        await asyncio.sleep(0)
    assert [line async for line in near.list()] == [line async for line in far.list()] == []


async def test_a_silent_backend_that_writes_wait_for_is_waited_for(probing_of: Any) -> None:
    far = Silent("far")
    asking = asyncio.create_task(probing_of(topology(["disk", "far"], ["disk", "far"]), Memory("disk"), far).probe())
    while not far.puts:
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)  # longer than others have
    assert not asking.done()
    far.answers.set()
    assert "backends_away" not in await asking


async def test_but_not_for_ever(probing_of: Any) -> None:
    near, far = Memory("disk"), Silent("far")
    probing = probing_of(topology(["disk", "far"], ["disk", "far"]), near, far, probe_seconds=0.05)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"'default' cannot be answered: backend 'far': no answer within 0\.05 s"):
            await probing.probe()
    assert far.puts == 2, "a trial that was given up is tried anew"
    wide = probing_of(topology(["disk", "far"], ["disk", "far"]), near, far)
    far.answers.set()
    await wide.probe()


async def test_where_one_of_two_copies_is_awaited_one_that_is_silent_is_enough_away(probing_of: Any) -> None:
    told = await probing_of(topology(["disk", "far"], ["disk", "far"], 1), Memory("disk"), Silent("far")).probe()
    assert list(told["backends_away"]) == ["far"]


@pytest.mark.parametrize("kind", [FaultKind.FLIP, FaultKind.STALE])
async def test_a_backend_that_gives_back_something_else_is_away(kind: FaultKind, probing_of: Any) -> None:
    liar = Faulty(Memory("liar"), FaultPlan([Fault(kind, verb="get")]))
    with pytest.raises(Unavailable, match="returned another value"):
        await probing_of(topology(["liar"], ["liar"]), liar).probe()


async def test_a_backend_that_was_given_up_is_away(probing_of: Any) -> None:
    told = await probing_of(topology(["disk"], ["disk", "far"]), Memory("disk"), Memory("far"), lost=["far"]).probe()
    assert told["backends_away"] == {"far": "it was given up as lost"}
    with pytest.raises(Unavailable, match="given up"):
        await probing_of(topology(["disk"], ["disk"]), Memory("disk"), lost=["disk"]).probe()


async def test_what_probes_that_failed_left_behind_goes_with_the_next_that_succeeds(probing_of: Any) -> None:
    inner, plan = Memory("disk"), FaultPlan([Fault(FaultKind.ERROR, verb="get", error=errors.Unavailable)])
    probing = probing_of(topology(["disk"], ["disk"]), Faulty(inner, plan))
    for _ in range(LEFT_MAX + 4):
        with pytest.raises(Unavailable):
            await probing.probe()
    assert len([line async for line in inner.list()]) == LEFT_MAX, "and no more, however long it lasts"
    plan.clear()
    await probing.probe()
    assert [line async for line in inner.list()] == []


def test_a_cloud_that_hangs_and_that_no_write_waits_for_leaves_a_site_ready(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    new_site(folder)
    with moto(tmp_path / "cloud") as cloud:
        add_cloud(
            folder, cloud.url, ("deadline_seconds = 3.0", "deadline_seconds = 600.0"),
            ('ack = ["bucket"]\nkeep = [', 'ack = ["disk"]\nkeep = ["disk", '),
        )  # fmt: skip
        with started(folder, ["--workers", "1"], environment={"CLOUD_SECRET": SECRET}) as (endpoint, _):
            until(lambda: "backends_away" not in watch(endpoint, "/readyz")[1]["probe"], "the bucket")
            with silent(tmp_path / "cloud"):
                status, told = until(lambda: _away(watch(endpoint, "/readyz")), "its silence to be seen")
                assert status == 200, told
                assert told["probe"]["backends_away"]["bucket"].startswith(("it has not answered for ", "backend "))
                client(endpoint).create_bucket(Bucket="far")
                client(endpoint).put_object(Bucket="far", Key="key", Body=b"body")
            until(lambda: "backends_away" not in watch(endpoint, "/readyz")[1]["probe"], "the bucket to be back")


def _away(answer: tuple[int, Any]) -> tuple[int, Any] | None:
    return answer if answer[0] != 200 or "backends_away" in answer[1]["probe"] else None
