"""A backlog that is brought to a bucket behind a line of 30 ms and 50 MB/s: how much of the line it fills.

The objects lie on the disk when the policy changes; the clock runs from the first byte that comes to the bucket until
no block has a row of work, and the note tells how long it took from the change to that byte. The ceiling is obstore
alone, with as many values of the same size at once as it likes, over the same line. Each run brings everything to
another bucket's prefix.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import obstore
import uvloop

from tests.bench.cloud import Running, cloud
from tests.bench.clouds import bare_store
from tests.bench.line import line
from tests.bench.load import drive, sound
from tests.bench.near import KEPT_BYTES, LINE_BYTES_PER_SECOND, MIB, ROUND_TRIP_SECONDS
from tests.bench.objects import fill
from tests.bench.places import BUCKET, Kept, make_site, write_config
from tests.bench.plan import Plan
from tests.bench.presigned import Presigner
from tests.bench.server import Gateway, gateway
from tests.bench.settling import Watch
from tests.bench.table import Row
from tests.endpoint import run_entrepot

AIM = 0.9
SMALL = 4096
SMALL_CONNECTIONS = 256
LARGE = 64 * MIB
LANDED_SECONDS = 1.0
"""After which no request is under way any more that the load generator left behind."""
BARE_AT_ONCE = 64
BARE_BYTES = 256 * MIB


def rows(plan: Plan, folder: Path) -> list[Row]:
    made = []
    small = f"backlog of {plan.backlog_objects:,} small objects, in packs, to a bucket far away"
    large = f"backlog of {plan.backlog_gib:g} GiB in objects of 64 MiB to a bucket far away"
    if plan.wants(small):
        made.append(_moved(plan, folder / "small", small, lambda running: _fill_small(running, plan.backlog_objects)))
    if plan.wants(large):
        made.append(_moved(plan, folder / "large", large, lambda running: _fill_large(running, plan.backlog_gib)))
    return made


def _moved(plan: Plan, home: Path, name: str, fill_up: Callable[[Gateway], None]) -> Row:
    row = Row(name, "MB/s", "obstore alone over the same line", AIM)
    home.mkdir()
    site = home / "site"
    delays: list[float] = []
    with cloud(KEPT_BYTES) as far, line(far.port, LINE_BYTES_PER_SECOND, ROUND_TRIP_SECONDS) as port:
        url = f"http://127.0.0.1:{port}"
        places = {f"far{nth}": url for nth in range(plan.runs)}
        make_site(site, places, {"default": Kept(["disk"], ["disk"])})
        with gateway(home) as running, Watch(site) as watch:
            running.client().create_bucket(Bucket=BUCKET)
            fill_up(running)
            watch.wait(watch.settled)
            time.sleep(LANDED_SECONDS)
            objects, blocks, size = watch.held()
            for nth in range(plan.runs):
                row.ceiling.append(_bare(far, url, min(size, BARE_BYTES), size // blocks))
                before, began = watch.plan(), time.monotonic()
                keep = ["disk", *list(places)[: nth + 1]]
                write_config(site, places, {"default": Kept(["disk"], keep)})
                far.told()
                run_entrepot("reload", str(site))
                settled_at = watch.wait(lambda before=before: watch.settled(before))
                told = far.told()
                if told.bytes < size:
                    raise RuntimeError(f"{told.bytes} bytes came of {size}")
                row.measured.append(told.bytes / (settled_at - told.first_at) / 1e6)
                delays.append(told.first_at - began)
    row.note = (
        f"{objects:,} objects in {blocks:,} blocks of {size / blocks / 1024:,.0f} KiB; the first byte "
        f"{statistics.median(delays):.1f} s after the edit"
    )
    return row


def _fill_small(running: Gateway, objects: int) -> None:
    """At least so many, by many connections, so that packs are as large as bulk loads make them."""
    sign, tag, body = Presigner(running, BUCKET), os.urandom(4).hex(), os.urandom(SMALL)
    left, nth = objects, 0
    while left > 0:
        # more paths than there will be requests: none is put twice
        paths = [sign("PUT", f"small/{tag}/{nth}/{number:08d}") for number in range(20_000)]
        done = drive(running.address, paths, method="PUT", body=body, connections=SMALL_CONNECTIONS, seconds=1)
        left, nth = left - int(sound(done)), nth + 1


def _fill_large(running: Gateway, gib: float) -> None:
    keys = [f"large/{number}" for number in range(max(1, round(gib * 1024 * MIB / LARGE)))]
    fill(running, Presigner(running, BUCKET), keys, LARGE, threads=2)


def _bare(far: Running, url: str, size: int, each: int) -> float:
    """MB/s of plain puts of so many bytes over the line."""
    value = os.urandom(each)

    async def put_all() -> None:
        store = bare_store(url)
        numbers = iter(range(max(1, size // each)))

        async def loop() -> None:
            for number in numbers:
                await obstore.put_async(store, f"bare/{number}", value, use_multipart=False)

        await asyncio.gather(*(loop() for _ in range(BARE_AT_ONCE)))

    far.told()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(put_all())
    ended = time.monotonic()
    told = far.told()
    return told.bytes / (ended - told.first_at) / 1e6
