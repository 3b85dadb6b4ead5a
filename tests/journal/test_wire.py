"""Frames between the committer and its clients: inline values that several commands of a frame share."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.journal import wire
from gateway.journal.inline_values import SentValue
from gateway.journal.pending_commands import PendingCommands
from gateway.journal.wire import FrameReader, attachment_of, pack_command, read_values, send_frames

VALUES = [SentValue(bytes([number]) * 16, 1, number, bytes([number]) * 1000) for number in range(4)]


def received(frames: list[bytes]) -> list[tuple[int, tuple[SentValue, ...]]]:
    """The slots and values of the commands in *frames*, as a committer reads them."""
    found = []
    for _, (_, commands, *values) in FrameReader().feed(b"".join(frames)):
        by_block = read_values(values[0] if values else ())
        for slot, _, _, *references in commands:
            found.append((slot, attachment_of(references[0], by_block) if references else ()))
    return found


def test_a_frame_contains_a_value_once_for_all_its_commands() -> None:
    commands = [pack_command(slot, 1, (7,), (VALUES[0],)) for slot in range(10)]
    (frame,) = send_frames(commands)
    assert frame.count(VALUES[0].value) == 1
    assert received([frame]) == [(slot, (VALUES[0],)) for slot in range(10)]


@given(st.lists(st.lists(st.sampled_from(VALUES), max_size=3, unique=True), max_size=30), st.integers(1, 5_000))
def test_each_command_arrives_with_its_values_however_frames_are_cut(
    attachments: list[list[SentValue]], frame_bytes: int
) -> None:
    commands = [pack_command(slot, 1, (7,), tuple(each)) for slot, each in enumerate(attachments)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "SEND_BYTES", frame_bytes)
        frames = list(send_frames(commands))
    assert received(frames) == [(slot, tuple(each)) for slot, each in enumerate(attachments)]


def test_a_command_of_an_older_client_brings_its_own_values() -> None:
    command = (3, 1, (7,), tuple(tuple(value) for value in VALUES[:2]))
    packed = msgpack.packb((int(wire.FrameKind.SEND), (command,)))
    assert received([len(packed).to_bytes(4, "big") + packed]) == [(3, tuple(VALUES[:2]))]


def test_a_reference_to_a_value_that_is_not_in_the_frame_is_an_error() -> None:
    with pytest.raises(ValueError, match="not in its frame"):
        attachment_of([VALUES[0].block], read_values([VALUES[1]]))


async def test_a_value_that_waiting_commands_share_counts_once() -> None:
    pending = PendingCommands()
    for slot in range(3):
        pending.add(slot, 1, pack_command(slot, 1, (7,), (VALUES[0], VALUES[slot])), 0.0)
    counted = pending._bytes
    assert 3_000 < counted < 3_200
    pending.fail_all("the test ends")
    assert pending._bytes == 0
