"""Listings: pages a second, beside the same entries formatted from memory by the same code."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from pathlib import Path

from gateway.engine.types import Page
from gateway.journal.local import LocalCommitter
from gateway.journal.packed import Checksum, pack_all
from gateway.journal.paths import JournalPaths
from gateway.journal.server import held_lock
from gateway.journal.session_commands import COMMANDS as JOURNAL_COMMANDS
from gateway.journal.sqlite.reading import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.namespace import listing, reading
from gateway.namespace.buckets import MakeBucket
from gateway.namespace.objects import PutObject
from gateway.site.commands import COMMANDS
from gateway.site.founding import found
from gateway.site.paths import journal_folder
from s3api.listing import format_list_v2
from tests.bench.load import drive
from tests.bench.plan import Plan
from tests.bench.presigned import Presigner
from tests.bench.server import Gateway, gateway
from tests.bench.table import Row, interleave
from tests.endpoint import ACCESS_KEY, SECRET_KEY

PAGE = 1000
POSITIONS = 200
BATCH = 4000
CHECKSUMS = pack_all([Checksum("CRC64NVME", "FULL_OBJECT", "AAAAAAAAAAA=")])


def rows(plan: Plan, folder: Path) -> list[Row]:
    sizes = {"few": 10_000, "many": plan.listed}
    prefixes = {"fewp": 2_000, "manyp": max(2_000, plan.listed // 5)}
    names = [f"LIST, 1,000 keys a page, {count:,} in the bucket" for count in sizes.values()]
    names += [f"LIST with delimiter, {count:,} prefixes" for count in prefixes.values()]
    if not any(plan.wants(name) for name in names):
        return []
    home = folder / "listing"
    home.mkdir()
    site = home / "site"
    asyncio.run(found(site, access_key=ACCESS_KEY, secret=SECRET_KEY))
    keys = {
        f"bench-{name}": [f"data/{number * 7919 % (1 << 40):012x}".encode() for number in range(count)]
        for name, count in sizes.items()
    } | {f"bench-{name}": [f"p{number:07d}/x".encode() for number in range(count)] for name, count in prefixes.items()}
    _fill(site, keys)
    with gateway(home) as running:
        made = [
            _flat(plan, running, site, "bench-few", sizes["few"], keys["bench-few"]),
            _flat(plan, running, site, "bench-many", sizes["many"], keys["bench-many"]),
            _rolled(plan, running, site, "bench-fewp", prefixes["fewp"]),
            _rolled(plan, running, site, "bench-manyp", prefixes["manyp"]),
        ]
    for few, many in ((made[0], made[1]), (made[2], made[3])):
        across = statistics.median(many.measured) / statistics.median(few.measured)
        many.note = f"{across:.2f} of the smaller bucket's"
    return made


def _fill(site: Path, keys: dict[str, list[bytes]]) -> None:
    """Make buckets of empty objects, as the committer would, in random order, with ETags and checksums as of others."""
    from gateway.config import load

    paths = JournalPaths(journal_folder(site, load(site)))
    with held_lock(paths):
        store = SqliteStore(paths.database)
        local = LocalCommitter(store, {**JOURNAL_COMMANDS, **COMMANDS})
        reads = ReadStore(paths.database)
        user, name, tenant = reads.one("SELECT id, name, tenant FROM user")
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


def _page(site: Path, bucket: str, delimiter: bytes, after: bytes = b"") -> Page:
    from gateway.config import load

    reads = ReadStore(JournalPaths(journal_folder(site, load(site))).database)
    row = reading.bucket(reads, bucket)
    assert row is not None
    page = asyncio.run(listing.list_objects(reads, row, b"", delimiter, after, PAGE))
    reads.close()
    return page


def _formatted(page: Page, bucket: str, delimiter: bytes, seconds: float) -> float:
    """Pages a second that the formatter alone makes of one page in memory."""
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        format_list_v2(page, bucket=bucket, delimiter=delimiter, limit=PAGE, next_token="").encode()
        count += 1
    return count / (time.perf_counter() - started)


def _measure(plan: Plan, running: Gateway, site: Path, bucket: str, row: Row, afters: list[str], delimiter: str) -> Row:
    sign = Presigner(running, bucket)
    query = {"list-type": "2", "max-keys": str(PAGE)} | ({"delimiter": delimiter} if delimiter else {})
    paths = [sign("GET", "", query | {"start-after": after} if after else query) for after in afters]
    page = _page(site, bucket, delimiter.encode())
    return interleave(
        row,
        lambda: drive(running.address, paths, connections=1, seconds=plan.seconds).rate,
        lambda: _formatted(page, bucket, delimiter.encode(), plan.seconds / 2),
        plan.runs,
    )


def _flat(plan: Plan, running: Gateway, site: Path, bucket: str, count: int, keys: list[bytes]) -> Row:
    name = f"LIST, 1,000 keys a page, {count:,} in the bucket"
    afters = [keys[random.randrange(max(1, len(keys) - PAGE))].decode() for _ in range(POSITIONS)]
    return _measure(plan, running, site, bucket, Row(name, "pages/s", "formatted from memory", 0.4), afters, "")


def _rolled(plan: Plan, running: Gateway, site: Path, bucket: str, count: int) -> Row:
    name = f"LIST with delimiter, {count:,} prefixes"
    afters = [f"p{random.randrange(max(1, count - PAGE)):07d}/~" for _ in range(POSITIONS)]
    return _measure(plan, running, site, bucket, Row(name, "pages/s", "formatted from memory", 0.3), afters, "/")
