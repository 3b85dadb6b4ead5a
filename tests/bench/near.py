"""What a second, distant place costs who reads and writes near: two gateways, of which one keeps a copy in a bucket
behind a line of 30 ms and 50 MB/s, take the same requests in turn.

At half load each connection pauses between its requests, so that there is room for the copies; what is compared there
is how long an answer takes, as answers a second of waiting. Copies give way to a short load and are made behind it;
under a long one they are made meanwhile, a few at a time.
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.cloud import cloud
from tests.bench.line import line
from tests.bench.load import Load, drive, sound
from tests.bench.objects import fill
from tests.bench.places import BUCKET, Kept, make_site
from tests.bench.plan import Plan
from tests.bench.presigned import Presigner
from tests.bench.server import Gateway, gateway
from tests.bench.settling import Watch
from tests.bench.table import Row, interleave

LINE_BYTES_PER_SECOND = 50e6
ROUND_TRIP_SECONDS = 0.03
KEPT_BYTES = 1024
"""Of the bucket's values: nobody reads them here."""
READ_AIM = 0.95
WRITE_AIM = 0.9
MIB = 1 << 20
READS = (
    (4096, 16, "near GET 4 KiB by 16, kept in two places", "op/s"),
    (MIB, 16, "near GET 1 MiB by 16, kept in two places", "op/s"),
)
LONG = 10
"""Times as long as the others: copies give way to a load for fifteen seconds."""
LONG_RUNS = 2
WRITES = (
    (4096, 64, "PUT 4 KiB at half load, copied far meanwhile", 1),
    (MIB, 8, "PUT 1 MiB at half load, copied far meanwhile", 1),
    (4096, 64, "PUT 4 KiB at half load for half a minute, copied far", LONG),
)


def rows(plan: Plan, folder: Path) -> list[Row]:
    names = [name for _, _, name, _ in READS] + [name for _, _, name, _ in WRITES]
    if not any(plan.wants(name) for name in names):
        return []
    with _one_and_two(folder) as (one, two), Watch(two.folder) as watch:
        return [*_reads(plan, one, two, watch), *_writes(plan, one, two, watch)]


@contextmanager
def _one_and_two(folder: Path) -> Iterator[tuple[Gateway, Gateway]]:
    """A gateway with one place, and one with two."""
    for name in ("one", "two"):
        (folder / name).mkdir()
    with cloud(KEPT_BYTES) as far, line(far.port, LINE_BYTES_PER_SECOND, ROUND_TRIP_SECONDS) as port:
        make_site(folder / "one" / "site", {}, {"default": Kept(["disk"], ["disk"])})
        places = {"far": f"http://127.0.0.1:{port}"}
        make_site(folder / "two" / "site", places, {"default": Kept(["disk"], ["disk", "far"])})
        with gateway(folder / "one") as one, gateway(folder / "two") as two:
            for each in (one, two):
                each.client().create_bucket(Bucket=BUCKET)
            yield one, two


def _reads(plan: Plan, one: Gateway, two: Gateway, watch: Watch) -> list[Row]:
    made = []
    for size, connections, name, unit in READS:
        if not plan.wants(name):
            continue
        keys = [f"near/{size}/{number}" for number in range(max(64, plan.keys * 4096 // size))]
        for each in (one, two):
            fill(each, Presigner(each, BUCKET), keys, size)
        watch.wait(lambda: not watch.rows_of_work())

        def get(running: Gateway, keys: list[str] = keys, connections: int = connections) -> float:
            sign = Presigner(running, BUCKET)
            paths = [sign("GET", key) for key in random.sample(keys, len(keys))]
            return sound(drive(running.address, paths, connections=connections, seconds=plan.seconds))

        get(one), get(two)  # so that nobody is the first
        row = Row(name, unit, "kept in one", READ_AIM)
        made.append(interleave(row, lambda get=get: get(two), lambda get=get: get(one), plan.runs))
    return made


def _writes(plan: Plan, one: Gateway, two: Gateway, watch: Watch) -> list[Row]:
    made = []
    for size, connections, name, times in WRITES:
        if not plan.wants(name):
            continue
        body = os.urandom(size)
        most = _put(one, body, connections, plan.seconds)
        pause_ms = max(1, round(1.5 * connections / most.rate * 1000))
        seconds = times * plan.seconds
        loads: dict[str, list[Load]] = {"one": [], "two": []}
        behind = []
        for _ in range(min(plan.runs, LONG_RUNS) if times > 1 else plan.runs):
            watch.wait(lambda: not watch.rows_of_work())
            loads["one"].append(_put(one, body, connections, seconds, pause_ms))
            before = watch.held()[1]
            loads["two"].append(_put(two, body, connections, seconds, pause_ms))
            behind.append(watch.rows_of_work() / max(1, watch.held()[1] - before))
        row = Row(name, "1/s waited", "kept in one", WRITE_AIM)
        row.ceiling = [1000 / load.mean_ms for load in loads["one"]]
        row.measured = [1000 / load.mean_ms for load in loads["two"]]
        row.note = "; ".join(
            f"{name}: {load.rate:,.0f} op/s, median {load.median_ms:.1f} ms, p99 {load.p99_ms:.1f}"
            for name, (load, *_) in loads.items()
        )
        row.note += f"; at full load one does {most.rate:,.0f} op/s"
        row.note += f"; at the end {statistics.median(behind):.0%} of the new blocks had yet to be copied"
        made.append(row)
    return made


def _put(running: Gateway, body: bytes, connections: int, seconds: float, pause_ms: int = 0) -> Load:
    sign, tag = Presigner(running, BUCKET), os.urandom(4).hex()
    most = 12_000 if len(body) < MIB else 1_500
    paths = [sign("PUT", f"fresh/{tag}/{number:08d}") for number in range(int(most * seconds))]
    done = drive(
        running.address, paths, method="PUT", body=body, connections=connections, seconds=seconds, pause_ms=pause_ms
    )
    sound(done)
    return done
