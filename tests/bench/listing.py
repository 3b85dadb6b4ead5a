"""Listings: pages a second, beside the same page formatted from memory by the same code.

What is compared: the same presigned requests, in random order over a hundred positions, sent by the same client to two
gateways on as many processes. One serves the site; the other (see `remembered.py`) differs in one thing, that its
engine has the page in memory. So both sides pay for HTTP, the signature, the formatting, metrics and the log, and the
ratio says what fetching costs. Stricter, and told in the note: the formatter alone in a loop on every core, without
any request around it. The small and the large bucket are measured in turn, so that the machine drifts under both.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from gateway.engine.types import Page
from gateway.journal.columns import Checksum, pack_list
from gateway.journal.paths import JournalPaths
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.server.server import hold_lock
from gateway.journal.session_commands import COMMANDS as JOURNAL_COMMANDS
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.namespace.commands.buckets import MakeBucket
from gateway.namespace.commands.objects import PutObject
from gateway.namespace.read import listing, lookups
from gateway.site.admin.create_site import create_site
from gateway.site.commands import COMMANDS
from gateway.site.paths import journal_folder
from s3api.ops.list import format_list_v2
from tests.bench.load import drive, sound
from tests.bench.plan import Plan
from tests.bench.presigned import Presigner
from tests.bench.remembered import COMMAND, PAGES
from tests.bench.server import CORES, Gateway, gateway
from tests.bench.table import Row
from tests.endpoint import ACCESS_KEY, SECRET_KEY

PAGE = 1000
POSITIONS = 100
CONNECTIONS = 4
"""Enough that no worker ever waits for the client."""
ACROSS = 0.85
"""What the large bucket's figure may fall to, of the small one's."""
BATCH = 4000
CHECKSUMS = pack_list([Checksum("CRC64NVME", "FULL_OBJECT", "AAAAAAAAAAA=")])


@dataclass(frozen=True)
class Case:
    """One bucket that is listed."""

    bucket: str
    name: str
    delimiter: str
    keys: list[bytes]
    afters: list[str]
    aim: float


def _cases(plan: Plan) -> list[tuple[Case, Case]]:
    """The small bucket and the large one, without and with a delimiter."""
    return [
        (_flat("bench-few", 10_000), _flat("bench-many", plan.listed)),
        (_rolled("bench-fewp", 2_000), _rolled("bench-manyp", max(2_000, plan.listed // 5))),
    ]


def _flat(bucket: str, count: int) -> Case:
    keys = sorted(f"data/{number * 7919 % (1 << 40):012x}".encode() for number in range(count))
    afters = [keys[random.randrange(max(1, count - PAGE))].decode() for _ in range(POSITIONS)]
    return Case(bucket, f"LIST, 1,000 keys a page, {count:,} in the bucket", "", keys, afters, 0.4)


def _rolled(bucket: str, count: int) -> Case:
    keys = [f"p{number:07d}/x".encode() for number in range(count)]
    afters = [f"p{random.randrange(max(1, count - PAGE)):07d}/~" for _ in range(POSITIONS)]
    return Case(bucket, f"LIST with delimiter, {count:,} prefixes", "/", keys, afters, 0.3)


def rows(plan: Plan, folder: Path) -> list[Row]:
    pairs = [pair for pair in _cases(plan) if any(plan.wants(case.name) for case in pair)]
    if not pairs:
        return []
    cases = [case for pair in pairs for case in pair]
    real, ceiling = folder / "listing", folder / "remembered"
    for home in (real, ceiling):
        home.mkdir()
        asyncio.run(create_site(home / "site", access_key=ACCESS_KEY, secret=SECRET_KEY))
    _fill(real / "site", {case.bucket: case.keys for case in cases})
    _fill(ceiling / "site", {case.bucket: [] for case in cases})
    pages = {case.bucket: _page(real / "site", case) for case in cases}
    kept = ceiling / "pages"
    kept.write_bytes(pickle.dumps(pages))
    with gateway(real) as one, gateway(ceiling, environment={PAGES: str(kept)}, command=COMMAND) as other:
        return [row for pair in pairs for row in _measured(plan, pair, one, other, pages)]


def _measured(plan: Plan, pair: tuple[Case, Case], one: Gateway, other: Gateway, pages: dict[str, Page]) -> list[Row]:
    """The rows of a small and a large bucket, run by run in turn."""
    made = [Row(case.name, "pages/s", "the same page from memory", case.aim) for case in pair]
    loops: list[list[float]] = [[], []]
    for _ in range(plan.runs):
        for case, row, loop in zip(pair, made, loops, strict=True):
            row.ceiling.append(_rate(plan, other, case))
            row.measured.append(_rate(plan, one, case))
            loop.append(CORES * _formatted(pages[case.bucket], case, plan.seconds / 4))
    for row, loop in zip(made, loops, strict=True):
        bare = statistics.median(a / b for a, b in zip(row.measured, loop, strict=True))
        row.note = f"{bare:.2f} of the formatter alone on every core"
    few, many = made
    across = statistics.median(a / b for a, b in zip(many.measured, few.measured, strict=True))
    many.note += f"; {across:.2f} of the smaller bucket's, to be ≥ {ACROSS}"
    return made


def _rate(plan: Plan, running: Gateway, case: Case) -> float:
    sign = Presigner(running, case.bucket)
    query = {"list-type": "2", "max-keys": str(PAGE)} | ({"delimiter": case.delimiter} if case.delimiter else {})
    paths = [sign("GET", "", query | {"start-after": after}) for after in case.afters]
    return sound(drive(running.address, paths, connections=CONNECTIONS, seconds=plan.seconds))


def _formatted(page: Page, case: Case, seconds: float) -> float:
    """Pages a second that one process makes which does nothing but format one page."""
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        format_list_v2(
            page, bucket=case.bucket, delimiter=case.delimiter.encode(), limit=PAGE, next_token="next"
        ).encode()
        count += 1
    return count / (time.perf_counter() - started)


def _page(site: Path, case: Case) -> Page:
    from gateway.config import load

    reads = ReadStore(JournalPaths(journal_folder(site, load(site))).database)
    row = lookups.bucket(reads, case.bucket)
    assert row is not None
    page = asyncio.run(listing.list_objects(reads, row, b"", case.delimiter.encode(), b"", PAGE))
    reads.close()
    return page


def _fill(site: Path, keys: dict[str, list[bytes]]) -> None:
    """Make buckets of empty objects, as the committer would, in random order, with ETags and checksums as of others."""
    from gateway.config import load

    paths = JournalPaths(journal_folder(site, load(site)))
    with hold_lock(paths):
        store = SqliteStore(paths.database)
        local = InlineCommitter(store, {**JOURNAL_COMMANDS, **COMMANDS})
        reads = ReadStore(paths.database)
        user, name, tenant = reads.query_one("SELECT id, name, tenant FROM user")
        for bucket, all_keys in keys.items():
            local.run(MakeBucket(bucket, user, name, tenant, "us-east-1", 1))
            random.shuffle(all_keys)
            for at in range(0, len(all_keys), BATCH):
                local.run_all(
                    [
                        PutObject(bucket, key, user, True, 0, os.urandom(16).hex(), (), (), 1, b"", CHECKSUMS, b"")
                        for key in all_keys[at : at + BATCH]
                    ]
                )
                store.checkpoint(idle=False)
            all_keys.sort()
        store.checkpoint(idle=True)
        reads.close()
        store.close()
