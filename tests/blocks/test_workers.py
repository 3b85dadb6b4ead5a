"""The workers: unnamed blocks are deleted, blocks that may be read stay, and sparse packs are rewritten."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends import errors as backend_errors
from backends.base import Buffer
from backends.testing.memory import Memory
from gateway import errors
from gateway.blocks.commands.release_content import ReleaseContent
from gateway.blocks.commands.rewrite import EndRewrite, MoveRewritten, PlaceRewrite, RewritePack
from gateway.blocks.commands.sweep import DeadBlock, ForgetBlocks, ForgetSession, SweepSession
from gateway.blocks.digests import Digests
from gateway.blocks.maintenance import release
from gateway.blocks.maintenance.sweeper import Sweeper
from gateway.blocks.types import block_id_of
from gateway.journal.columns import Rewritten, unpack_extents
from gateway.timing import parse_timing
from tests.blocks.site import Site
from tests.blocks.world import chunks
from tests.clocks import manual_timing

MIB = 1 << 20
DATA = random.Random(6).randbytes(20 * MIB)


async def test_what_is_deleted_leaves_no_bytes_and_no_rows(site: Site) -> None:
    await site.put(b"large", DATA)
    await site.put(b"small", b"small")
    await site.copy(b"large", b"dir/copy")
    assert await site.get(b"dir/copy") == DATA
    await site.delete(b"large")
    await site.work()
    assert await site.get(b"dir/copy") == DATA
    await site.delete(b"dir/copy")
    await site.delete(b"small")
    await site.work()
    assert await site.stored() == {}
    assert {table: site.rows(table) for table in ("run", "body", "block", "member", "freed")} == {
        "run": 0, "body": 0, "block": 0, "member": 0, "freed": 0,
    }  # fmt: skip


async def test_an_overwritten_object_in_parts_is_released_in_slices(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "PIECES", 2)
    upload = await site.upload(b"k")
    etags = await asyncio.gather(*(site.part(b"k", upload, n, DATA[: 5 * MIB]) for n in range(1, 6)))
    await site.complete(b"k", upload, list(etags))
    await site.put(b"k", b"new")
    await site.work()
    sent = [command for command in site.worker_journal.sent if isinstance(command, ReleaseContent)]
    assert len(sent) == 3, "five runs, two at a time"
    assert site.rows("run") == 1
    assert len(await site.stored()) == 1
    assert await site.get(b"k") == b"new"


async def test_parts_that_a_completion_did_not_name_and_those_of_an_aborted_upload_are_deleted(site: Site) -> None:
    upload = await site.upload(b"k")
    await site.part(b"k", upload, 2, b"left out")
    etag = await site.part(b"k", upload, 1, b"taken")
    await site.complete(b"k", upload, [etag])
    await site.work()
    assert site.rows("part") == 0
    assert site.rows("run") == 1
    assert await site.get(b"k") == b"taken"


# --- reads in flight -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["delete", "overwrite"])
async def test_a_read_in_flight_survives_delete_overwrite_and_sweep(site: Site, end: str) -> None:
    await site.put(b"k", DATA)
    reader = site.client()
    with reader.reading():
        reading = site.open(b"k")
        first = bytes(await reading.__anext__())
        await (site.delete(b"k") if end == "delete" else site.put(b"k", b"other"))
        await site.work()
        assert first + b"".join([bytes(piece) async for piece in reading]) == DATA
    await site.work()
    assert len(await site.stored()) == (0 if end == "delete" else 1)


async def test_a_read_in_flight_through_a_body_survives_its_release(site: Site) -> None:
    """The runs of a body are looked up one after the other: they must stay until the read ends."""
    upload = await site.upload(b"k")
    etags = [await site.part(b"k", upload, n, DATA[: 5 * MIB]) for n in (1, 2, 3)]
    await site.complete(b"k", upload, etags)
    reader = site.client()
    with reader.reading():
        reading = site.open(b"k")
        first = bytes(await reading.__anext__())
        await site.delete(b"k")
        await site.work()
        assert site.rows("run") == 3
        assert first + b"".join([bytes(piece) async for piece in reading]) == DATA[: 5 * MIB] * 3
    await site.work()
    assert site.rows("run") == 0


async def test_a_read_in_flight_survives_compaction(site: Site) -> None:
    await asyncio.gather(*(site.put(b"%d" % n, DATA[n * 1000 : n * 1000 + 1000]) for n in range(100)))
    reader = site.client()
    with reader.reading():
        reading = site.open(b"7")
        found = reading
        for n in range(100):
            if n != 7:
                await site.delete(b"%d" % n)
    # what is deleted is taken apart, and the pack rewritten, while this reader holds its number
    with reader.reading():
        reading = site.open(b"7")
        await site.work()
        assert site.compactor.moved == 1
        assert len(await site.stored()) == 2, "the old pack stands while somebody may read it"
        assert b"".join([bytes(piece) async for piece in reading]) == DATA[7000:8000]
        assert b"".join([bytes(piece) async for piece in found]) == DATA[7000:8000]
    await site.work()
    assert len(await site.stored()) == 1
    assert await site.get(b"7") == DATA[7000:8000]


# --- compaction ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0.1, 0.55, 0.7])
async def test_after_most_small_objects_are_deleted_the_disk_holds_little_more_than_what_lives(
    site: Site, kept: float
) -> None:
    chance = random.Random(8)
    sizes = {b"%d" % n: chance.randint(1, 40_000) for n in range(600)}
    for some in range(0, 600, 50):
        await asyncio.gather(*(site.put(key, DATA[: sizes[key]]) for key in list(sizes)[some : some + 50]))
    for key in chance.sample(list(sizes), int(600 * (1 - kept))):
        await site.delete(key)
        del sizes[key]
    await site.work()
    lives = sum(sizes.values())
    assert sum((await site.stored()).values()) <= 1.3 * lives
    for key, size in sizes.items():
        assert await site.get(key) == DATA[:size]


async def test_what_is_four_fifths_alive_is_left_alone(site: Site) -> None:
    await asyncio.gather(*(site.put(b"%d" % n, DATA[:1000]) for n in range(10)))
    before = await site.stored()
    await site.delete(b"1")
    await site.delete(b"2")
    await site.work()
    assert await site.stored() == before


async def test_a_run_that_changed_meanwhile_is_not_moved_and_its_new_pack_is_deleted(site: Site) -> None:
    await asyncio.gather(*(site.put(b"%d" % n, DATA[:1000]) for n in range(10)))
    for n in range(8):
        await site.delete(b"%d" % n)
    while await site.releaser.step():
        pass
    send = site.worker_journal.send

    async def delete_first(command: object) -> object:
        if isinstance(command, MoveRewritten):
            site.worker_journal.send = send  # type: ignore[method-assign]
            await site.delete(b"9")
            await site.release_at_once()
        return await send(command)

    site.worker_journal.send = delete_first  # type: ignore[method-assign]
    while not site.compactor.moved:
        assert await site.compactor.step()
    assert site.compactor.moved == 1
    await site.work()
    assert await site.get(b"8") == DATA[:1000]
    assert len(await site.stored()) == 1


async def test_a_move_of_extents_that_are_not_as_they_were_read_is_not_made(site: Site) -> None:
    await site.put(b"k", b"data")
    ((run, packed),) = site.store.query("SELECT id, extents FROM run")
    (extent,) = unpack_extents(packed)
    stored = await site.writer.store(site.write_context(), chunks(b"data", 4), 4, Digests())
    (block,) = stored.blocks
    right = Rewritten(run, 0, extent, stored.extents[0])
    rewrite = RewritePack(block, site.policy, (extent.block,), (right,))
    with pytest.raises(errors.SessionExpired):
        await site.worker_journal.send(rewrite)
    with pytest.raises(errors.InvalidArgument):
        await site.journal.send(replace(rewrite, copies=(right._replace(after=extent),)))
    assert await site.journal.send(rewrite) is True
    assert await site.journal.send(rewrite) is False
    held = ((extent.block, block.backends),)
    move = MoveRewritten(block.id, 7, (right,), held)
    assert await site.journal.send(move) is None, "nobody said that it is where it should be"
    assert await site.journal.send(PlaceRewrite(block.id, 7, block.backends + 99)) is False
    assert await site.journal.send(PlaceRewrite(block.id, 7, block.backends)) is True
    wrong = right._replace(before=extent._replace(offset=extent.offset + 1))
    for copy in (wrong, right._replace(run=run + 999), right._replace(nth=1)):
        assert await site.journal.send(MoveRewritten(block.id, 7, (copy,), held)) == 0
    assert await site.journal.send(MoveRewritten(block.id, 8, (right,), held)) is None
    for other in ((), ((extent.block, block.backends + 99),)):
        assert await site.journal.send(MoveRewritten(block.id, 7, (right,), other)) is None, "the old pack was moved"
    assert await site.journal.send(move) == 1
    assert await site.journal.send(EndRewrite(block.id)) is True
    assert await site.journal.send(EndRewrite(block.id)) is False
    assert await site.get(b"k") == b"data"


class Forgetful(Memory):
    """Confirms each put, and from some moment on stores nothing, or something else."""

    def __init__(self) -> None:
        super().__init__()
        self.instead: Callable[[bytes], bytes | None] | None = None
        self.puts = 0

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        await super().put(key, value, crc32c)
        self.puts += 1
        if self.instead is not None:
            kept = self.instead(self._values.pop(key))
            if kept is not None:
                self._values[key] = kept


def lost(value: bytes) -> None:
    return None


def cut_short(value: bytes) -> bytes:
    return value[:-1]


def damaged(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])


@pytest.mark.parametrize(
    ("place", "instead"), [(0, lost), (0, cut_short), (0, damaged), (1, lost), (1, cut_short)]
)  # of several backends one is read
async def test_a_pack_is_kept_if_the_new_one_is_not_where_it_was_put(
    tmp_path: Path, place: int, instead: Callable[[bytes], bytes | None]
) -> None:
    places = (Forgetful(), Forgetful())
    timing, clock = manual_timing()
    site = Site(tmp_path, *places, timing=timing)
    await asyncio.gather(*(site.put(b"%d" % n, DATA[n : n + 1000]) for n in range(10)))
    for n in range(8):
        await site.delete(b"%d" % n)
    places[place].instead = instead
    await site.work()
    assert site.compactor.moved == 0
    puts = places[0].puts
    await site.work()
    assert places[0].puts == puts, "it is not tried again at once"
    for n in (8, 9):
        assert await site.get(b"%d" % n) == DATA[n : n + 1000]
    places[place].instead = None
    clock.advance(timing.compactor.rest_seconds)
    await site.work()
    assert site.compactor.moved == 2
    assert len(await site.stored(0)) == len(await site.stored(1)) == 1
    for n in (8, 9):
        assert await site.get(b"%d" % n) == DATA[n : n + 1000]
    site.close()


async def test_a_damaged_pack_is_not_compacted_and_the_others_are(site: Site) -> None:
    place = site.places[0]
    assert isinstance(place, Memory)
    for batch in range(2):
        await asyncio.gather(*(site.put(b"%d-%d" % (batch, n), DATA[:1000]) for n in range(10)))
    (key, *_) = place._values
    value = bytearray(place._values[key])
    value[-5] ^= 1
    place._values[key] = bytes(value)
    for batch in range(2):
        for n in range(9):
            await site.delete(b"%d-%d" % (batch, n))
    await site.work()
    assert site.compactor.moved == 1
    assert len(await site.stored()) == 2
    assert key in await site.stored()


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_unnamed_blocks_of_an_ended_session_are_deleted_and_named_ones_stay(site: Site) -> None:
    other = site.client()
    writer = site.new_writer(other)
    named = await writer.store(site.write_context(), chunks(DATA[: 9 * MIB], MIB), None, Digests())
    await other.send(site.put_command(b"k", named))
    await writer.store(site.write_context(), chunks(DATA[: 9 * MIB], MIB), None, Digests())
    await site.work()
    assert len(await site.stored()) == 4, "a live session's blocks may be named yet"
    site.end(other)
    await site.work()
    assert len(await site.stored()) == 2
    assert await site.get(b"k") == DATA[: 9 * MIB]


async def test_a_block_that_lands_late_is_deleted_when_the_session_is_listed_a_last_time(site: Site) -> None:
    other = site.client()
    writer = site.new_writer(other)
    site.end(other)
    await site.work()
    assert site.store.query("SELECT state FROM session WHERE id = ?", (other.session,)) == [(2,)]
    await writer.store(site.write_context(), chunks(b"late", 4), None, Digests())
    await site.work()
    assert len(await site.stored()) == 1
    an_hour_later = parse_timing("wall_offset_seconds=3601")
    assert await Sweeper(site.store, site.worker_journal, site.backends, timing=an_hour_later).step()
    assert await site.stored() == {}
    assert site.store.query("SELECT state FROM session WHERE id = ?", (other.session,)) == []


async def test_an_ended_session_cannot_name_blocks(site: Site) -> None:
    other = site.client()
    stored = await site.new_writer(other).store(site.write_context(), chunks(b"x", 1), None, Digests())
    site.end(other)
    with pytest.raises(errors.SessionExpired):
        await site.journal.send(site.put_command(b"k", stored))
    with pytest.raises(errors.InvalidArgument):
        await site.journal.send(SweepSession(site.journal.session))
    with pytest.raises(errors.InvalidArgument):
        await site.journal.send(ForgetSession(other.session))


async def test_a_dead_pack_with_an_undecided_body_stays(site: Site) -> None:
    """Two bodies share a pack: the first is named, deleted and released before the second is named."""
    first, second = await asyncio.gather(
        *(site.writer.store(site.write_context(), chunks(data, 9), None, Digests()) for data in (b"first", b"second"))
    )
    assert first.blocks[0].id == second.blocks[0].id
    await site.journal.send(site.put_command(b"1", first))
    site.writer.mark_named(first)
    await site.delete(b"1")
    await site.release_at_once()
    assert site.store.query("SELECT died > 0 FROM block") == [(1,)]
    while await site.sweeper.step():
        pass
    await site.journal.send(site.put_command(b"2", second))
    site.writer.mark_named(second)
    await site.work()
    assert await site.get(b"2") == b"second"


async def test_a_session_that_waits_for_an_answer_keeps_the_blocks_of_its_pack_from_every_sweep(site: Site) -> None:
    """The same with many bodies, of which each dies before the next is named, and sweeps in between."""
    writer = site.new_writer(site.journal)
    bodies = [b"body %d" % n for n in range(12)]
    stored = await asyncio.gather(
        *(writer.store(site.write_context(), chunks(data, 9), None, Digests()) for data in bodies)
    )
    assert len({each.blocks[0].id for each in stored}) == 1
    for n, run in enumerate(stored):
        await site.journal.send(site.put_command(b"k%d" % n, run))
        assert await site.get(b"k%d" % n) == bodies[n]
        await site.delete(b"k%d" % n)
        await site.release_at_once()
        assert site.store.query("SELECT died > 0 FROM block") == [(1,)]
        while await site.sweeper.step():
            pass
        assert len(await site.stored()) == 1, "somebody may still name it"
        writer.mark_named(run)
    await site.work()
    assert await site.stored() == {}


async def test_what_a_backup_names_is_taken_apart_and_compacted_and_its_blocks_stay(site: Site) -> None:
    await asyncio.gather(*(site.put(b"%d" % n, DATA[:1000]) for n in range(10)))
    before = await site.stored()
    site.pins.append(site.store.head())
    for n in range(9):
        await site.delete(b"%d" % n)
    await site.work()
    assert site.rows("freed") == 0
    assert before.items() <= (await site.stored()).items()
    assert len(await site.stored()) == 2, "what lives was written anew"
    site.pins.clear()
    await site.work()
    assert len(await site.stored()) == 1
    assert await site.get(b"9") == DATA[:1000]


# --- a backend in trouble --------------------------------------------------------------------------------------------


class Stubborn(Memory):
    """Deletes fail."""

    stubborn = True

    async def delete(self, key: str) -> None:
        if self.stubborn:
            raise backend_errors.Unavailable("not now")
        await super().delete(key)


async def test_a_block_whose_deletion_fails_keeps_its_row_until_it_is_gone(tmp_path: Path) -> None:
    timing, clock = manual_timing()
    site = Site(tmp_path, Memory(), Stubborn(), timing=timing)
    await site.put(b"k", DATA[: 9 * MIB])
    await site.delete(b"k")
    await site.work()
    assert site.rows("block") == 2
    Stubborn.stubborn = False
    clock.advance(timing.backend_backoff.first_seconds)
    await site.work()
    assert site.rows("block") == 0
    assert await site.stored(0) == await site.stored(1) == {}
    site.close()


async def test_a_row_is_forgotten_only_while_its_block_is_as_dead_as_it_was_read(site: Site) -> None:
    await site.put(b"k", b"x")
    (key,) = await site.stored()
    block = block_id_of(key)
    assert block is not None
    assert (
        await site.journal.send(ForgetBlocks((DeadBlock(block, 0), DeadBlock(block, 12), DeadBlock(b"?" * 24, 3)))) == 0
    )
    assert site.rows("block") == 1


async def test_no_worker_ever_scans_a_table_that_grows_with_the_site(site: Site) -> None:
    plans: dict[str, list[str]] = {}
    query = site.store.query

    def explained(statement: str, values: Sequence[Any] = ()) -> list[Any]:
        plans.setdefault(statement, [row[3] for row in query(f"EXPLAIN QUERY PLAN {statement}", values)])
        return query(statement, values)

    upload = await site.upload(b"u")
    await site.part(b"u", upload, 1, b"x")
    await asyncio.gather(*(site.put(b"%d" % n, b"x" * 100) for n in range(10)))
    for n in range(9):
        await site.delete(b"%d" % n)
    site.expiry.expire_seconds = 0
    site.store.query = explained  # type: ignore[method-assign]
    await site.work()
    assert len(plans) > 10
    scans = {step for steps in plans.values() for step in steps if step.startswith("SCAN")}
    assert scans <= {
        *("SCAN freed", "SCAN block USING INDEX block_sparse", "SCAN backend"),
        *("SCAN rewrite", "SCAN r"),  # which has a bounded number of rows
        "SCAN pin",  # one row for each backup that is kept
    }


async def test_more_freed_rows_than_a_slice_are_gathered_into_one_cohort(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "GATHERED", 3)
    await asyncio.gather(*(site.put(b"%d" % n, b"x") for n in range(10)))
    for n in range(10):
        await site.delete(b"%d" % n)
    assert await site.releaser.step()
    assert site.rows("freed") == 0


async def test_a_worker_runs_until_cancelled_and_outlives_errors(site: Site) -> None:
    class Trips(Sweeper):
        steps = 0

        async def step(self) -> bool:
            self.steps += 1
            if self.steps == 1:
                raise errors.CommitterGone("away")
            return await super().step()

    worker = Trips(site.store, site.worker_journal, site.backends, timing=site.timing)
    await site.put(b"k", DATA[: 2 * MIB])
    await site.delete(b"k")
    while await site.releaser.step():
        pass
    running = asyncio.create_task(worker.run())
    while await site.stored():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
