"""The memory of what was answered: one change, however often and in whichever worker it is asked for."""

from __future__ import annotations

import pytest

from gateway.errors import Busy, CommitterGone, Misconfigured
from gateway.posix import answered
from gateway.posix.answered import AnsweredMemory
from gateway.posix.wire import KEPT_SECONDS

ONCE, OTHER = b"once", b"other"


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def living() -> set[int]:
    """The sessions that live."""
    return {1, 2}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def two(tmp_path, living, clock):
    """The memory as two workers have it."""
    both = [AnsweredMemory(tmp_path, living.__contains__, clock) for _ in range(2)]
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
        with pytest.raises(Busy, match="under way"):
            other.claim(ONCE, 2, attempt, "")


def test_of_a_worker_that_died_over_it_nobody_knows_what_became(two, living):
    one, other = two
    one.claim(ONCE, 1, 1, "")
    living.discard(1)
    for _ in range(2):
        with pytest.raises(CommitterGone, match="not known"):
            other.claim(ONCE, 2, 2, "")


def test_what_changed_nothing_may_be_tried_again(two):
    one, other = two
    one.claim(ONCE, 1, 1, "")
    one.drop(ONCE)
    assert other.claim(ONCE, 2, 2, one.name) is None


def test_another_try_that_nobody_remembers_is_made_only_by_the_memory_that_would(two):
    one, _ = two
    assert one.claim(ONCE, 1, 2, one.name) is None, "the first try never came"
    with pytest.raises(CommitterGone, match="lost its memory"):
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


def test_a_memory_that_is_full_takes_no_more_until_it_has_forgotten(tmp_path, living, clock, monkeypatch):
    monkeypatch.setattr(answered, "PAGES_MOST", 20)
    memory = AnsweredMemory(tmp_path, living.__contains__, clock)
    with pytest.raises(Busy, match="memory of answers"):
        for number in range(10_000):
            memory.claim(b"%d" % number, 1, 1, "")
            memory.keep(b"%d" % number, bytes(1000))
    clock.now += 24 * 3600 + 1
    assert memory.claim(ONCE, 1, 1, "") is None
    memory.close()


def test_each_boot_of_the_machine_has_a_memory_of_its_own(tmp_path, living, monkeypatch):
    before = AnsweredMemory(tmp_path, living.__contains__)
    before.claim(ONCE, 1, 1, "")
    before.close()
    (tmp_path / "boot").write_text("another-boot\n")
    monkeypatch.setattr(answered, "BOOT_ID", tmp_path / "boot")
    memory = AnsweredMemory(tmp_path, living.__contains__)
    assert memory.name != before.name
    assert [each.name for each in tmp_path.glob("answered-*.sqlite")] == ["answered-another-boot.sqlite"]
    with pytest.raises(CommitterGone):
        memory.claim(ONCE, 1, 2, before.name)
    memory.close()


def test_a_torn_file_is_as_good_as_none(tmp_path, living):
    memory = AnsweredMemory(tmp_path, living.__contains__)
    before = memory.name
    memory.close()
    (path,) = tmp_path.glob("answered-*.sqlite")
    path.write_bytes(b"torn" * 3000)
    memory = AnsweredMemory(tmp_path, living.__contains__)
    assert memory.name != before
    assert memory.claim(ONCE, 1, 1, "") is None
    memory.close()


def test_a_memory_that_cannot_be_kept_is_said(tmp_path, living):
    with pytest.raises(Misconfigured, match="memory of answers"):
        AnsweredMemory(tmp_path / "none", living.__contains__)
