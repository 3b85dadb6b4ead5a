"""Whose command is run next."""

from __future__ import annotations

from typing import Any

from gateway.blocks.commands.release_content import ReleaseContent
from gateway.journal.server.job_queue import HEAVY_WEIGHT, TURN_WEIGHT, Job, JobQueue
from gateway.journal.session_commands import OpenSession
from gateway.namespace.commands.objects import DeleteObject

FLAT = b"key"
DEEP = b"a/" * 500


def job(command: Any, size: int = 10) -> Job:
    return Job(1, 0, 0, command, size, None)


def deletion(user: int, key: bytes) -> Job:
    return job(DeleteObject("b", key, user, False))


def users(jobs: list[Job]) -> list[int]:
    return [each.command.user for each in jobs]


def test_light_commands_are_taken_in_the_order_in_which_they_came() -> None:
    queue = JobQueue()
    for user in (3, 1, 2):
        queue.push(deletion(user, FLAT))
    assert users(queue.take(100, 1000)) == [3, 1, 2]
    assert (len(queue), queue.size) == (0, 0)


def test_a_turn_takes_a_bounded_weight_of_light_commands_and_one_heavy_command() -> None:
    queue = JobQueue()
    for _ in range(2 * TURN_WEIGHT):
        queue.push(job(OpenSession("x")))
    for _ in range(3):
        queue.push(deletion(1, DEEP))
    taken = queue.take(10_000, 1 << 20)
    assert [type(each.command) for each in taken] == [OpenSession] * TURN_WEIGHT + [DeleteObject]
    assert len(queue) == TURN_WEIGHT + 2


def test_a_light_command_does_not_wait_for_the_heavy_ones_before_it() -> None:
    queue = JobQueue()
    for _ in range(100):
        queue.push(deletion(1, DEEP))
    queue.push(deletion(2, FLAT))
    assert users(queue.take(512, 1 << 20)) == [2, 1]


def test_users_take_turns_with_their_heavy_commands() -> None:
    queue = JobQueue()
    for user in (1, 1, 1, 1, 2, 2, 3):
        queue.push(deletion(user, DEEP))
    turns = [users(queue.take(512, 1 << 20))[0] for _ in range(7)]
    assert turns == [1, 2, 3, 1, 2, 1, 1]


def test_the_keepers_heavy_commands_take_turns_with_the_users() -> None:
    queue = JobQueue()
    queue.push(deletion(1, DEEP))
    queue.push(deletion(1, DEEP))
    queue.push(job(ReleaseContent(((5, HEAVY_WEIGHT),))))
    turns = [type(queue.take(512, 1 << 20)[0].command) for _ in range(3)]
    assert turns == [DeleteObject, ReleaseContent, DeleteObject]


def test_a_batch_that_is_full_takes_no_more() -> None:
    queue = JobQueue()
    for _ in range(5):
        queue.push(job(OpenSession("x"), size=100))
    assert len(queue.take(2, 10_000)) == 2
    assert len(queue.take(10, 150)) == 2
    assert (len(queue), queue.size) == (1, 100)


def test_a_command_whose_fields_cannot_be_weighed_is_queued_all_the_same() -> None:
    queue = JobQueue()
    queue.push(deletion(1, "text"))  # type: ignore[arg-type]
    assert len(queue.take(10, 1000)) == 1


def test_everything_that_waits_can_be_taken_out() -> None:
    queue = JobQueue()
    jobs = [deletion(1, FLAT), deletion(1, DEEP), deletion(2, DEEP)]
    for each in jobs:
        queue.push(each)
    assert queue.clear() == jobs
    assert (len(queue), queue.size, queue.take(10, 1000)) == (0, 0, [])
