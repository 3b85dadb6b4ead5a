"""The check of a site and the garbage survey: a sound site is clean, and each kind of damage is found and named."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway.blocks.digests import Digests
from gateway.blocks.fsck import frame_check
from gateway.blocks.fsck import unreachable as unreachable_backends
from gateway.blocks.fsck.findings import KEPT, FsckReport, Severity
from gateway.blocks.fsck.fsck import check_site
from gateway.blocks.fsck.statements import CHECKS
from gateway.blocks.maintenance import release
from gateway.blocks.maintenance.gc import collect, survey
from gateway.blocks.maintenance.inventory import BlockState
from gateway.blocks.types import ABSENT, DAMAGED, block_id_of
from gateway.namespace.commands.buckets import SetVersioning
from gateway.namespace.commands.uploads import AbortUpload
from tests.blocks.site import Site
from tests.blocks.world import chunks

MIB = 1 << 20
DATA = random.Random(9).randbytes(20 * MIB)


@pytest.fixture
async def site(tmp_path: Path) -> Iterator[Site]:
    """With something of everything in it."""
    made = Site(tmp_path, Memory("one"), Memory("two"))
    await fill(made)
    yield made
    made.close()


async def fill(site: Site) -> None:
    tamper(site, "INSERT INTO ring_key VALUES (5, 1, x'', '', 0)")
    await asyncio.gather(*(site.put(b"dir/%d" % n, DATA[: n * 1000]) for n in range(20)))
    await site.put(b"large", DATA)
    await site.put(b"empty/", b"")
    await site.copy(b"large", b"copy")
    await site.put(b"large", b"other")
    upload = await site.upload(b"parts")
    etags = [await site.part(b"parts", upload, n, DATA[: 5 * MIB]) for n in (1, 2)]
    await site.part(b"parts", upload, 3, b"left out")
    await site.complete(b"parts", upload, etags)
    await site.copy(b"parts", b"dir/deep/parts")
    await site.delete(b"parts")
    open_one = await site.upload(b"open")
    await site.part(b"open", open_one, 1, DATA[: 6 * MIB])
    aborted = await site.upload(b"aborted")
    await site.part(b"aborted", aborted, 1, b"x")
    await site.journal.send(AbortUpload("b", b"aborted", site.user, True, aborted))
    await site.journal.send(SetVersioning("b", site.user, True, 1))
    for n in range(3):
        await site.put(b"versions", DATA[: 100 + n])
    await site.delete(b"versions")
    await site.delete(b"dir/7")


def tamper(site: Site, *statements: str) -> None:
    """Change the tables as no command would."""
    connection = sqlite3.connect(site.path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


async def checked(site: Site, *, read: bool = False) -> FsckReport:
    return await check_site(site.path, site.store, site.backends, read=site.block_keys if read else None)


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("worked", [False, True])
async def test_a_sound_site_is_clean(site: Site, read: bool, worked: bool) -> None:
    if worked:
        await site.work()
    calls: list[str] = []
    report = await check_site(
        site.path,
        site.store,
        site.backends,
        read=site.block_keys if read else None,
        progress=lambda what, done, total: calls.append(what),
    )
    assert report.findings == []
    assert report.status == 0
    assert report.counted["blocks"] >= 2 * 3
    assert (report.counted["frames"] > 0) == read
    assert "tables" in calls and "blocks on one" in calls


async def test_a_site_is_clean_between_any_two_slices_of_a_release(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "PIECES", 1)
    upload = await site.upload(b"many")
    etags = await asyncio.gather(*(site.part(b"many", upload, n, DATA[: 5 * MIB]) for n in range(1, 5)))
    await site.complete(b"many", upload, list(etags))
    await site.put(b"many", b"")
    while any([await worker.step() for worker in site.workers]):
        assert (await checked(site)).findings == []


TAMPERINGS = {
    "run-refs": "UPDATE run SET refs = refs + 1 WHERE id = (SELECT min(id) FROM run)",
    "run-absent": "DELETE FROM run WHERE id = (SELECT content FROM file WHERE shape = 1 LIMIT 1)",
    "body-refs": "UPDATE body SET refs = 0",
    "body-absent": "DELETE FROM body",
    "content-size": "UPDATE file SET size = size + 1 WHERE shape = 2",
    "block-counts": "UPDATE block SET live = live - 1 WHERE live > 1",
    "block-death": "UPDATE block SET died = 7 WHERE members > 0",
    "block-absent": "DELETE FROM block WHERE id = (SELECT max(id) FROM block)",
    "block-names": "UPDATE block SET ring_key = 12345",
    "work-absent": "INSERT INTO work VALUES (x'00', 0, 0, 0, 0, '', x'', x'', 0, 0)",
    "member": "DELETE FROM member WHERE run = (SELECT max(run) FROM member)",
    "dir-counts": "UPDATE dir SET entries = entries + 1",
    "dir-place": "UPDATE dir SET name = x'2f2f' WHERE parent > 0",
    "entry-dead": "UPDATE entry SET dead = 1 - dead WHERE name = x'6c61726765'",
    "entry-parent": "INSERT INTO entry VALUES (99, x'61', 1, 0, 99, 0, 0, 0, 0, 0, '', 0, x'')",
    "file-links": "UPDATE file SET links = links + 1",
    "file-absent": "DELETE FROM file WHERE id = (SELECT max(id) FROM file)",
    "name-shown": "UPDATE entry SET etag = 'another' WHERE version > 0",
    "version-chain": "UPDATE version SET newer = newer + 1",
    "bucket-counts": "UPDATE bucket SET size = size - 1",
    "gone-uploads": "INSERT INTO gone VALUES (1, 'was', 2, 3)",
    "upload-astray": "UPDATE upload SET bucket = 'was' WHERE state = 0",
    "upload-parts": "UPDATE upload SET parts = parts + 1",
    "user-buckets": "UPDATE user SET buckets = 0",
}


@pytest.mark.parametrize("kind", [each.kind for each in CHECKS])
async def test_a_table_that_contradicts_itself_is_found(site: Site, kind: str) -> None:
    tamper(site, TAMPERINGS[kind])
    report = await checked(site)
    assert report.kinds[kind] > 0
    assert report.status == Severity.WRONG
    assert all("{" not in finding.what for finding in report.findings)


def damage(place: Memory, how: str) -> str:
    keys = sorted(place._values)
    key = keys[0]
    match how:
        case "block-missing":
            del place._values[key]
        case "block-size":
            place._values[key] = place._values[key][:-1]
        case "flipped":
            value = bytearray(place._values[key])
            value[len(value) // 2] ^= 1
            place._values[key] = bytes(value)
        case "swapped":
            by_size: dict[int, str] = {}
            for each in keys:
                other = by_size.setdefault(len(place._values[each]), each)
                if other != each:
                    place._values[each], place._values[other] = place._values[other], place._values[each]
                    return each
            raise AssertionError("no two blocks of one size")
        case "header":
            place._values[key] = b"ENTX" + place._values[key][4:]
    return key


@pytest.mark.parametrize("how", ["block-missing", "block-size"])
async def test_a_lost_or_short_copy_is_found_by_the_quick_check(site: Site, how: str) -> None:
    await site.work()
    two = site.places[1]
    assert isinstance(two, Memory)
    key = damage(two, how)
    report = await checked(site)
    assert [(finding.kind, finding.where) for finding in report.findings] == [(how, f"{key} on two")]
    assert report.status == Severity.WRONG


@pytest.mark.parametrize("how", ["flipped", "swapped", "header"])
async def test_a_copy_that_is_not_what_was_stored_is_found_by_reading(site: Site, how: str) -> None:
    await site.work()
    two = site.places[1]
    assert isinstance(two, Memory)
    key = damage(two, how)
    assert (await checked(site)).findings == []
    report = await checked(site, read=True)
    assert {finding.kind for finding in report.findings} == {"block-damaged"}
    assert f"{key} on two" in {finding.where for finding in report.findings}


async def unreachable(site: Site, *faults: Fault, read: bool) -> tuple[FsckReport, FaultPlan, int]:
    """Check while *faults* strike the second backend. Also returns how many blocks are there."""
    await site.work()
    plan = FaultPlan(list(faults))
    second = max(site.backends)
    site.backends[second] = Faulty(site.places[1], plan)
    return await checked(site, read=read), plan, len(await site.stored(1))


@pytest.mark.parametrize("read", [False, True])
async def test_a_backend_that_cannot_be_reached_is_one_finding_and_none_of_its_blocks_is_damaged(
    site: Site, read: bool
) -> None:
    report, _, blocks = await unreachable(site, Fault(FaultKind.ERROR), read=read)
    ((severity, kind, where, what),) = report.findings
    assert (severity, kind, where) == (Severity.UNCHECKED, "backend-unreachable", "two")
    assert f"unreachable backend: {blocks} blocks could not be checked: " in what
    assert (report.worst, report.unchecked) == (Severity.UNCHECKED, blocks)


async def test_copies_that_cannot_be_read_are_one_finding_and_are_not_all_asked_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreachable_backends, "UNREACHABLE_AFTER", 2)
    monkeypatch.setattr(frame_check, "READ_AT_ONCE", 1)
    report, plan, blocks = await unreachable(site, Fault(FaultKind.ERROR, verb="get"), read=True)
    assert blocks > 3
    assert [each.kind for each in report.findings] == ["backend-unreachable"]
    assert report.unchecked == blocks
    assert len(plan.struck) == 2


async def test_one_copy_that_could_not_be_read_is_counted_alone(site: Site) -> None:
    report, _, _ = await unreachable(site, Fault(FaultKind.ERROR, verb="get", nth=2), read=True)
    assert [each.kind for each in report.findings] == ["backend-unreachable"]
    assert (report.worst, report.unchecked) == (Severity.UNCHECKED, 1)


async def test_what_is_wrong_elsewhere_is_worse_than_a_backend_that_cannot_be_reached(site: Site) -> None:
    await site.work()
    one = site.places[0]
    assert isinstance(one, Memory)
    damage(one, "block-missing")
    report, _, _ = await unreachable(site, Fault(FaultKind.ERROR), read=False)
    assert report.kinds == {"block-missing": 1, "backend-unreachable": 1}
    assert report.worst is Severity.WRONG


@pytest.mark.parametrize(
    ("how", "word"), [("block-missing", ABSENT), ("block-size", DAMAGED), ("flipped", DAMAGED), ("swapped", DAMAGED)]
)
async def test_bad_copies_are_reported_for_repair(site: Site, how: str, word: str) -> None:
    await site.work()
    number, two = list(site.backends.items())[1]
    assert isinstance(two, Memory)
    key = damage(two, how)
    calls: list[tuple[bytes, int, str]] = []

    async def mend(*copy: Any) -> None:
        calls.append(copy)

    report = await check_site(site.path, site.store, site.backends, read=site.block_keys, mend=mend)
    assert (block_id_of(key), number, word) in calls
    assert {each[1] for each in calls} == {number}
    assert report.to_mend == {each[:2] for each in calls}


async def test_blocks_in_flight_are_no_finding_and_those_of_ended_sessions_are_waste(site: Site) -> None:
    await site.work()
    await site.writer.store(site.write_context(), chunks(b"in flight", 9), None, Digests())
    report = await checked(site)
    assert (report.status, report.counted["in_flight"]) == (0, 2)
    other = site.client()
    await site.new_writer(other).store(site.write_context(), chunks(b"left", 9), None, Digests())
    site.end(other)
    for place in site.places:
        await place.put("00000000000000ff/" + "ab" * 16, [b"?"], crc(b"?"))
        await place.put("stray", [b"?"], crc(b"?"))
    report = await checked(site)
    assert report.kinds == {"block-unnamed": 2, "block-orphan": 2, "key-strange": 2}
    assert report.status == Severity.WASTE


def crc(data: bytes) -> int:
    from backends.base import crc32c_of

    return crc32c_of([data])


async def test_a_copy_where_the_journal_names_none_is_a_stray(site: Site) -> None:
    await site.work()
    one = min(site.backends)
    from gateway.blocks.commands.block_copies import SetBlockBackends
    from gateway.journal.columns import pack
    from gateway.placement.commands import NameBackendSet

    site.committer.run(NameBackendSet((one,)))
    ((block,),) = site.store.query("SELECT id FROM block ORDER BY id LIMIT 1")
    assert await site.journal.send(SetBlockBackends(block, site.set_id, pack([one]))) is True
    assert await site.journal.send(SetBlockBackends(block, site.set_id, pack([one]))) is False
    report = await checked(site)
    assert report.findings == []
    assert report.counted["in_flight"] == 1, "its session lives: it may be about to name that copy, too"
    site.end(site.journal)
    assert (await checked(site)).kinds == {"block-stray": 1}
    await collect(site.store, site.worker_journal, site.backends, site.workers, site.timing)
    assert site.store.query("SELECT block, strays FROM work") == [(block, pack([max(site.backends)]))]
    assert (await checked(site)).findings == [], "who works on copies knows of it"


def test_a_report_lists_only_so_many_findings_and_counts_all() -> None:
    report = FsckReport()
    for n in range(KEPT + 5):
        report.add(Severity.WASTE, "key-strange", str(n), "x")
    assert (len(report.findings), report.kinds["key-strange"], report.status) == (KEPT, KEPT + 5, 1)


async def test_a_survey_counts_the_uploads_into_a_deleted_bucket(site: Site) -> None:
    before = (await survey(site.store, site.backends)).freed
    tamper(site, "INSERT INTO gone VALUES (1, 'was', 2, 3)")
    assert (await survey(site.store, site.backends)).freed == before + 3


async def test_a_survey_counts_the_garbage_and_collecting_deletes_it(site: Site) -> None:
    other = site.client()
    await site.new_writer(other).store(site.write_context(), chunks(b"left", 9), None, Digests())
    site.end(other)
    for place in site.places:
        await place.put("00000000000000ff/" + "ab" * 16, [b"?"], crc(b"?"))
    before = await site.stored()
    waste = await survey(site.store, site.backends)
    assert await site.stored() == before
    assert waste.freed > 0
    assert waste.blocks[BlockState.UNNAMED] == waste.blocks[BlockState.ORPHAN] == 2
    assert waste.bytes[BlockState.ORPHAN] == 2
    left = await collect(site.store, site.worker_journal, site.backends, site.workers, site.timing)
    assert (left.freed, left.blocks, left.sparse_blocks) == (0, {}, 0)
    report = await checked(site, read=True)
    assert report.findings == []


def test_every_check_of_the_tables_has_a_test_that_makes_it_fail() -> None:
    assert set(TAMPERINGS) == {each.kind for each in CHECKS}
