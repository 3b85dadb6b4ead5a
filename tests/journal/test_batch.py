"""Group commit without its I/O: what a batch of commands makes, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.errors import Refused, SessionExpired, Unavailable
from gateway.journal.codec import RECORD_CODEC
from gateway.journal.commands import COMMAND_CLASSES, Tx, command
from gateway.journal.records import FEATURE_LEVEL
from gateway.journal.records.site import PolicyNamed
from gateway.journal.server import batch as batching
from gateway.journal.server.batch import BatchRunner, CommandResult, Job
from gateway.journal.server.row_cache import RowCache
from gateway.journal.session_commands import COMMANDS, EndSession, FoundSite, OpenSession, RaiseFeature
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.tables import ENTRY, POLICY, SESSION, Entry
from tests.journal.memory_store import MemoryStore


@command(tag=9100)
class Name:
    name: str
    fail: str = ""


def name(asked: Name, tx: Tx) -> int:
    if asked.fail == "first":
        raise Refused("as asked")
    found = tx.get(POLICY, (asked.name,))
    if found is not None:
        return found.id
    made = tx.new_id()
    tx.emit(PolicyNamed(asked.name, made))
    if asked.fail == "last":
        raise Refused("behind a record")
    if asked.fail == "bug":
        raise ZeroDivisionError
    return made if asked.fail != "strange" else object()  # type: ignore[return-value]


COMMAND_CLASSES.pop(9100)


class Bench:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.cache = RowCache(self.store)
        self.runner = BatchRunner(self.cache, {**COMMANDS, Name: name}, self.store.head())
        self.now_ns = 100

    def jobs(self, *jobs: Job) -> list[CommandResult]:
        prepared = self.runner.prepare(jobs, self.now_ns)
        self.store.write(prepared.batch)
        self.runner.mark_durable(prepared)
        by_job = {id(answer.job): answer for answer in prepared.results}
        return [by_job[id(job)] for job in jobs]

    def run(self, *commands: Any, session: int = 0) -> list[CommandResult]:
        return self.jobs(*(Job(session, at, 1, each, 0, None) for at, each in enumerate(commands)))

    def records(self) -> list[Any]:
        return [record for row in self.store.batches() for record in RECORD_CODEC.unpack(row.records)]


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    bench.run(FoundSite("ab" * 16, "here"))
    yield bench


@pytest.mark.parametrize("fail", ["first", "last", "bug", "strange"])
def test_a_command_that_fails_takes_nobody_down_with_it(bench: Bench, fail: str) -> None:
    before = len(bench.records())
    good, bad, better = bench.run(Name("a"), Name("b", fail), Name("c"))
    assert bad.error is not None and isinstance(bad.error, Refused)
    assert (good.error, better.error) == (None, None)
    assert [record.name for record in bench.records()[before:]] == ["a", "c"]
    assert better.value == good.value + 1, "what failed gave its id back"


def test_commands_of_one_batch_see_what_the_others_did(bench: Bench) -> None:
    first, second = bench.run(Name("a"), Name("a"))
    assert first.value == second.value


def test_rows_that_are_missed_are_loaded_with_one_query_a_table(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run(*(Name(str(each)) for each in range(50)))
    asked: list[tuple[str, int]] = []
    cold = RowCache(bench.store)
    load = bench.store.load

    def counted(table: Any, keys: Any) -> Any:
        asked.append((table.name, len(keys)))
        return load(table, keys)

    monkeypatch.setattr(bench.store, "load", counted)
    runner = BatchRunner(cold, {Name: name}, bench.store.head())
    runner.prepare([Job(0, 0, 0, Name(str(each)), 0, None) for each in range(60)], 1)
    assert asked == [("policy", 60)]


def test_a_repeated_command_has_the_answer_that_it_had(bench: Bench) -> None:
    session = bench.run(OpenSession("cli"))[0].value
    (first,) = bench.jobs(Job(session, 3, 7, Name("a"), 0, None))
    again, same = bench.jobs(Job(session, 3, 7, Name("b"), 0, None), Job(session, 3, 7, Name("c"), 0, None))
    assert first.value == again.value == same.value
    assert [record.name for record in bench.records() if isinstance(record, PolicyNamed)] == ["a"]


def test_a_slot_that_went_on_does_not_go_back(bench: Bench) -> None:
    session = bench.run(OpenSession("cli"))[0].value
    bench.jobs(Job(session, 3, 7, Name("a"), 0, None))
    (late,) = bench.jobs(Job(session, 3, 6, Name("b"), 0, None))
    assert isinstance(late.error, Unavailable)


def test_a_session_that_ended_commits_no_more(bench: Bench) -> None:
    session = bench.run(OpenSession("cli"))[0].value
    bench.run(EndSession(session))
    (late,) = bench.jobs(Job(session, 0, 1, Name("a"), 0, None))
    unknown, good = bench.jobs(Job(999, 0, 1, Name("a"), 0, None), Job(0, 0, 1, Name("b"), 0, None))
    assert isinstance(late.error, SessionExpired)
    assert isinstance(unknown.error, SessionExpired)
    assert good.error is None


def test_times_never_go_back(bench: Bench) -> None:
    bench.now_ns = 5000
    bench.run(Name("a"))
    bench.now_ns = 10
    bench.run(Name("b"))
    times = [row.at_ns for row in bench.store.batches()]
    assert times == sorted(set(times))


def test_an_id_that_was_answered_is_never_drawn_again_even_without_a_record(bench: Bench) -> None:
    def draw(asked: Name, tx: Tx) -> int:
        return tx.new_id()

    runner = BatchRunner(RowCache(bench.store), {Name: draw}, bench.store.head())
    prepared = runner.prepare([Job(0, 0, 0, Name(""), 0, None)], 1)
    bench.store.write(prepared.batch)
    successor = BatchRunner(RowCache(bench.store), {Name: draw}, bench.store.head())
    again = successor.prepare([Job(0, 0, 0, Name(""), 0, None)], 1)
    assert again.results[0].value > prepared.results[0].value


def test_a_record_above_the_feature_level_is_not_written(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PolicyNamed, "FEATURE", 2)
    (refused,) = bench.run(Name("a"))
    assert "feature level" in str(refused.error)
    newer = FEATURE_LEVEL + 1
    (unknown,) = bench.run(RaiseFeature(newer))
    assert isinstance(unknown.error, Refused), "this code does not know that level"
    monkeypatch.setattr("gateway.journal.session_commands.FEATURE_LEVEL", newer)
    raised, _ = bench.run(RaiseFeature(newer), Name("b"))
    assert raised.error is None
    assert bench.run(Name("a"))[0].error is None


def test_a_command_that_never_stops_asking_for_rows_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "ROUNDS_MAX", 5)

    def greedy(asked: Name, tx: Tx) -> None:
        for each in range(100):
            tx.get(SESSION, (each,))

    runner = BatchRunner(RowCache(bench.store), {Name: greedy}, bench.store.head())
    (answer,) = runner.prepare([Job(0, 0, 0, Name(""), 0, None)], 1).results
    assert isinstance(answer.error, Unavailable)


def test_a_second_batch_may_gather_while_the_first_is_on_its_way(bench: Bench) -> None:
    first = bench.runner.prepare([Job(0, 0, 0, Name("a"), 0, None)], 1)
    gathering = bench.runner.begin(1, first)
    gathering.run([Job(0, 0, 0, Name("a"), 0, None)])
    bench.store.write(first.batch)
    bench.runner.mark_durable(first, gathering)
    gathering.run([Job(0, 0, 0, Name("b"), 0, None)])
    second = bench.runner.finish(gathering)
    assert second.results[0].value == first.results[0].value
    assert second.records == 1


def test_a_row_that_is_dropped_without_a_look_is_dropped_wherever_it_stood(tmp_path: Any) -> None:
    """`apply` may drop what it did not look up, and the cache may have forgotten it."""
    store = SqliteStore(tmp_path / "journal.db")
    entries = [Entry(1, b"a", dead, 5, 6, 0, 0, 0, 7) for dead in (0, 1)]
    for entry in entries:
        history = MemoryStore()
        for target in (store, history):
            batch = BatchRunner(RowCache(target), {}, target.head()).prepare([], 1).batch
            batch.puts[ENTRY] = [entry]
            target.write(batch)
            gathering = BatchRunner(RowCache(target), {}, target.head()._replace(next_id=9)).begin(1)
            gathering.overlay.drop(ENTRY, (1, b"a"))
            target.write(gathering.to_batch())
            assert list(target.dump(ENTRY)) == []
    store.close()


def test_a_command_that_misses_many_rows_lets_the_others_go_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[int] = []
    load = bench.store.load

    def counted(table: Any, keys: Any) -> Any:
        loads.append(len(keys))
        return load(table, keys)

    monkeypatch.setattr(bench.store, "load", counted)
    count = 5 * batching.ROWS_PER_TURN

    def wide(asked: Name, tx: Tx) -> int:
        if asked.name == "wide":
            tx.prefetch([(SESSION, (1 + each,)) for each in range(count)])
        return 1

    runner = BatchRunner(RowCache(bench.store), {Name: wide}, bench.store.head()._replace(next_id=10 * count))
    first = runner.begin(1)
    first.run([Job(0, 0, 0, Name("wide"), 100, None), Job(0, 1, 0, Name("narrow"), 100, None)])
    assert [answer.job.command.name for answer in first.results] == ["narrow"]
    assert first.size == 100, "the job that waits is in no batch"
    assert loads == []
    turns = 1
    while not (ready := runner.load()):
        turns += 1
    assert turns == 5
    assert max(loads) <= batching.ROWS_PER_TURN
    runner.finish(first)
    second = runner.begin(2)
    second.resume(ready[0])
    assert [answer.value for answer in second.results] == [1]


def test_commands_that_wait_for_many_rows_take_turns(bench: Bench) -> None:
    def wide(asked: Name, tx: Tx) -> int:
        tx.prefetch([(SESSION, (int(asked.name) + each,)) for each in range(int(asked.fail))])
        return 1

    runner = BatchRunner(RowCache(bench.store), {Name: wide}, bench.store.head()._replace(next_id=10_000_000))
    gathering = runner.begin(1)
    many, few = str(20 * batching.ROWS_PER_TURN), str(2 * batching.ROWS_PER_TURN)
    gathering.run([Job(0, 0, 0, Name("1", many), 0, None), Job(0, 1, 0, Name("1000000", few), 0, None)])
    turns = 0
    while not (ready := runner.load()):
        turns += 1
    assert [each.job.slot for each in ready] == [1]
    assert turns < 6
