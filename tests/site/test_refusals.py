"""When an edit that was refused is tried again, and how often that is said aloud. By a clock of the test's own."""

from __future__ import annotations

from gateway.site.storage.refusals import Refusals
from gateway.timing import Timing
from tests.clocks import ManualClock, manual_timing

RELOAD = Timing().reload


def pauses(refusals: Refusals, clock: ManualClock, count: int) -> list[float]:
    """Between so many tries of one edit, each of which is refused and told of by nobody."""
    found = []
    for _ in range(count):
        began = clock.now
        while not refusals.due:
            clock.now += 1.0
        found.append(clock.now - began)
        assert not refusals.record("away", temporary=True, is_new=False)
    return found


def test_what_may_pass_is_tried_again_ever_less_often_and_told_of_once() -> None:
    timing, clock = manual_timing()
    refusals = Refusals(timing)
    assert refusals.to_dict() is None
    assert refusals.record("away", temporary=True, is_new=True)
    assert not refusals.due
    assert refusals.to_dict() == {"why": "away", "tries": 1, "again_seconds": RELOAD.refused_first_seconds}
    assert pauses(refusals, clock, 8) == [5, 10, 20, 40, 80, 160, 300, 300]
    assert (refusals.to_dict() or {})["tries"] == 9
    assert (refusals.to_dict() or {})["again_seconds"] == RELOAD.refused_most_seconds


def test_another_edit_begins_anew() -> None:
    timing, clock = manual_timing()
    refusals = Refusals(timing)
    refusals.record("away", temporary=True, is_new=True)
    pauses(refusals, clock, 5)
    assert refusals.record("away", temporary=True, is_new=True)
    assert (refusals.to_dict() or {})["tries"] == 1
    assert pauses(refusals, clock, 2) == [5, 10]


def test_what_is_wrong_for_good_is_not_tried_again() -> None:
    timing, clock = manual_timing()
    refusals = Refusals(timing)
    assert refusals.record("no such setting", temporary=False, is_new=True)
    clock.now += 1e9
    assert not refusals.due
    assert (refusals.to_dict() or {})["again_seconds"] is None


def test_what_may_pass_and_turns_out_to_be_wrong_for_good_is_told_and_left_alone() -> None:
    timing, clock = manual_timing()
    refusals = Refusals(timing)
    refusals.record("away", temporary=True, is_new=True)
    assert refusals.record("another site's", temporary=False, is_new=False)
    clock.now += 1e9
    assert not refusals.due
    assert (refusals.to_dict() or {})["why"] == "another site's"


def test_what_was_taken_over_is_not_refused_any_more() -> None:
    timing, clock = manual_timing()
    refusals = Refusals(timing)
    refusals.record("away", temporary=True, is_new=True)
    refusals.clear()
    clock.now += 1e9
    assert not refusals.due
    assert refusals.to_dict() is None
