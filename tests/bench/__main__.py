"""`make bench`: the whole table. `python -m tests.bench [--only WORD] [--runs N] [--seconds S] [--json FILE]`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.bench import backlog, clouds, commit, deciding, listing, near, objects, planning, table
from tests.bench.ceilings import scratch_folder
from tests.bench.plan import Plan
from tests.bench.server import gateway
from tests.new_sites import TEMPLATES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", default="", help="only the rows whose name has this word in it")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--listed", type=int, default=1_000_000, help="keys in the bucket that is listed")
    parser.add_argument("--planned", type=int, default=1_000_000, help="blocks over which a policy changes")
    parser.add_argument("--backlog-objects", type=int, default=50_000, help="small ones that are brought elsewhere")
    parser.add_argument("--backlog-gib", type=float, default=4.0, help="of large objects that are brought elsewhere")
    parser.add_argument("--json", default="", help="also write the table to this file")
    wanted = parser.parse_args()
    plan = Plan(
        wanted.only, wanted.runs, wanted.seconds, wanted.keys, wanted.listed,
        wanted.planned, wanted.backlog_objects, wanted.backlog_gib,
    )  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that whoever is told to end ends what it has started
    with tempfile.TemporaryDirectory(prefix="entrepot-templates-") as templates:
        os.environ[TEMPLATES] = templates
        rows: list[table.Row] = []
        try:
            measure(plan, rows)
        finally:  # whoever ends it early sees what was measured until then
            table.show(rows)
    if wanted.json:
        table.save(rows, wanted.json)


def measure(plan: Plan, rows: list[table.Row]) -> None:
    """Append what is measured to *rows*."""
    with scratch_folder() as folder:
        with gateway(Path(folder)) as running:
            rows += objects.rows(plan, running)
        rows += listing.rows(plan, Path(folder))
        rows += commit.rows(plan, Path(folder))
    rows += clouds.rows(plan) + deciding.rows(plan)
    for module in (near, backlog, planning):
        with scratch_folder() as folder:
            rows += module.rows(plan, Path(folder))


if __name__ == "__main__":
    main()
