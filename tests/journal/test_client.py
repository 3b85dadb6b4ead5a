"""What a client's caller is told of a command that went out more than once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway import errors
from gateway.journal.client import HEAVY_SLOTS, Journal
from gateway.journal.codec import COMMAND_CODEC
from gateway.journal.pending_commands import PendingCommand
from gateway.journal.session_commands import EndSession
from gateway.journal.slots import SLOTS
from gateway.journal.wire import PackedCommand, pack_command
from gateway.namespace.commands.objects import DeleteObject
from gateway.timing import Timing


@pytest.mark.parametrize("refusal", ["Busy", "DiskFull"])
async def test_a_command_sent_again_and_not_looked_at_may_have_been_committed_before(
    tmp_path: Path, refusal: str
) -> None:
    """Its caller would delete the bytes of what was refused; those of what may be committed must stay."""
    journal = Journal(tmp_path, "test", Timing())
    told: list[type[BaseException]] = []
    for slot, written in enumerate((1, 2)):
        sent = PendingCommand(1, PackedCommand(b""), asyncio.get_running_loop().create_future(), 0.0)
        sent.times_sent = written
        journal._pending.by_slot[slot] = sent
        journal._pending.receive([(slot, 1, refusal, ("full",))])
        with pytest.raises(errors.EntrepotError) as raised:
            await sent.answer
        told.append(raised.type)
    assert told == [errors.BY_WIRE_CODE[refusal], errors.CommitterGone]


async def test_who_asks_and_is_told_to_end_as_the_committer_goes_away_does_end(tmp_path: Path) -> None:
    """Both come in one turn of the loop where the supervisor and the committer are killed at once."""
    journal = Journal(tmp_path, "test", Timing())
    sent: list[bytes] = []

    class Transport(asyncio.Transport):
        def write(self, data: bytes) -> None:
            sent.append(data)

    journal._transport = Transport()
    asking = asyncio.create_task(journal.horizons())
    while not sent:
        await asyncio.sleep(0)
    journal.connection_lost(None)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_slot_that_is_free_again_is_for_who_waits_for_it(tmp_path: Path) -> None:
    """Somebody who sends between the answer and the turn of the one who waits must wait as well."""
    journal = Journal(tmp_path, "test", Timing())
    sending = [asyncio.create_task(journal.send(EndSession(number))) for number in range(SLOTS)]
    await asyncio.sleep(0)
    waiting = asyncio.create_task(journal.send(EndSession(SLOTS)))
    await asyncio.sleep(0)
    assert len(journal._pending.by_slot) == SLOTS
    assert journal._pending.slots.waiting == 1
    late = asyncio.create_task(journal.send(EndSession(SLOTS + 1)))  # its step comes before that of who waits
    journal._pending.receive([(7, 1, "", None)])
    await sending[7]
    await asyncio.sleep(0)
    assert journal._pending.slots.waiting == 1
    assert journal._pending.by_slot[7].number == 2
    journal._pending.receive([(7, 2, "", "waited")])
    assert await waiting == "waited"
    await asyncio.sleep(0)
    journal._pending.receive([(7, 3, "", "late")])
    assert await late == "late"
    for each in sending:
        each.cancel()
    await asyncio.gather(*sending, return_exceptions=True)


async def test_who_waits_for_an_answer_where_it_is_closed_is_told_that_none_comes(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "test", Timing())
    waiting = asyncio.create_task(journal.send(EndSession(1)))
    await asyncio.sleep(0)
    await journal.close()
    for sent in (waiting, journal.send(EndSession(2))):
        with pytest.raises(errors.CommitterGone, match="was closed"):
            await sent


async def test_who_gives_up_while_it_is_opened_leaves_nobody_behind(tmp_path: Path) -> None:
    """Not a task that would keep the lease of a session which nobody has, for as long as the process lives."""
    before = asyncio.all_tasks()
    opening = asyncio.create_task(Journal.open(tmp_path, "test"))
    while len(asyncio.all_tasks() - before) < 3:  # itself, who connects, and who beats
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert asyncio.all_tasks() == before


async def test_heavy_commands_leave_slots_to_the_light_ones(tmp_path: Path) -> None:
    """Whoever sends many that take long does not have everybody else wait for a slot."""
    journal = Journal(tmp_path, "test", Timing())
    heavy = DeleteObject("b", b"a/" * 500, 1, False)
    sending = [asyncio.create_task(journal.send(heavy)) for _ in range(2 * SLOTS)]
    await asyncio.sleep(0)
    light = asyncio.create_task(journal.send(EndSession(1)))
    await asyncio.sleep(0)
    assert len(journal._pending.by_slot) == HEAVY_SLOTS + 1
    done = [slot for slot in journal._pending.by_slot if slot < HEAVY_SLOTS][:10]
    journal._pending.receive([(slot, journal._pending.by_slot[slot].number, "", None) for slot in done])
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(journal._pending.by_slot) == HEAVY_SLOTS + 1, (
        "those that waited took the turns of those that were answered"
    )
    for task in (*sending, light):
        task.cancel()
    await asyncio.gather(*sending, light, return_exceptions=True)


@pytest.mark.parametrize(("key", "at_once"), [(b"k", SLOTS), (b"a/" * 300 + b"k", HEAVY_SLOTS)])
async def test_users_take_turns_with_the_slots_of_a_process(tmp_path: Path, key: bytes, at_once: int) -> None:
    """Also with those for heavy commands, such as deletions of keys of hundreds of levels."""
    journal = Journal(tmp_path, "test", Timing())
    alice, bob = (DeleteObject("b", key, user, False) for user in (1, 2))
    sending = [asyncio.create_task(journal.send(alice)) for _ in range(at_once + 20)]
    await asyncio.sleep(0)
    sending.append(asyncio.create_task(journal.send(bob)))
    await asyncio.sleep(0)
    assert len(journal._pending.by_slot) == at_once
    for slot, number in [(slot, sent.number) for slot, sent in journal._pending.by_slot.items()][:2]:
        journal._pending.receive([(slot, number, "", "done")])
        for _ in range(5):
            await asyncio.sleep(0)
    flat = COMMAND_CODEC.to_tuple(bob)
    assert [
        slot for slot, sent in journal._pending.by_slot.items() if sent.packed == pack_command(slot, sent.number, flat)
    ]
    for each in sending:
        each.cancel()
    await asyncio.gather(*sending, return_exceptions=True)
