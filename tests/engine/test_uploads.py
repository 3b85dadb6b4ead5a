"""Completing uploads of many parts: in slices, by a committer that goes on with others' work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.blocks.fsck.findings import FsckReport
from gateway.blocks.fsck.table_check import check_tables
from gateway.blocks.maintenance.release import ContentReleaser
from gateway.engine import copies, uploads
from gateway.engine.engine import Engine
from gateway.engine.types import ByteRange, Caller, Conditions, ExpectedDigests, ObjectMeta, WantedPart
from gateway.errors import (
    AccessDenied,
    Busy,
    CommitterGone,
    InvalidArgument,
    InvalidPart,
    NoSuchUpload,
    PreconditionFailed,
)
from gateway.journal.paths import JournalPaths
from gateway.namespace.commands import complete, prepare_completion
from gateway.namespace.commands.complete import CompleteUpload
from gateway.namespace.commands.complete_prepared import CompletePrepared, StagePieces
from gateway.namespace.commands.copy import CopyPart
from gateway.site.admin.maintenance import background_workers
from gateway.site.site import Site
from tests.engine.bodies import Bytes, get, put


@pytest.fixture(autouse=True)
def few_parts_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need few parts, and small ones."""
    monkeypatch.setattr(uploads, "PARTS_AT_ONCE", 2)
    monkeypatch.setattr(prepare_completion, "GATHERED", 2)
    monkeypatch.setattr(prepare_completion, "STAGED_PIECES", 2)
    monkeypatch.setattr(complete, "LEAST_PART_BYTES", 1)


@pytest.fixture
def sent(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The commands that copy parts and complete uploads, or prepare that, as they are sent."""
    found: list[Any] = []
    send = site.journal.send

    async def listed(command: Any) -> Any:
        if isinstance(command, CopyPart | CompleteUpload | CompletePrepared | StagePieces):
            found.append(command)
        return await send(command)

    monkeypatch.setattr(site.journal, "send", listed)
    return found


async def uploaded(engine: Engine, root: Caller, key: bytes, count: int) -> tuple[str, list[WantedPart]]:
    upload = await engine.create_upload(root, "tree", key, ObjectMeta(), "", "")
    parts = []
    for number in range(1, count + 1):
        data = b"%d" % number * 1_000
        stored = await engine.put_part(root, "tree", key, upload, number, Bytes(data), ExpectedDigests(len(data)))
        parts.append(WantedPart(number, stored.etag))
    return upload, parts


def findings(site: Site) -> dict[str, int]:
    report = FsckReport()
    check_tables(JournalPaths(site.journal_path).database, report, lambda done, total: None)
    return dict(report.kinds)


async def test_an_upload_of_many_parts_is_completed_by_a_command_that_looks_at_none(
    site: Site, engine: Engine, root: Caller, sent: list[Any]
) -> None:
    upload, parts = await uploaded(engine, root, b"k", 7)
    named = parts[:3] + parts[4:]
    done = await engine.complete_upload(root, "tree", b"k", upload, named)
    assert [type(each) for each in sent] == [CompletePrepared]
    data = b"".join(b"%d" % number * 1_000 for number in (1, 2, 3, 5, 6, 7))
    assert await get(engine, root, b"k") == data
    assert site.store.query("SELECT count(*) FROM part") == [(7,)]
    assert findings(site) == {}
    assert await engine.complete_upload(root, "tree", b"k", upload, named) == done
    with pytest.raises(NoSuchUpload):
        await engine.complete_upload(root, "tree", b"k", upload, parts)
    releaser = next(each for each in background_workers(site) if isinstance(each, ContentReleaser))
    while site.store.query("SELECT count(*) FROM freed") != [(0,)]:
        await releaser.step()
        assert findings(site) == {}
    assert site.store.query("SELECT count(*) FROM part") == [(0,)]
    assert site.store.query("SELECT count(*) FROM run") == [(6,)]
    assert await get(engine, root, b"k") == data


async def test_what_cannot_be_completed_is_refused_and_stays_open(
    site: Site, engine: Engine, root: Caller, sent: list[Any]
) -> None:
    upload, parts = await uploaded(engine, root, b"k", 3)
    with pytest.raises(InvalidPart):
        await engine.complete_upload(root, "tree", b"k", upload, [*parts, WantedPart(9, "0" * 32)])
    other = root._replace(user="other", user_id=root.user_id + 1, root=False)
    with pytest.raises(AccessDenied):
        await engine.complete_upload(other, "tree", b"k", upload, parts)
    assert sent == []
    await engine.abort_upload(root, "tree", b"k", upload)
    with pytest.raises(NoSuchUpload):
        await engine.complete_upload(root, "tree", b"k", upload, parts)


async def test_parts_that_come_meanwhile_have_the_others_looked_at_anew_and_not_for_ever(
    site: Site, engine: Engine, root: Caller, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, parts = await uploaded(engine, root, b"k", 3)
    gather, left = prepare_completion.gather_parts, [1]

    async def then_a_part_comes(*asked: Any) -> Any:
        found = await gather(*asked)
        if left[0]:
            left[0] -= 1
            await engine.put_part(root, "tree", b"k", upload, 3, Bytes(b"3" * 1_000), ExpectedDigests(1_000))
        return found

    monkeypatch.setattr(prepare_completion, "gather_parts", then_a_part_comes)
    await engine.complete_upload(root, "tree", b"k", upload, parts)
    assert len(sent) == 2
    assert findings(site) == {}
    upload, parts = await uploaded(engine, root, b"k", 3)
    left[0] = 99
    with pytest.raises(Busy):
        await engine.complete_upload(root, "tree", b"k", upload, parts)
    left[0] = 0
    await engine.complete_upload(root, "tree", b"k", upload, parts)


async def copied(engine: Engine, root: Caller, key: bytes) -> tuple[str, list[WantedPart], bytes]:
    """An upload of three parts, of which two are copied from several runs; and the bytes of the whole."""
    source, named = await uploaded(engine, root, b"source", 5)
    await engine.complete_upload(root, "tree", b"source", source, named)
    data = await get(engine, root, b"source")
    upload = await engine.create_upload(root, "tree", key, ObjectMeta(), "", "")
    own = await engine.put_part(root, "tree", key, upload, 2, Bytes(b"own"), ExpectedDigests(3))
    first = await engine.copy_part(root, "tree", key, upload, 1, "tree", b"source", None, ByteRange(500, 3_499))
    last = await engine.copy_part(root, "tree", key, upload, 3, "tree", b"source", None, None)
    parts = [WantedPart(1, first.part.etag), WantedPart(2, own.etag), WantedPart(3, last.part.etag)]
    return upload, parts, data[500:3_500] + b"own" + data


async def nothing_is_left(site: Site) -> None:
    """Take apart all that nobody holds, and see that the tables agree at each step."""
    releaser = next(each for each in background_workers(site) if isinstance(each, ContentReleaser))
    while site.store.query("SELECT count(*) FROM freed") != [(0,)]:
        await releaser.step()
        assert findings(site) == {}


@pytest.mark.parametrize(("most", "shared"), [(4, [4, 0]), (3, [0])], ids=["shared", "stored anew"])
async def test_a_part_that_meets_many_pieces_of_its_source_is_stored_anew(
    site: Site, engine: Engine, root: Caller, sent: list[Any], monkeypatch: pytest.MonkeyPatch,
    most: int, shared: list[int],
) -> None:  # fmt: skip
    monkeypatch.setattr(copies, "SHARED_PIECES_MAX", most)
    upload, parts, data = await copied(engine, root, b"k")
    assert [len(each.pieces) for each in sent if isinstance(each, CopyPart)] == shared
    await engine.complete_upload(root, "tree", b"k", upload, parts)
    assert await get(engine, root, b"k") == data
    assert findings(site) == {}
    await engine.delete(root, "tree", b"k")
    await engine.delete(root, "tree", b"source")
    await nothing_is_left(site)
    assert site.store.query("SELECT count(*) FROM body, run") == [(0,)]


@pytest.mark.parametrize("at_once", [2, 256], ids=["many parts", "few parts"])
async def test_runs_of_copied_parts_are_counted_in_slices_before_the_upload_is_completed(
    site: Site, engine: Engine, root: Caller, sent: list[Any], monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(uploads, "PARTS_AT_ONCE", at_once)
    upload, parts, data = await copied(engine, root, b"k")
    sent.clear()
    done = await engine.complete_upload(root, "tree", b"k", upload, parts)
    slices = [each for each in sent if isinstance(each, StagePieces)]
    assert isinstance(sent[-1], CompletePrepared)
    assert [len(each.pieces) for each in slices] == [2, 2, 2, 2, 1], "9 runs, 2 at a time"
    assert findings(site) == {}
    assert await get(engine, root, b"k") == data
    assert await engine.complete_upload(root, "tree", b"k", upload, parts) == done
    await nothing_is_left(site)
    assert site.store.query("SELECT count(*) FROM body") == [(2,)], "the source's, and the new one"
    await engine.delete(root, "tree", b"k")
    await engine.delete(root, "tree", b"source")
    await nothing_is_left(site)
    assert site.store.query("SELECT count(*) FROM body, run") == [(0,)]


async def test_a_completion_that_was_cut_short_goes_on_where_it_stopped(
    site: Site, engine: Engine, root: Caller, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, parts, data = await copied(engine, root, b"k")
    send = site.journal.send

    async def killed(command: Any) -> Any:
        if isinstance(command, StagePieces) and command.nth == 2:
            raise CommitterGone("the process that completes is killed")
        return await send(command)

    with monkeypatch.context() as killing:
        killing.setattr(site.journal, "send", killed)
        with pytest.raises(CommitterGone):
            await engine.complete_upload(root, "tree", b"k", upload, parts)
    assert findings(site) == {}
    sent.clear()
    await engine.complete_upload(root, "tree", b"k", upload, parts)
    assert [each.nth for each in sent if isinstance(each, StagePieces)] == [0, 2, 3, 4]
    assert await get(engine, root, b"k") == data
    await nothing_is_left(site)


@pytest.mark.parametrize("end", ["abort", "another list", "a part replaced", "a condition"])
async def test_what_a_completion_has_staged_in_vain_is_let_go_of(
    site: Site, engine: Engine, root: Caller, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    upload, parts, data = await copied(engine, root, b"k")
    send = site.journal.send

    async def another_comes_first(command: Any) -> Any:
        if isinstance(command, CompletePrepared):
            await put(engine, root, b"k", b"older")
        return await send(command)

    with monkeypatch.context() as racing:
        racing.setattr(site.journal, "send", another_comes_first)
        with pytest.raises(PreconditionFailed):
            await engine.complete_upload(root, "tree", b"k", upload, parts, Conditions(if_none_match=("*",)))
    assert site.store.query("SELECT count(*) FROM upload WHERE staged <> x''") == [(1,)]
    assert findings(site) == {}
    expected = b"older"
    match end:
        case "abort":
            await engine.abort_upload(root, "tree", b"k", upload)
        case "another list":
            await engine.complete_upload(root, "tree", b"k", upload, parts[:2])
            expected = data[:3_003]
        case "a part replaced":
            stored = await engine.put_part(root, "tree", b"k", upload, 1, Bytes(b"other"), ExpectedDigests(5))
            await engine.complete_upload(root, "tree", b"k", upload, [WantedPart(1, stored.etag), parts[2]])
            expected = b"other" + data[3_003:]
        case _:
            await engine.complete_upload(root, "tree", b"k", upload, parts, Conditions(if_match=("*",)))
            expected = data
    assert findings(site) == {}
    assert await get(engine, root, b"k") == expected
    await nothing_is_left(site)
    held = site.store.query("SELECT count(*) FROM body WHERE id NOT IN (SELECT content FROM file WHERE shape = 2)")
    assert held == [(0,)]


@pytest.mark.parametrize(
    "conditions",
    [Conditions(if_none_match=("*",)), Conditions(if_match=("another",))],
    ids=["if-none-match", "if-match"],
)
async def test_a_completion_whose_conditions_do_not_hold_is_refused_before_anything_is_staged(
    site: Site, engine: Engine, root: Caller, sent: list[Any], conditions: Conditions
) -> None:
    upload, parts, data = await copied(engine, root, b"k")
    await put(engine, root, b"k", b"older")
    sent.clear()
    with pytest.raises(PreconditionFailed):
        await engine.complete_upload(root, "tree", b"k", upload, parts, conditions)
    assert [each for each in sent if isinstance(each, StagePieces | CompletePrepared)] == []
    await engine.delete(root, "tree", b"k")
    absent = Conditions(if_none_match=("*",))
    done = await engine.complete_upload(root, "tree", b"k", upload, parts, absent)
    assert await engine.complete_upload(root, "tree", b"k", upload, parts, absent) == done, "it is remembered"
    assert await get(engine, root, b"k") == data


@pytest.mark.parametrize("bytes_max", [28, 1], ids=["counted", "too long to be counted"])
async def test_an_object_of_too_many_pieces_is_refused_before_anything_is_staged(
    site: Site, engine: Engine, root: Caller, sent: list[Any], monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    upload, parts, data = await copied(engine, root, b"k")
    monkeypatch.setattr(prepare_completion, "PIECE_BYTES_MAX", bytes_max)
    monkeypatch.setattr(prepare_completion, "MOST_PIECES", 9)
    sent.clear()
    with pytest.raises(InvalidArgument, match="the object would have more than 9 pieces"):
        await engine.complete_upload(root, "tree", b"k", upload, parts)
    assert sent == []
    monkeypatch.undo()
    await engine.complete_upload(root, "tree", b"k", upload, parts[:1])
    assert await get(engine, root, b"k") == data[:3_000]


async def test_one_process_prepares_few_completions_at_a_time_and_users_take_turns(
    engine: Engine, root: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "PARTS_AT_ONCE", 0)
    begun = [await uploaded(engine, root, b"%d" % number, 2) for number in range(6)]
    other = root._replace(user="other", user_id=root.user_id + 1)  # a second root user
    gather, order, under_way, most = prepare_completion.gather_parts, list[bytes](), [0], [0]

    async def counted(reads: Any, row: Any) -> Any:
        order.append(row.key)
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        await asyncio.sleep(0.01)
        under_way[0] -= 1
        return await gather(reads, row)

    monkeypatch.setattr(prepare_completion, "gather_parts", counted)
    callers = [root, root, root, root, root, other]
    await asyncio.gather(
        *(
            engine.complete_upload(caller, "tree", b"%d" % number, *begun[number])
            for number, caller in enumerate(callers)
        )
    )
    assert most == [2]
    assert order.index(b"5") <= 3, "it waits for one of the other user's"


async def test_a_completion_is_charged_to_the_bytes_in_flight_while_it_is_prepared(
    site: Site, engine: Engine, root: Caller
) -> None:
    budget = site.storage.writer.budget
    upload, parts = await uploaded(engine, root, b"k", 3)
    await budget.acquire(budget.limit)
    completing_it = asyncio.create_task(engine.complete_upload(root, "tree", b"k", upload, parts))
    while not (budget.waiting_bytes or completing_it.done()):
        await asyncio.sleep(0)
    assert budget.waiting_bytes == 3 * prepare_completion.PART_BYTES
    budget.release(budget.limit)
    await completing_it
    assert budget.used == 0


async def test_a_completion_of_copied_parts_is_charged_for_the_pieces_that_they_have(
    site: Site, engine: Engine, root: Caller
) -> None:
    budget = site.storage.writer.budget
    upload, parts, _ = await copied(engine, root, b"k")
    await budget.acquire(budget.limit)
    completing_it = asyncio.create_task(engine.complete_upload(root, "tree", b"k", upload, parts))
    while not (budget.waiting_bytes or completing_it.done()):
        await asyncio.sleep(0)
    for_pieces = budget.waiting_bytes - 3 * prepare_completion.PART_BYTES
    assert 8 * prepare_completion.PIECE_BYTES <= for_pieces <= 8 * 3 * prepare_completion.PIECE_BYTES, (
        "of eight pieces in two parts"
    )
    budget.release(budget.limit)
    await completing_it
    assert budget.used == 0
