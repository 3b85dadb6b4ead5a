"""A machine's clock that was ahead and has been put right holds up nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from gateway.blocks.types import block_path
from gateway.reconcile.clock import WorkClock
from gateway.reconcile.commands import SuspectCopy
from tests.clocks import AheadClock
from tests.reconcile.shores import PATIENT, Shores

SECOND_NS = 10**9
YEAR_NS = 365 * 86_400 * SECOND_NS


async def test_what_was_noted_by_a_clock_that_was_ahead_is_mended_once_it_is_put_right(tmp_path: Path) -> None:
    clock = AheadClock()
    site = Shores(tmp_path, timing=replace(PATIENT, clock=clock))
    try:
        site.keep("b0", "b1")
        await site.put(b"key", b"x" * 3_000)
        await site.move()
        ((block,),) = site.store.query("SELECT id FROM block")
        await site.places[0].delete(block_path(block))
        clock.ahead_seconds = YEAR_NS / 1e9
        site.committer.run(SuspectCopy(block, site.ids[0], "absent"))
        clock.ahead_seconds = 0.0
        assert site.store.query("SELECT 1 FROM work WHERE due_ns > ?", (time.time_ns() + YEAR_NS // 2,))
        await site.move()
        assert site.work_rows() == []
        assert await site.get(b"key") == b"x" * 3_000
    finally:
        site.close()


def test_it_is_never_behind_the_journal_and_goes_on_where_the_machine_does_not() -> None:
    at = {"machine": 100, "journal": 50, "passed": 7}
    store = SimpleNamespace(query=lambda statement, values=(): [(at["journal"] * SECOND_NS,)])
    machine = SimpleNamespace(wall_ns=lambda: at["machine"] * SECOND_NS, monotonic=lambda: float(at["passed"]))
    clock = WorkClock(store, machine)  # type: ignore[arg-type]
    assert clock.now_ns() == 100 * SECOND_NS
    at["journal"] = 1_000
    assert clock.now_ns() == 1_000 * SECOND_NS
    at["passed"] += 5
    assert clock.now_ns() == 1_005 * SECOND_NS
    at["machine"] = 2_000
    assert clock.now_ns() == 2_000 * SECOND_NS
    at.update(machine=150, passed=20)
    assert clock.now_ns() == 2_008 * SECOND_NS


def test_a_pause_between_its_readings_does_not_put_it_ahead() -> None:
    """Otherwise a row that one clock made due would not be due by another."""
    passed, pauses = [0.0], [5.0, 0.0, 0.0]

    def wall_ns() -> int:
        passed[0] += pauses.pop(0)
        return int(passed[0] * SECOND_NS)

    store = SimpleNamespace(query=lambda statement, values=(): [(0,)])
    clock = WorkClock(store, SimpleNamespace(wall_ns=wall_ns, monotonic=lambda: passed[0]))  # type: ignore[arg-type]
    assert clock.now_ns() == 5 * SECOND_NS
    passed[0] += 1
    assert clock.now_ns() == 6 * SECOND_NS
    assert clock.now_ns() == 6 * SECOND_NS
