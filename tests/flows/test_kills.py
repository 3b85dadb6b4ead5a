"""Killed at random moments under load, again and again, a site keeps every promise that it made.

`ENTREPOT_SOAK_MINUTES` lets the long one go on for so long (`make soak`), `ENTREPOT_KILLS_SEED` repeats a run's
choices: what is asked and who is killed; what the machine makes of it differs a little each time.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.flows.killing import Served
from tests.flows.voyage import Voyage

ROUNDS = 50
CHECKED_EVERY, SWEPT_EVERY = 5, 10
"""Rounds between two runs of fsck, and between two looks at what is left once the keeper's work is done."""
SOAK_SECONDS = float(os.environ.get("ENTREPOT_SOAK_MINUTES", "0")) * 60


@asynccontextmanager
async def voyage(tmp_path: Path) -> AsyncIterator[Voyage]:
    """A site with its clients, and nothing of it left running."""
    seed = os.environ.get("ENTREPOT_KILLS_SEED") or secrets.token_hex(4)
    print(f"ENTREPOT_KILLS_SEED={seed}")
    served = Served(tmp_path / "site")
    served.found()
    try:
        under_way = Voyage(served, seed)
        await under_way.begin()
        yield under_way
    finally:
        served.end()


async def look_at_all(sailing: Voyage) -> None:
    """Every key, every frame, every table; the keeper's work done, the site stopped, and its disk compared."""
    with sailing.told():
        await sailing.look(everything=True)
        await sailing.served.until_swept()
        await asyncio.to_thread(sailing.served.fsck, "--read")
        sailing.served.stop()
        sailing.served.check_gone()
        sailing.served.check_log()
        sailing.served.check_stopped()
    print(sailing.log())


async def test_killed_a_few_times_nothing_acknowledged_is_lost_and_nothing_is_left_over(tmp_path: Path) -> None:
    async with voyage(tmp_path) as sailing:
        for _ in range(3):
            await sailing.sail()
        await look_at_all(sailing)
        assert {"committer", "worker", "all"} <= sailing.served.kills.keys()


@pytest.mark.soak
@pytest.mark.timeout(0)
async def test_killed_for_fifty_rounds_nothing_acknowledged_is_lost_and_nothing_is_left_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = time.monotonic() + SOAK_SECONDS
    async with voyage(tmp_path) as sailing:
        while time.monotonic() < ends if SOAK_SECONDS else sailing.round < ROUNDS:
            await sailing.sail()
            with sailing.told():
                if sailing.round % SWEPT_EVERY == 0:
                    await sailing.served.until_swept()
                elif sailing.round % CHECKED_EVERY == 0:
                    await asyncio.to_thread(sailing.served.fsck)
            if SOAK_SECONDS and sailing.round % SWEPT_EVERY == 0:
                with capsys.disabled():
                    print(sailing.log(), flush=True)
        await look_at_all(sailing)
        if sailing.round >= ROUNDS:
            assert {"committer", "worker", "keeper", "supervisor", "all"} <= sailing.served.kills.keys()
            assert {"PUT", "complete", "DELETE", "DeleteObjects", "copy"} <= sailing.done.keys()
            assert sailing.ledger.unanswered, "nobody was ever left without an answer: the kills prove nothing"
