"""The suite of kills can fail: what it would have to notice is fed to it, and it does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.files import block_files
from tests.flows.killing import Served, is_fault
from tests.flows.ledger import Broken, Ledger, Value, check_parts, check_uploads
from tests.flows.load import BUCKET, marks
from tests.flows.voyage import Voyage
from tests.flows.wire import Wire, content, expect, value_of

ONE, TWO, THREE = (value_of(tag, content(tag, 1_000)) for tag in ("one", "two", "three"))


def written(ledger: Ledger, value: Value | None, key: str = "k") -> None:
    ledger.acknowledge(ledger.begin(key, "PUT" if value else "DELETE", value))


def reads(ledger: Ledger, seen: Value | None, key: str = "k") -> None:
    ledger.check_read(key, seen, ledger.now())


def refuses(ledger: Ledger, seen: Value | None, sentence: str) -> None:
    with pytest.raises(Broken, match=sentence):
        reads(ledger, seen)


def test_an_acknowledged_object_that_is_lost_is_noticed() -> None:
    ledger = Ledger()
    written(ledger, ONE)
    reads(ledger, ONE)
    refuses(ledger, None, "expected one .*; seen nothing")


def test_a_stale_read_is_noticed() -> None:
    ledger = Ledger()
    written(ledger, ONE)
    written(ledger, TWO)
    reads(ledger, TWO)
    refuses(ledger, ONE, "expected two .*; seen one")


def test_a_deleted_object_that_is_back_is_noticed() -> None:
    ledger = Ledger()
    written(ledger, ONE)
    written(ledger, None)
    refuses(ledger, ONE, "expected nothing; seen one")


@pytest.mark.parametrize(
    "mixed",
    [
        Value("two", ONE.size, ONE.md5, ONE.etag),
        Value("one", ONE.size, TWO.md5, ONE.etag),
        Value("one", ONE.size - 1, ONE.md5, ONE.etag),
        Value("one", ONE.size, ONE.md5, TWO.etag),
    ],
    ids=["metadata", "content", "size", "etag"],
)
def test_an_object_that_is_half_the_old_and_half_the_new_is_noticed(mixed: Value) -> None:
    ledger = Ledger()
    written(ledger, ONE)
    ledger.leave_open(ledger.begin("k", "PUT", TWO), "killed")
    refuses(ledger, mixed, "expected one .* or two .*; seen ")


def test_an_object_under_somebody_elses_key_is_noticed_and_its_owner_named() -> None:
    ledger = Ledger()
    written(ledger, ONE)
    written(ledger, TWO, "other")
    refuses(ledger, TWO, "seen two .*, but two is two .* of 'other'")


def test_an_unanswered_write_may_be_seen_or_not_but_not_come_and_go() -> None:
    ledger = Ledger()
    written(ledger, ONE)
    ledger.leave_open(ledger.begin("k", "PUT", TWO), "killed")
    reads(ledger, ONE)
    reads(ledger, TWO)
    refuses(ledger, ONE, "expected two .*; seen one")


def test_an_unanswered_write_may_come_late_until_the_key_is_settled() -> None:
    ledger = Ledger()
    ledger.leave_open(ledger.begin("k", "PUT", ONE), "killed")
    written(ledger, TWO)
    assert ledger.possible("k", ledger.now()) == [ONE, TWO]
    ledger.settle("k", TWO, ledger.now())
    refuses(ledger, ONE, "expected two .*; seen one")


def test_of_writes_at_the_same_time_any_may_be_the_last_but_none_that_ended_before_another_began() -> None:
    ledger = Ledger()
    written(ledger, ONE)
    first, second = ledger.begin("k", "PUT", TWO), ledger.begin("k", "PUT", THREE)
    ledger.acknowledge(second)
    ledger.acknowledge(first)
    assert ledger.possible("k", ledger.now()) == [TWO, THREE]
    refuses(ledger, ONE, "expected two .* or three .*; seen one")


def test_a_read_during_a_write_may_show_the_old_and_the_new() -> None:
    ledger = Ledger()
    written(ledger, ONE)
    began = ledger.now()
    written(ledger, TWO)
    ledger.check_read("k", ONE, began)
    ledger.check_read("k", TWO, began)
    refuses(ledger, ONE, "expected two")


def test_two_who_were_both_told_that_they_came_first_are_noticed() -> None:
    ledger = Ledger()
    first, second = (ledger.begin("k", "PUT", value, if_absent=True) for value in (ONE, TWO))
    ledger.acknowledge(first)
    with pytest.raises(Broken, match="2 were told that they came first"):
        ledger.acknowledge(second)


def test_one_who_was_told_that_it_came_first_though_something_stood_there_is_noticed() -> None:
    ledger = Ledger()
    written(ledger, ONE)
    with pytest.raises(Broken, match="though something stood there all the time"):
        ledger.acknowledge(ledger.begin("k", "PUT", TWO, if_absent=True))


def test_one_who_was_refused_though_nothing_stood_there_is_noticed() -> None:
    ledger = Ledger()
    with pytest.raises(Broken, match="refused for what stands there, and nothing can"):
        ledger.refuse_as_present(ledger.begin("k", "PUT", ONE, if_absent=True))


def test_behind_the_first_nobody_else_who_asked_to_be_first_may_be_seen() -> None:
    ledger = Ledger()
    ledger.leave_open(ledger.begin("k", "PUT", ONE, if_absent=True), "killed")
    ledger.acknowledge(ledger.begin("k", "PUT", TWO, if_absent=True))
    refuses(ledger, ONE, "expected two .*; seen one")


def test_a_listing_that_misses_invents_or_misdescribes_is_noticed() -> None:
    ledger = Ledger()
    written(ledger, ONE)
    ledger.settle("k", ONE, ledger.now())
    ledger.check_listing({"k": (ONE.size, ONE.etag)})
    for listed, sentence in (
        ({}, "is not listed"),
        ({"k": (ONE.size, ONE.etag), "other": (1, "x")}, "nothing stands there, and it is listed"),
        ({"k": (ONE.size, TWO.etag)}, "expected one"),
        ({"k": (1, ONE.etag)}, "expected one"),
    ):
        with pytest.raises(Broken, match=sentence):
            ledger.check_listing(listed)


def test_a_head_that_says_something_else_than_get_is_noticed() -> None:
    ledger = Ledger()
    written(ledger, ONE)
    ledger.settle("k", ONE, ledger.now())
    ledger.check_head("k", "one", ONE.size, ONE.etag)
    with pytest.raises(Broken, match="HEAD two"):
        ledger.check_head("k", "two", ONE.size, ONE.etag)


def test_uploads_that_are_lost_left_over_or_half_there_are_noticed() -> None:
    assert check_uploads({"u": "k"}, {"u": "k", "v": "l"}, {"l": 1}) == [("v", "l")]
    with pytest.raises(Broken, match="is not listed"):
        check_uploads({"u": "k"}, {}, {})
    with pytest.raises(Broken, match="1 uploads are listed that had ended"):
        check_uploads({}, {"u": "k"}, {})
    check_parts("k", {1: (5, "a")}, {2}, {1: (5, "a"), 2: (6, "b")})
    with pytest.raises(Broken, match="part 1 was acknowledged"):
        check_parts("k", {1: (5, "a")}, {2}, {2: (6, "b")})
    with pytest.raises(Broken, match=r"parts \[3\] are listed"):
        check_parts("k", {1: (5, "a")}, {2}, {1: (5, "a"), 3: (6, "b")})


def test_a_broken_promise_is_told_with_what_happened_to_its_key() -> None:
    ledger = Ledger()
    written(ledger, ONE)
    ledger.leave_open(ledger.begin("k", "PUT", TWO), "ConnectionResetError")
    refuses(ledger, None, r"(?s)PUT of one .*: acknowledged.*PUT of two .*: not answered: ConnectionResetError")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"level":"error","event":"request","status":500}', True),
        ('{"level":"error","event":"request","status":503}', False),
        ('{"level":"error","event":"failed"}', True),
        ('{"level":"warning","event":"x","traceback":"…"}', True),
        ('{"level":"warning","event":"process ended"}', False),
        ("Traceback (most recent call last):", True),
        ('{"at":"1","level":"info","event":"requ{"at":"2","level":"info","event":"ready"}', False),
        ('{"at":"1","level":"info","event":"requ{"at":"2","level":"error","event":"failed"}', True),
        ('{"at":"1","level":"error","event":"fai{"at":"2","level":"info","event":"ready"}', True),
        ('{"at":"1","level":"warning","event":"x","traceback":"Tr{"at":"2","level":"info","event":"ready"}', True),
        ('{"at":"1","level":"info","event":"requTraceback (most recent call last):', True),
        ('Traceback {"at":"2","level":"info","event":"ready"}', True),
        ('{"at":"1","level":"info","event":"requ', True),
    ],
)
def test_of_the_servers_log_a_kill_excuses_503_and_nothing_else(line: str, fault: bool) -> None:
    assert is_fault(line) is fault


# ---- and on a real site: damage is done behind the ledger's back ----------------------------------------------------


KEYS = ("a", "b/c", "d")
BIG = 300_000


@asynccontextmanager
async def ashore(tmp_path: Path) -> AsyncIterator[tuple[Voyage, Wire]]:
    """A voyage on a site that nobody kills, with a few objects on it, one of them in a block of its own."""
    served = Served(tmp_path / "site")
    served.found()
    wire = Wire(served.where, BUCKET, "ashore")
    try:
        voyage = Voyage(served, "ashore")
        await voyage.begin()
        for key in KEYS:
            body = content(key, BIG if key == "a" else 1_000)
            attempt = voyage.ledger.begin(key, "PUT", value_of(key, body))
            expect(await wire.request("PUT", key, body=body, **marks(key)), 200, key)
            voyage.ledger.acknowledge(attempt)
        await voyage.look()
        yield voyage, wire
    finally:
        wire.close()
        served.end()


async def test_damage_done_through_s3_behind_the_ledgers_back_is_noticed(tmp_path: Path) -> None:
    async with ashore(tmp_path) as (voyage, wire):
        value = voyage.ledger.standing()["d"]

        async def undo() -> None:
            await wire.request("PUT", "d", body=content("d", value.size), **marks("d"))

        await wire.request("DELETE", "d")
        with pytest.raises(Broken, match=r"expected d .*; seen nothing"):
            await voyage.look(everything=True)
        await undo()
        await wire.request("PUT", "d", body=content("d", value.size)[:-1] + b"!", **marks("d"))
        with pytest.raises(Broken, match=r"expected d .*; seen d"):
            await voyage.look(everything=True)
        await undo()
        await wire.request("PUT", "d", body=content("d", value.size), **marks("other"))
        with pytest.raises(Broken, match=r"expected d .*; seen other"):
            await voyage.look(everything=True)
        await undo()
        await wire.request("PUT", "invented", body=b"x")
        with pytest.raises(Broken, match="'invented': nothing stands there, and it is listed"):
            await voyage.look(everything=True)
        await wire.request("DELETE", "invented")
        await wire.request("POST", "d", "uploads=")
        with pytest.raises(Broken, match="1 uploads are listed"):
            await voyage.look(everything=True)


async def test_damage_done_to_the_disk_is_noticed(tmp_path: Path) -> None:
    async with ashore(tmp_path) as (voyage, _):
        served = voyage.served
        served.fsck("--read")
        block = max(block_files(served.folder / "blocks"), key=lambda path: path.stat().st_size)
        whole = block.read_bytes()
        block.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
        with pytest.raises(Broken, match="block-damaged"):
            served.fsck("--read")
        block.unlink()
        with pytest.raises(Broken, match="block-missing"):
            served.fsck()
        block.parent.mkdir(exist_ok=True)
        block.write_bytes(whole)
        stray = served.folder / "blocks" / f"{1 << 60:016x}" / block.name
        stray.parent.mkdir()
        stray.write_bytes(b"nobody's")
        with pytest.raises(Broken, match="'orphan': 1"):
            await served.until_swept(seconds=0)
        served.stop()
        with pytest.raises(Broken, match="1 blocks have no row"):
            served.check_stopped()
        stray.unlink()
        served.check_stopped()
