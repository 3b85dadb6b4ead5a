"""What travels between the committer and its clients: frames over a Unix socket. Pure.

A frame is its length (4 bytes, big-endian) and a msgpack array that begins with its kind. From a client:

    HELLO kind session     open a session (0), or come back to one
    SEND  [[slot, number, command], …]   in no order
    BEAT  horizon            still here; the lowest number that this session still reads at
    HORIZONS ask pins        ask for the lowest horizon of all sessions, and pin of all backups
    PIN   ask name number until_ns   keep what dies behind *number* until then
    GOODBYE ask            end the session

and from the committer:

    WELCOME session lease_s head
    OVER    session        the session has ended
    ANSWERS [[slot, number, error, value], …]   error: nothing, or its class's name; value then its arguments
    BEATEN  head
    DONE    ask value      what was asked for: a horizon, or nothing for a PIN or a GOODBYE
    FAILED  ask error args
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any

import msgpack

from gateway.errors import BY_WIRE_CODE, EntrepotError, Refused

FRAME_BYTES_MAX = 64 << 20
COMMAND_BYTES_MAX = 32 << 20
"""The greatest single command: some 600,000 extents."""
SEND_BYTES = 4 << 20
"""About how much of commands goes into one frame."""
SLOTS_MAX = 4096
"""Slots of one session."""
_LENGTH = struct.Struct(">I")


class FrameKind(IntEnum):
    HELLO = 1
    SEND = 2
    BEAT = 3
    HORIZONS = 4
    PIN = 5
    GOODBYE = 6
    WELCOME = 11
    OVER = 12
    ANSWERS = 13
    BEATEN = 14
    DONE = 15
    FAILED = 16


def frame(kind: FrameKind, *values: Any) -> bytes:
    """A frame, ready to send. Raises `ValueError` for one that is too long."""
    packed: bytes = msgpack.packb((int(kind), *values))
    if len(packed) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(packed)} bytes")
    return _LENGTH.pack(len(packed)) + packed


def send_frames(packed: Sequence[bytes]) -> Iterator[bytes]:
    """Frames of commands, each packed by `pack_command` already; more than one where that would be too long."""
    at = 0
    while at < len(packed):
        end, size = at, 0
        while end < len(packed) and (end == at or size + len(packed[end]) <= SEND_BYTES):
            size += len(packed[end])
            end += 1
        head = b"\x92" + bytes((FrameKind.SEND,)) + msgpack.Packer().pack_array_header(end - at)
        yield b"".join((_LENGTH.pack(len(head) + size), head, *packed[at:end]))
        at = end


def pack_command(slot: int, number: int, flat: tuple[Any, ...]) -> bytes:
    """A command ready to travel. Raises `Refused` for one that is too long."""
    packed: bytes = msgpack.packb((slot, number, flat))
    if len(packed) > COMMAND_BYTES_MAX:
        raise Refused(f"a command of {len(packed)} bytes; the committer takes {COMMAND_BYTES_MAX}")
    return packed


class FrameReader:
    """Cuts what comes over a connection into frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, tuple[Any, ...]]]:
        """The frames that are whole now, each with its length in bytes. Raises `ValueError` for bytes that are none."""
        held = self._held
        held += data
        found = []
        at = 0
        while len(held) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(held, at)
            if length > FRAME_BYTES_MAX:
                raise ValueError(f"a frame of {length} bytes")
            end = at + _LENGTH.size + length
            if len(held) < end:
                break
            view = memoryview(held)[at + _LENGTH.size : end]
            found.append((length, msgpack.unpackb(view, use_list=False, strict_map_key=False)))
            view.release()
            at = end
        if at:
            del held[:at]
        return found


def encode_error(error: EntrepotError) -> tuple[str, tuple[Any, ...]]:
    """Encode an error as its wire code and plain arguments."""
    plain = tuple(arg if isinstance(arg, str | bytes | int | float | bool | None) else str(arg) for arg in error.args)
    return error.wire_code, plain


def decode_error(code: str, args: tuple[Any, ...]) -> EntrepotError:
    """Decode an error. A code that is not known here becomes `Refused`."""
    return BY_WIRE_CODE.get(code, Refused)(*args)
