"""Inline values: bytes that commands bring along are durable with the first of them, and named only if they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from gateway.blocks.commands.inline_values import DropInlineValues, drop_inline_values
from gateway.errors import Refused, SessionExpired
from gateway.journal.columns import Extent
from gateway.journal.commands import COMMAND_CLASSES, Tx, command
from gateway.journal.inline_values import (
    ATTACHED_BYTES_MAX,
    COUNTED_BYTES_MIN,
    AttachedValues,
    Attachment,
    SentValue,
)
from gateway.journal.records.bytes import NewBlock, RunMade
from gateway.journal.server import group_commit
from gateway.journal.server.batch import BatchRunner, CommandResult, Job
from gateway.journal.server.group_commit import GroupCommitter
from gateway.journal.server.reserve import Reserve
from gateway.journal.server.row_cache import RowCache
from gateway.journal.session_commands import COMMANDS, EndSession, FoundSite, OpenSession
from gateway.journal.sqlite.schema import STEPS, _add_inline_values
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.tables import BLOCK, INLINE_VALUE, RUN
from gateway.timing import Timing


@command(tag=9200)
class MakeRun:
    blocks: tuple[NewBlock, ...]
    refused: bool = False


def make_run(asked: MakeRun, tx: Tx) -> None:
    if asked.refused:
        raise Refused("as asked")
    extents = tuple(Extent(block.id, 0, 0, 10) for block in asked.blocks)
    tx.emit(RunMade(tx.new_id(), 1, extents, asked.blocks))


COMMAND_CLASSES.pop(9200)


@dataclass(frozen=True)
class Pack:
    """A block of one session, with its value."""

    block: NewBlock
    value: SentValue

    def carried(self) -> Attachment:
        return (self.value,)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.store = SqliteStore(folder / "journal.db", durable=False)
        self.commands = {**COMMANDS, MakeRun: make_run, DropInlineValues: drop_inline_values}
        self.restart()
        self.sent = 0
        self.run(FoundSite("ab" * 16, "here"))
        self.session: int = self.run(OpenSession("worker")).value

    def restart(self) -> None:
        """Forget every row that is in memory."""
        self.cache = RowCache(self.store)
        self.runner = BatchRunner(self.cache, self.commands, self.store.head())

    def job(self, asked: Any, attachment: Attachment = (), session: int | None = None) -> Job:
        self.sent += 1
        return Job(self.session if session is None else session, self.sent, 1, asked, 0, None, attachment)

    def batch(self, *jobs: Job) -> list[CommandResult]:
        """Run *jobs* as one batch, write it, and return the results in the order of the jobs."""
        prepared = self.runner.prepare(jobs, 1)
        self.store.write(prepared.batch)
        self.runner.mark_durable(prepared)
        by_job = {id(result.job): result for result in prepared.results}
        return [by_job[id(job)] for job in jobs]

    def run(self, asked: Any) -> CommandResult:
        (result,) = self.batch(Job(0, 0, 0, asked, 0, None))
        assert result.error is None
        return result

    def pack(self, number: int = 0, session: int | None = None) -> Pack:
        block_id = (session or self.session).to_bytes(8, "big") + number.to_bytes(16, "big")
        return Pack(NewBlock(block_id, 1, 26, 7, 3), SentValue(block_id, 5, 7, b"sealed %d" % number))

    def values(self) -> dict[bytes, bytes]:
        return {row[0]: row[-1] for row in self.store.dump(INLINE_VALUE)}

    def named(self) -> set[bytes]:
        return {row[0] for row in self.store.dump(BLOCK)}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.store.close()


def test_a_value_is_stored_with_the_command_that_carries_it_and_not_in_its_records(bench: Bench) -> None:
    pack = bench.pack()
    (result,) = bench.batch(bench.job(MakeRun((pack.block,)), pack.carried()))
    assert result.error is None
    assert bench.values() == {pack.block.id: b"sealed 0"}
    assert bench.named() == {pack.block.id}
    assert not any(b"sealed 0" in row.records for row in bench.store.batches())


def test_a_refused_command_stores_no_value_and_another_one_of_the_pack_does(bench: Bench) -> None:
    pack = bench.pack()
    (alone,) = bench.batch(bench.job(MakeRun((pack.block,), refused=True), pack.carried()))
    assert isinstance(alone.error, Refused)
    assert bench.values() == {}
    refused, named = bench.batch(
        bench.job(MakeRun((pack.block,), refused=True), pack.carried()),
        bench.job(MakeRun((pack.block,)), pack.carried()),
    )
    assert isinstance(refused.error, Refused)
    assert named.error is None
    assert bench.values() == {pack.block.id: b"sealed 0"}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_whichever_command_of_a_pack_comes_first_no_block_is_named_without_its_bytes(
    bench: Bench, order: tuple[int, ...]
) -> None:
    """The three run in batches of their own, in any order, and a restart comes between them."""
    pack = bench.pack()
    jobs = [bench.job(MakeRun((pack.block,), refused=number == 2), pack.carried()) for number in range(3)]
    for at in order:
        bench.batch(jobs[at])
        bench.restart()
        assert bench.named() == set(bench.values())
    assert bench.named() == {pack.block.id}


def test_a_command_that_is_sent_again_stores_its_value_once_and_has_the_same_answer(bench: Bench) -> None:
    pack = bench.pack()
    job = bench.job(MakeRun((pack.block,)), pack.carried())
    bench.batch(job)
    bench.restart()
    (again,) = bench.batch(job)
    assert again.error is None
    assert bench.values() == {pack.block.id: b"sealed 0"}
    assert len(list(bench.store.dump(RUN))) == 1


def test_a_value_of_another_session_or_of_one_that_ended_is_not_stored(bench: Bench) -> None:
    other = bench.run(OpenSession("worker")).value
    foreign, own = bench.pack(session=other), bench.pack(1)
    (first,) = bench.batch(bench.job(MakeRun((foreign.block,)), foreign.carried()))
    bench.run(EndSession(bench.session))
    (second,) = bench.batch(bench.job(MakeRun((own.block,)), own.carried()))
    assert isinstance(first.error, SessionExpired)
    assert isinstance(second.error, SessionExpired)
    assert bench.values() == {}


def test_the_committer_does_not_keep_values_in_memory(bench: Bench) -> None:
    pack = bench.pack()
    bench.batch(bench.job(MakeRun((pack.block,)), pack.carried()))
    assert bench.cache.is_loaded((BLOCK, (pack.block.id,)))
    assert not bench.cache.is_loaded((INLINE_VALUE, (pack.block.id,)))
    bench.run(DropInlineValues((pack.block.id,)))
    assert bench.values() == {}, "a row that is not in memory is dropped all the same"


def test_the_store_counts_the_bytes_of_values(bench: Bench) -> None:
    packs = [bench.pack(number) for number in range(3)]
    bench.batch(*(bench.job(MakeRun((each.block,)), each.carried()) for each in packs))
    assert bench.store.inline_bytes() == 3 * COUNTED_BYTES_MIN
    bench.run(DropInlineValues(tuple(each.block.id for each in packs[:2])))
    assert bench.store.inline_bytes() == COUNTED_BYTES_MIN


def test_an_older_journal_gets_the_tables_that_were_added_since(bench: Bench, tmp_path: Path) -> None:
    bench.store.close()
    base = sqlite3.connect(tmp_path / "journal.db")
    base.execute("DROP TABLE inline_value")
    base.execute("DROP TABLE bucket_documents")
    base.execute(f"PRAGMA user_version = {STEPS.index(_add_inline_values)}")
    base.close()
    bench.store = SqliteStore(tmp_path / "journal.db")
    assert bench.values() == {}
    assert bench.store.query("SELECT * FROM bucket_documents") == []


# ---- the client ----------------------------------------------------------------------------------------------------


def attached(*packs: Pack) -> AttachedValues:
    values = AttachedValues()
    values.accepted = True
    for each in packs:
        assert values.add(each.value)
    return values


def test_every_command_that_names_a_block_carries_its_value(bench: Bench) -> None:
    pack, other = bench.pack(), bench.pack(1)
    values = attached(pack, other)
    for _ in range(2):
        assert values.of(MakeRun((pack.block,))) == (pack.value,)
    assert values.of(MakeRun((pack.block, other.block))) == (pack.value, other.value)


def test_a_command_brings_nothing_along_for_blocks_without_an_attached_value(bench: Bench) -> None:
    pack, other = bench.pack(), bench.pack(1)
    values = attached(pack)
    assert values.of(MakeRun((other.block,))) == ()
    assert values.of(OpenSession("worker")) == ()
    values.remove(pack.block.id)
    values.remove(pack.block.id)
    assert values.of(MakeRun((pack.block,))) == ()


def test_a_client_attaches_nothing_until_a_committer_has_said_that_it_accepts_values(bench: Bench) -> None:
    values = AttachedValues()
    assert not values.add(bench.pack().value)
    values.accepted = True
    assert values.add(bench.pack().value)


def test_a_process_attaches_a_bounded_number_of_bytes(bench: Bench) -> None:
    values, size = attached(), 1 << 20
    added = [values.add(bench.pack(number).value._replace(value=bytes(size))) for number in range(10)]
    assert sum(added) == ATTACHED_BYTES_MAX // size
    values.remove(bench.pack(0).block.id)
    assert values.add(bench.pack(9).value._replace(value=bytes(size)))


# ---- the committer -------------------------------------------------------------------------------------------------


@pytest.fixture
def group(bench: Bench, tmp_path: Path) -> Iterator[GroupCommitter]:
    committer = GroupCommitter(
        bench.store, bench.commands, Reserve(tmp_path / "reserve", 0), lambda results: None, timing=Timing()
    )
    yield committer
    committer._thread.shutdown()


def test_a_committer_accepts_no_more_values_than_a_bound_and_counts_again_what_was_dropped(
    bench: Bench, group: GroupCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "INLINE_BYTES_MAX", 3 * COUNTED_BYTES_MIN)
    accepted = []
    for number in range(4):
        prepared = bench.runner.prepare(
            [bench.job(MakeRun((bench.pack(number).block,)), bench.pack(number).carried())], 1
        )
        bench.store.write(prepared.batch)
        group._record_commit(prepared, 0.0)
        bench.runner.mark_durable(prepared)
        accepted.append(group.accepts_values)
    assert accepted == [True, True, False, False], "a small value counts for a page"
    bench.run(DropInlineValues((bench.pack(0).block.id, bench.pack(1).block.id)))
    group._maintain_once(idle=False)
    assert group.accepts_values


def test_a_committer_accepts_no_values_while_its_wal_or_its_queue_is_long(group: GroupCommitter, bench: Bench) -> None:
    assert group.accepts_values
    bench.store.wal_bytes = 2 * group_commit.CHECKPOINT_BYTES
    assert not group.accepts_values
    bench.store.wal_bytes = 0
    group._push(bench.job(OpenSession("worker"))._replace(size=group_commit.QUEUE_BYTES // 4))
    assert not group.accepts_values
