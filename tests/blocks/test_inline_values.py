"""Small blocks in the journal's database: they are found on their backend, written to files later, and deleted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from backends import base, errors
from backends.base import Backend, Buffer
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway.blocks.budget import Budget
from gateway.blocks.digests import Digests
from gateway.blocks.inline.backend import InlineBackend
from gateway.blocks.inline.values import InlineValues
from gateway.blocks.maintenance import inline_flusher
from gateway.blocks.maintenance.inline_flusher import InlineFlusher
from gateway.blocks.maintenance.inventory import BlockState, take_inventory
from gateway.blocks.types import block_id_of, block_path
from gateway.blocks.write.block_writer import ATTACHED_MEMBERS_MAX
from gateway.blocks.write.writer import Writer
from gateway.errors import PreconditionFailed
from gateway.journal.columns import pack
from gateway.journal.inline_values import AttachedValues
from gateway.journal.server.batch import Job
from gateway.journal.tables import INLINE_VALUE, InlineValue
from gateway.namespace.conditions import Preconditions
from gateway.timing import parse_timing
from tests.backends.contract import Contract
from tests.blocks.site import Client, Site
from tests.blocks.world import chunks

TIMING = parse_timing("inline.flush_seconds=0")
BYTES_MAX = 64 << 10


class Attaching(Client):
    """A client whose commands bring attached values along."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.attached = AttachedValues()
        self.attached.accepted = True

    async def send(self, command: Any) -> Any:
        attachment = self.attached.of(command)
        if not attachment:
            return await super().send(command)
        committer = self._site.committer
        committer._number += 1
        job = Job(self.session, 0, committer._number, command, 0, None, attachment)
        prepared = committer._runner.prepare([job], self._site.timing.clock.wall_ns())
        committer._store.write(prepared.batch)
        committer._runner.mark_durable(prepared)
        (result,) = prepared.results
        if result.error is not None:
            raise result.error
        return result.value


class InlineSite(Site):
    """A site on one backend, whose small blocks go into the journal's database."""

    def __init__(self, folder: Path, files: Backend | None = None) -> None:
        self.files = files or Memory()
        super().__init__(folder, self.files, timing=TIMING)
        ((self.backend_id, _),) = self.backends.items()
        self.accepts = True
        self.journal = self.attaching = Attaching(self)
        self.clients.append(self.attaching)
        self.inline = InlineValues(
            self.store, self.journal, self.attaching.attached, BYTES_MAX, accepts=lambda _: self.accepts
        )
        self.backend = InlineBackend(self.files, self.backend_id, self.inline)
        self.backends[self.backend_id] = self.backend
        self.places = (self.backend,)
        self.writer = self.new_writer(self.journal, inline=self.inline)
        self.flusher = InlineFlusher(self.store, self.inline, self.lookup, self.backends, timing=TIMING)

    def write_context(self, policy: int = 0) -> Any:
        context = super().write_context(policy)
        return type(context)(context.key, context.targets, context.user, may_attach=True)

    def new_writer(self, journal: Client, inline: InlineValues | None = None, **options: int) -> Writer:
        return Writer(
            lambda: journal.session, journal.reading, Budget(96 << 20), timing=self.timing, inline=inline, **options
        )

    async def in_files(self) -> int:
        return len([each async for each in self.files.list()])

    async def flush(self) -> None:
        """Write all values to files that may be written."""
        for _ in range(3):  # a value becomes old enough at the second look
            while await self.flusher.step():
                pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[InlineSite]:
    made = InlineSite(tmp_path)
    yield made
    made.close()


# ---- which blocks go there -----------------------------------------------------------------------------------------


async def test_a_small_object_is_in_the_database_until_the_flusher_writes_its_file(site: InlineSite) -> None:
    await site.put(b"k", b"small")
    assert (site.rows("inline_value"), await site.in_files()) == (1, 0)
    assert await site.get(b"k") == b"small"
    await site.flush()
    assert (site.rows("inline_value"), await site.in_files()) == (0, 1)
    assert await site.get(b"k") == b"small"
    assert site.flusher.flushed == 1


@pytest.mark.parametrize(
    "why", ["it is large", "the committer accepts none", "the backend is elsewhere", "there are two backends"]
)
async def test_other_blocks_go_to_their_backend_at_once(tmp_path: Path, why: str) -> None:
    site = InlineSite(tmp_path)
    data = b"small"
    if why == "it is large":
        data = os.urandom(BYTES_MAX + 1)
    elif why == "the committer accepts none":
        site.attaching.attached.accepted = False
    elif why == "the backend is elsewhere":
        site.accepts = False
    else:
        site.backends[99] = Memory()
    await site.put(b"k", data)
    assert (site.rows("inline_value"), await site.in_files()) == (0, 1)
    site.close()


async def test_a_pack_of_many_bodies_goes_to_its_backend_since_they_share_its_sync(site: InlineSite) -> None:
    context = site.write_context()
    count = ATTACHED_MEMBERS_MAX + 1
    stored = await asyncio.gather(*(site.writer.store(context, chunks(b"x", 1), 1, Digests()) for _ in range(count)))
    assert len({each.blocks[0].id for each in stored}) == 1
    assert await site.in_files() == 1
    for each in stored:
        site.writer.release_unnamed(each)


async def test_bodies_that_share_a_pack_share_its_value(site: InlineSite) -> None:
    async def put(number: int) -> None:
        await site.put(b"k%d" % number, b"body %d" % number)

    await asyncio.gather(*map(put, range(ATTACHED_MEMBERS_MAX)))
    assert site.rows("block") == site.rows("inline_value") == 1
    for number in range(ATTACHED_MEMBERS_MAX):
        assert await site.get(b"k%d" % number) == b"body %d" % number
    assert site.attaching.attached._values == {}, "nothing is kept once all are answered"


async def test_compaction_does_not_attach_what_it_writes(site: InlineSite) -> None:
    """No field of its command says which blocks are named, so nothing would carry the bytes."""
    site.compactor._writer = site.new_writer(site.worker_journal, inline=site.inline)
    site.compactor._context_of = lambda _, policy, wanted: Site.write_context(site, policy)
    await asyncio.gather(*(site.put(b"k%d" % number, b"x" * 100) for number in range(3)))
    await site.flush()
    for number in range(2):
        await site.delete(b"k%d" % number)
    await site.work()
    assert await site.get(b"k2") == b"x" * 100
    assert (site.rows("inline_value"), site.compactor.moved) == (0, 1)


# ---- commands that do not name their block -------------------------------------------------------------------------


async def test_a_refused_command_leaves_neither_a_row_nor_a_file(site: InlineSite) -> None:
    await site.put(b"k", b"first")
    with pytest.raises(PreconditionFailed):
        async with site.writer.storing(site.write_context(), chunks(b"second", 9), 6, Digests()) as stored:
            absent = Preconditions(if_none_match=("*",))
            await site.journal.send(site.put_command(b"k", stored, conditions=absent))
    await site.writer.close()
    assert site.rows("inline_value") == 1
    assert await site.get(b"k") == b"first"


async def test_a_body_that_breaks_off_leaves_no_row(site: InlineSite) -> None:
    with pytest.raises(ZeroDivisionError):
        async with site.writer.storing(site.write_context(), chunks(b"x", 1), 1, Digests()):
            raise ZeroDivisionError
    assert site.rows("inline_value") == 0


async def test_a_row_whose_block_the_journal_has_forgotten_is_dropped(site: InlineSite) -> None:
    add_row(site, site.journal.session.to_bytes(8, "big") + bytes(16), b"x")
    await site.flush()
    assert (site.rows("inline_value"), await site.in_files()) == (0, 0)


async def test_a_row_on_a_backend_that_no_longer_holds_the_block_is_left_to_the_mover(site: InlineSite) -> None:
    """It is an old copy, which is deleted only once the new ones were checked again."""
    await site.put(b"k", b"x")
    ((block,),) = site.store.query("SELECT id FROM block")
    site._sqlite._writing.execute("UPDATE block SET backends = 77")
    site._sqlite._writing.execute("INSERT INTO backend_set SELECT ?, 77 FROM backend_set LIMIT 1", (pack([99]),))
    await site.flush()
    assert (site.rows("inline_value"), await site.in_files()) == (1, 0)
    await site.backend.delete(block_path(block))
    assert site.rows("inline_value") == 0


# ---- deleting ------------------------------------------------------------------------------------------------------


async def test_a_value_that_is_deleted_soon_never_gets_a_file(site: InlineSite) -> None:
    await site.put(b"k", b"x")
    await site.delete(b"k")
    await site.work()
    assert (site.rows("inline_value"), site.rows("block"), await site.in_files()) == (0, 0, 0)


async def test_a_block_that_is_deleted_while_it_is_flushed_leaves_nothing(site: InlineSite) -> None:
    """The sweeper deletes the file that the flusher is about to write, so it has to come after it."""
    await site.put(b"k", b"x")
    await site.flusher.step()
    held = asyncio.Event()
    put = site.files.put

    async def slow(key: str, value: Sequence[Buffer], crc32c: int) -> None:
        await held.wait()
        await put(key, value, crc32c)

    site.files.put = slow  # type: ignore[method-assign]
    flushing = asyncio.create_task(site.flusher.step())
    await asyncio.sleep(0)
    await site.delete(b"k")
    working = asyncio.create_task(site.work())
    for _ in range(20):
        await asyncio.sleep(0)
    assert site.rows("block") == 1, "the deletion waits"
    held.set()
    await asyncio.gather(flushing, working)
    await site.work()
    assert (site.rows("inline_value"), site.rows("block"), await site.in_files()) == (0, 0, 0)


async def test_a_block_that_is_being_deleted_is_not_flushed(site: InlineSite) -> None:
    await site.put(b"k", b"x")
    ((block,),) = site.store.query("SELECT id FROM block")
    held, delete = asyncio.Event(), site.files.delete

    async def slow(key: str) -> None:
        await delete(key)
        await held.wait()

    site.files.delete = slow  # type: ignore[method-assign]
    deleting = asyncio.create_task(site.backend.delete(block_path(block)))
    await asyncio.sleep(0)
    await site.flush()
    assert await site.in_files() == 0
    held.set()
    await deleting
    assert site.rows("inline_value") == 0


# ---- flushing ------------------------------------------------------------------------------------------------------


async def test_a_file_that_cannot_be_written_keeps_its_row_and_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = Faulty(Memory(), FaultPlan([Fault(FaultKind.ERROR, "put", nth=1, error=errors.Full)]))
    site = InlineSite(tmp_path, faulty)
    await site.put(b"a", b"x")
    await site.put(b"b", b"y")
    await site.put(b"c", b"z")
    await site.flusher.step()
    monkeypatch.setattr(inline_flusher, "ROWS", 1)
    steps = [await site.flusher.step() for _ in range(3)]
    assert (steps, site.rows("inline_value"), await site.in_files()) == ([True] * 3, 1, 2)
    with pytest.raises(errors.Full):
        await site.flusher.step()
    assert [await site.get(key) for key in (b"a", b"b", b"c")] == [b"x", b"y", b"z"]
    await site.flush()
    assert (site.rows("inline_value"), await site.in_files()) == (0, 3)
    site.close()


async def test_the_error_of_a_backend_that_stores_nothing_is_raised_and_the_values_stay(tmp_path: Path) -> None:
    site = InlineSite(tmp_path, Faulty(Memory(), FaultPlan([Fault(FaultKind.ERROR, "put", error=errors.Full)])))
    await site.put(b"a", b"x")
    await site.flusher.step()
    with pytest.raises(errors.Full):
        await site.flusher.step()
    assert await site.get(b"a") == b"x"
    site.close()


async def test_all_values_are_written_at_once_if_somebody_asks_for_it(site: InlineSite) -> None:
    site.flusher._flush_seconds = 3600
    await site.put(b"k", b"x")
    site.flusher.flush_all()
    await site.flusher.step()
    assert (site.rows("inline_value"), await site.in_files()) == (0, 1)


async def test_a_kill_before_the_rows_are_dropped_loses_nothing(
    site: InlineSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.put(b"k", b"x")

    def killed(point: str) -> None:
        raise ZeroDivisionError(point)

    with monkeypatch.context() as patched:
        patched.setattr(inline_flusher.failpoints, "reach", killed)
        with pytest.raises(ZeroDivisionError):
            await site.flush()
    assert (site.rows("inline_value"), await site.in_files()) == (1, 1)
    assert [each.state async for each in take_inventory(site.store, site.backend_id, site.backend)] == [
        BlockState.WHOLE
    ]
    await site.flush()
    assert (site.rows("inline_value"), await site.in_files()) == (0, 1)
    assert await site.get(b"k") == b"x"


async def test_more_values_than_one_step_handles_are_all_written(
    site: InlineSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline_flusher, "ROWS", 4)
    for number in range(11):
        await site.put(b"k%d" % number, b"x")
    await site.flush()
    assert (site.rows("inline_value"), await site.in_files()) == (0, 11)


async def test_a_value_stays_until_it_is_as_old_as_it_should_be(tmp_path: Path) -> None:
    site = InlineSite(tmp_path)
    site.flusher._flush_seconds = 3600
    await site.put(b"k", b"x")
    await site.flush()
    assert site.rows("inline_value") == 1
    site.close()


# ---- reading -------------------------------------------------------------------------------------------------------


async def test_a_read_that_meets_the_move_to_a_file_finds_the_value(site: InlineSite) -> None:
    """The file appears, and the row goes, after the read has found no file."""
    await site.put(b"k", b"x")
    ((block,),) = site.store.query("SELECT id FROM block")
    get, calls = site.files.get, []

    async def get_then_flush(key: str, start: int = 0, length: int | None = None) -> Buffer:
        calls.append(key)
        try:
            return await get(key, start, length)
        except errors.NotFound:
            await site.flush()
            raise

    site.files.get = get_then_flush  # type: ignore[method-assign]
    assert len(await site.backend.get(block_path(block))) > 1
    assert len(calls) == 2


def add_row(site: Site, block: bytes, value: Buffer) -> None:
    row = InlineValue(block, next(iter(site.backends)), 0, base.crc32c_of([value]), bytes(value))
    site._sqlite._writing.execute(f"INSERT OR REPLACE INTO {INLINE_VALUE.name} VALUES (?, ?, ?, ?, ?)", row)


class HalfInRows(InlineBackend):
    """Values whose key ends with an even digit are put into the table, so that a listing meets both kinds."""

    def __init__(self, site: InlineSite) -> None:
        super().__init__(site.files, site.backend_id, site.inline)
        self._site = site

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:  # type: ignore[override]
        block = block_id_of(base.check_key(key))
        if block is None or int(key[-1], 16) % 2:
            await self._inner.put(key, value, crc32c)
            return
        if base.crc32c_of(value) != crc32c:
            raise errors.Corrupted("it has another checksum", backend=self.name, key=key)
        add_row(self._site, block, b"".join(value))


class TestInlineBackend(Contract):
    """The contract of all backends, over one whose values are partly rows."""

    @pytest.fixture
    async def backend(self, site: InlineSite) -> AsyncIterator[Backend]:
        yield HalfInRows(site)


@asynccontextmanager
async def rows_and_files(site: InlineSite, count: int) -> AsyncIterator[list[str]]:
    """So many values, every third of them both a row and a file."""
    backend, keys = HalfInRows(site), []
    for number in range(count):
        key = f"{5 + number % 3:016x}/{number:032x}"
        keys.append(key)
        await backend.put(key, [b"value"], base.crc32c_of([b"value"]))
        if number % 3 == 0:
            await site.files.put(key, [b"value"], base.crc32c_of([b"value"]))
    yield sorted(keys)


@pytest.mark.parametrize("prefix", ["", f"{6:016x}/", f"{6:016x}/0", f"{7:016x}", f"{9:016x}/"])
async def test_a_listing_has_each_value_once_in_order_from_any_key_on(
    site: InlineSite, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.blocks.inline.values.KEYS", 4)
    async with rows_and_files(site, 40) as keys:
        for after in ["", keys[0], keys[17], keys[-1], f"{6:016x}/", "zz"]:
            listed = [each.key async for each in site.backend.list(prefix, after)]
            assert listed == [key for key in keys if key.startswith(prefix) and key > after], after
