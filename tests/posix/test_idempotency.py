"""The idempotency store: a change is run once, however often and by whichever worker it is received."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gateway.errors import Busy, CommitterGone, Misconfigured
from gateway.posix.rpc import idempotency
from gateway.posix.rpc.idempotency import IdempotencyStore
from gateway.timing import Timing
from tests.clocks import ManualClock

ONCE, OTHER = b"once", b"other"
WORKERS = 6
KEPT_SECONDS = Timing().files.kept_seconds


@pytest.fixture
def living() -> set[int]:
    """The sessions that live."""
    return {1, 2}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timing(clock: ManualClock) -> Timing:
    return Timing(clock=clock)


@pytest.fixture
def two(tmp_path, living, timing):
    """The memory as two workers have it."""
    both = [IdempotencyStore(tmp_path, living.__contains__, timing) for _ in range(2)]
    yield both
    for each in both:
        each.close()


def test_what_one_worker_answered_the_other_one_answers_again(two):
    one, other = two
    assert one.name == other.name
    assert one.claim(ONCE, 1, 1, "") is None
    one.keep(ONCE, b"answer")
    assert other.claim(ONCE, 2, 2, "") == b"answer"
    assert other.claim(ONCE, 2, 1, "") == b"answer"
    assert other.claim(OTHER, 2, 1, "") is None


def test_what_is_under_way_is_not_begun_again(two):
    one, other = two
    one.claim(ONCE, 1, 1, "")
    for attempt in (1, 2):
        with pytest.raises(Busy, match="is running"):
            other.claim(ONCE, 2, attempt, "")


def test_of_a_worker_that_died_over_it_nobody_knows_what_became(two, living):
    one, other = two
    one.claim(ONCE, 1, 1, "")
    living.discard(1)
    for _ in range(2):
        with pytest.raises(CommitterGone, match="unknown"):
            other.claim(ONCE, 2, 2, "")


def test_what_changed_nothing_may_be_tried_again(two):
    one, other = two
    one.claim(ONCE, 1, 1, "")
    one.drop(ONCE)
    assert other.claim(ONCE, 2, 2, one.name) is None


def test_another_try_that_nobody_remembers_is_made_only_by_the_memory_that_would(two):
    one, _ = two
    assert one.claim(ONCE, 1, 2, one.name) is None, "the first try never came"
    with pytest.raises(CommitterGone, match="lost its idempotency store"):
        one.claim(OTHER, 1, 2, "another memory")


def test_answers_are_forgotten_when_nobody_asks_for_them_any_more(two, clock):
    one, _ = two
    one.claim(ONCE, 1, 1, "")
    one.keep(ONCE, b"answer")
    clock.now += KEPT_SECONDS - 1
    assert one.claim(ONCE, 1, 2, "") == b"answer"
    clock.now += 20
    assert one.claim(ONCE, 1, 2, one.name) is None


def test_a_change_that_takes_long_is_remembered_from_its_end_on(two, clock):
    one, other = two
    one.claim(ONCE, 1, 1, "")
    clock.now += 10 * KEPT_SECONDS
    with pytest.raises(Busy):
        other.claim(ONCE, 2, 2, other.name)
    one.keep(ONCE, b"answer")
    clock.now += KEPT_SECONDS - 1
    assert other.claim(ONCE, 2, 2, other.name) == b"answer"


def fill(memory: IdempotencyStore, user: int, answer: bytes = b"x" * 5000) -> int:
    """Make changes for *user* until it is refused; how many there were."""
    for number in itertools.count():
        once = b"%d-%d" % (user, number)
        try:
            assert memory.claim(once, 1, 1, "", user=user) is None
        except Busy as full:
            assert "this user's changes" in str(full)
            return number
        memory.keep(once, answer)
    raise AssertionError


def test_a_user_whose_share_is_full_is_refused_and_the_others_go_on(tmp_path, living, clock, monkeypatch, timing):
    monkeypatch.setattr(idempotency, "STORE_BYTES", 4 << 20)
    with closing(IdempotencyStore(tmp_path, living.__contains__, timing)) as memory:
        counts = [fill(memory, user) for user in range(1, 9)]
        assert counts == sorted(counts, reverse=True)
        assert counts[-1] >= 1, "whoever comes last finds room as well"
        assert memory.claim(ONCE, 1, 1, "", user=9) is None
        assert memory.claim(b"1-0", 1, 2, memory.name, user=1) == b"x" * 5000, "what was kept is still answered"
        clock.now += KEPT_SECONDS + 1
        assert fill(memory, 10) > counts[1], "the room is free again"


def test_a_thousand_users_do_not_take_more_than_the_file_may_hold(tmp_path, living, monkeypatch, timing):
    monkeypatch.setattr(idempotency, "STORE_BYTES", 3 << 20)
    monkeypatch.setattr(idempotency, "PAGES_MOST", 1024)
    with closing(IdempotencyStore(tmp_path, living.__contains__, timing)) as memory:
        for user in range(1000):
            for number, size in enumerate((890, 1000, 4000, 20_000)):
                try:
                    once = b"%d-%d" % (user, number)
                    memory.claim(once, 1, 1, "", user=user)
                except Busy as full:
                    assert "this user's changes" in str(full), "the share is what is full, and not the file"
                    break
                memory.keep(once, bytes(size))


def test_an_answer_that_finds_no_room_leaves_its_change_as_one_of_unknown_outcome(
    tmp_path, living, clock, monkeypatch, timing
):
    monkeypatch.setattr(idempotency, "STORE_BYTES", 64 << 10)
    with closing(IdempotencyStore(tmp_path, living.__contains__, timing)) as memory:
        memory.claim(ONCE, 1, 1, "")
        memory.keep(ONCE, bytes(100_000))
        for attempt in (1, 2):
            with pytest.raises(CommitterGone, match="could not be kept"):
                memory.claim(ONCE, 1, attempt, memory.name)
        clock.now += KEPT_SECONDS + 1
        assert memory.claim(ONCE, 1, 2, memory.name) is None, "it is forgotten as an answer would have been"


def test_an_answer_that_the_file_does_not_take_leaves_no_claim_behind(tmp_path, living, clock, two, monkeypatch):
    one, other = two
    one.claim(ONCE, 1, 1, "")
    one.claim(OTHER, 1, 1, "")
    (path,) = tmp_path.glob("answered-*.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as stranger:
        stranger.execute("BEGIN IMMEDIATE")  # and nobody else writes
        one.keep(ONCE, b"answer")
        one.drop(OTHER)
        with pytest.raises(Busy, match="idempotency store"):
            one.claim(b"another", 1, 1, "")
        stranger.execute("ROLLBACK")
    assert one.claim(b"another", 1, 1, "") is None
    with pytest.raises(CommitterGone, match="could not be kept"):
        other.claim(ONCE, 2, 2, other.name)
    assert other.claim(OTHER, 2, 2, other.name) is None


def test_a_claim_of_a_worker_that_died_does_not_stay_for_a_day(tmp_path, living, clock, monkeypatch, timing):
    monkeypatch.setattr(idempotency, "STORE_BYTES", 64 << 10)
    with closing(IdempotencyStore(tmp_path, living.__contains__, timing)) as memory:
        under_way = 0
        with suppress(Busy):
            while memory.claim(b"%d" % under_way, 1, 1, "") is None:
                under_way += 1
        living.discard(1)
        clock.now += KEPT_SECONDS + 1
        for number in range(under_way - 1):
            assert memory.claim(b"more %d" % number, 2, 1, "") is None
        for number in range(under_way):
            with pytest.raises(CommitterGone):
                memory.claim(b"%d" % number, 2, 2, memory.name)


def test_old_answers_are_forgotten_a_few_at_a_time(two, clock):
    one, _ = two
    for number in range(200):
        clock.now += 0.001
        one.claim(b"%d" % number, 1, 1, "")
        one.keep(b"%d" % number, b"answer")
    clock.now += KEPT_SECONDS + 1
    for number in range(5):
        assert one.claim(b"new %d" % number, 1, 1, "") is None
    assert one.claim(b"199", 1, 1, "") == b"answer"
    for number in range(5, 15):
        assert one.claim(b"new %d" % number, 1, 1, "") is None
    assert one.claim(b"199", 1, 2, one.name) is None


def test_each_boot_of_the_machine_has_a_memory_of_its_own(tmp_path, living, monkeypatch):
    before = IdempotencyStore(tmp_path, living.__contains__, Timing())
    before.claim(ONCE, 1, 1, "")
    before.close()
    (tmp_path / "boot").write_text("another-boot\n")
    monkeypatch.setattr(idempotency, "BOOT_ID", tmp_path / "boot")
    memory = IdempotencyStore(tmp_path, living.__contains__, Timing())
    assert memory.name != before.name
    assert [each.name for each in tmp_path.glob("answered-*.sqlite")] == ["answered-2-another-boot.sqlite"]
    with pytest.raises(CommitterGone):
        memory.claim(ONCE, 1, 2, before.name)
    memory.close()


@pytest.mark.parametrize("intact_bytes", [0, idempotency.PAGE_BYTES], ids=["the whole file", "all but its schema"])
def test_a_torn_file_is_as_good_as_none(tmp_path, living, intact_bytes):
    memory = IdempotencyStore(tmp_path, living.__contains__, Timing())
    before = memory.name
    memory.close()
    (path,) = tmp_path.glob("answered-*.sqlite")
    content = path.read_bytes()
    path.write_bytes(content[:intact_bytes] + (b"torn" * len(content))[intact_bytes : len(content)])
    memory = IdempotencyStore(tmp_path, living.__contains__, Timing())
    assert memory.name != before
    assert memory.claim(ONCE, 1, 1, "") is None
    memory.close()


def test_workers_that_make_the_file_at_once_share_one_memory(tmp_path, living):
    for attempt in range(40):
        folder = tmp_path / f"{attempt}"
        folder.mkdir()
        begin = threading.Barrier(WORKERS)

        def opened(_: int, folder: Path = folder, begin: threading.Barrier = begin) -> str:
            begin.wait()
            with closing(IdempotencyStore(folder, living.__contains__, Timing())) as memory:
                return memory.name

        with ThreadPoolExecutor(WORKERS) as pool:
            assert len(set(pool.map(opened, range(WORKERS)))) == 1
        assert len(list(folder.glob("answered-*.sqlite*"))) == 1


def test_a_memory_that_cannot_be_kept_is_said(tmp_path, living):
    with pytest.raises(Misconfigured, match="idempotency store"):
        IdempotencyStore(tmp_path / "none", living.__contains__, Timing())
