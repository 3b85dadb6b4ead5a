"""What a client's caller is told of a command that went out more than once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway import errors
from gateway.journal.client import Journal, _Sent


@pytest.mark.parametrize("refusal", ["Busy", "DiskFull"])
async def test_a_command_sent_again_and_not_looked_at_may_have_been_committed_before(
    tmp_path: Path, refusal: str
) -> None:
    """Its caller would delete the bytes of what was refused; those of what may be committed must stay."""
    journal = Journal(tmp_path, "test")
    told: list[type[BaseException]] = []
    for slot, written in enumerate((1, 2)):
        sent = _Sent(1, b"", asyncio.get_running_loop().create_future())
        sent.written = written
        journal._sent[slot] = sent
        journal._answers([(slot, 1, refusal, ("full",))])
        with pytest.raises(errors.EntrepotError) as raised:
            await sent.answer
        told.append(raised.type)
    assert told == [errors.BY_NAME[refusal], errors.CommitterGone]


async def test_who_asks_and_is_told_to_end_as_the_committer_goes_away_does_end(tmp_path: Path) -> None:
    """Both come in one turn of the loop where the supervisor and the committer are killed at once."""
    journal = Journal(tmp_path, "test")
    sent: list[bytes] = []

    class Transport(asyncio.Transport):
        def write(self, data: bytes) -> None:
            sent.append(data)

    journal._transport = Transport()
    asking = asyncio.create_task(journal.floors())
    while not sent:
        await asyncio.sleep(0)
    journal.connection_lost(None)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
