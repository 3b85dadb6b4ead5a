"""A change of policy over a million blocks: what PUTs lose while it is planned.

Two gateways serve copies of one site, whose journal was filled in bulk (see `places.stock`): a million blocks of a
policy `archive`, named and without bytes, which lie on a place that is away when the gateways start, so that the mover
has to leave them alone and the planner is what is measured. Then one of them is told to keep `archive` on the disk as
well, and as long as it makes its rows of work, both take PUTs, in turn.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path

from tests.bench.load import drive, sound
from tests.bench.places import BUCKET, Kept, make_site, stock, write_config
from tests.bench.plan import Plan
from tests.bench.presigned import Presigner
from tests.bench.server import Gateway, gateway
from tests.bench.settling import Watch
from tests.bench.table import Row
from tests.endpoint import run_entrepot

AIM = 0.8
CONNECTIONS = 64
PER_OBJECT = 4_000
PLACES = {"vault": ""}
WARM_SECONDS = 1.0


def rows(plan: Plan, folder: Path) -> list[Row]:
    name = f"PUT 4 KiB by {CONNECTIONS} while a new policy is planned for {plan.planned:,} blocks"
    if not plan.wants(name):
        return []
    row = Row(name, "op/s", "a copy of the site that plans nothing", AIM)
    quiet, busy = folder / "quiet", folder / "busy"
    for home in (quiet, busy):
        home.mkdir()
    make_site(quiet / "site", PLACES, _policies(new=False))
    stock(quiet / "site", plan.planned, policy="archive", held_by=["vault"], per_object=PER_OBJECT)
    (quiet / "site" / "vault").rename(quiet / "away")
    shutil.copytree(quiet / "site", busy / "site")
    with gateway(quiet) as one, gateway(busy) as other, Watch(other.folder) as watch:
        watch.wait(watch.settled)
        _warm(one)
        _warm(other)
        before, began = watch.plan(), time.monotonic()
        write_config(other.folder, PLACES, _policies(new=True))
        run_entrepot("reload", str(other.folder))
        watch.wait(lambda: watch.plan() != before)
        planned: list[float] = []
        for _ in range(plan.runs):
            ceiling = _rate(one, plan.seconds)
            noted, started = watch.rows_of_work(), time.monotonic()
            measured = _rate(other, plan.seconds)
            if watch.walked():
                break  # what was measured last was not beside it
            row.ceiling.append(ceiling)
            row.measured.append(measured)
            planned.append((watch.rows_of_work() - noted) / (time.monotonic() - started))
        watch.wait(watch.walked)
        row.note = (
            f"{len(planned)} pairs beside it; {statistics.median(planned or [0]):,.0f} blocks/s planned meanwhile, "
            f"all of them within {time.monotonic() - began:.0f} s"
        )
    return [row]


def _policies(*, new: bool) -> dict[str, Kept]:
    return {"default": Kept(["disk"], ["disk"]), "archive": Kept(["vault"], ["vault", *(["disk"] if new else [])])}


def _warm(running: Gateway) -> None:
    _rate(running, WARM_SECONDS)


def _rate(running: Gateway, seconds: float) -> float:
    sign, tag = Presigner(running, BUCKET), os.urandom(4).hex()
    paths = [sign("PUT", f"fresh/{tag}/{number:08d}") for number in range(int(12_000 * seconds))]
    body = os.urandom(4096)
    return sound(drive(running.address, paths, method="PUT", body=body, connections=CONNECTIONS, seconds=seconds))
