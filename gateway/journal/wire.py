"""The wire protocol between the committer and its clients: frames over a Unix socket. Pure.

A frame is its length (4 bytes, big-endian) and a msgpack array that begins with its kind. From a client:

    HELLO kind session                      open a session (session 0), or reconnect to one
    SEND [[slot, number, command, blocks?], …] values?  commands, in no order. values: the inline values
                                            (`inline_values.py`) of this frame, [[block, backend, crc32c, value], …],
                                            each once; blocks: the blocks whose values belong to the command. A
                                            client of an older version sends a command's own values in the place of
                                            blocks
    BEAT horizon                            renew the lease; the lowest record number at which this session still reads
    HORIZONS request pins                   query the lowest horizon of all sessions and, if *pins*, of all pins
    PIN request name number until_ns        keep what dies after record *number* until then
    GOODBYE request                         end the session

and from the committer:

    WELCOME session lease_seconds head      the session is open; the number of the last durable record
    OVER session                            the session has ended
    ANSWERS [[slot, number, code, value], …] accepted   code: "", or the error's wire code; then the value is its
                                            arguments. accepted: whether inline values may be sent, as `Accepts`
    BEATEN head                             the answer to BEAT
    DONE request value                      the answer to HORIZONS, or None for a PIN or a GOODBYE
    FAILED request code args                the error of a PIN

A client numbers its requests; the answer has the same number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack

from gateway.errors import BY_WIRE_CODE, EntrepotError, Refused
from gateway.journal.inline_values import Attachment, SentValue

FRAME_BYTES_MAX = 64 << 20
COMMAND_BYTES_MAX = 32 << 20
"""The most bytes of one command: about 600,000 extents."""
SEND_BYTES = 4 << 20
"""About how many bytes of commands are sent in one frame."""
SLOTS_MAX = 4096
"""The most slots of one session."""
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


class Accepts(IntEnum):
    """What a committer accepts of inline values. Committers of older versions send False or True."""

    NONE = 0
    WITH_COMMANDS = 1
    """Each command brings its own values along."""
    ONCE_IN_FRAME = 2
    """A frame contains each value once, also if several commands refer to it."""


def frame(kind: FrameKind, *values: Any) -> bytes:
    """Encode a frame. Raises `ValueError` if it is too long."""
    packed: bytes = msgpack.packb((int(kind), *values))
    if len(packed) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(packed)} bytes")
    return _LENGTH.pack(len(packed)) + packed


class PackedCommand(NamedTuple):
    """An encoded command, and the inline values that it refers to."""

    packed: bytes
    attachment: Attachment = ()


def send_frames(commands: Iterable[PackedCommand]) -> Iterator[bytes]:
    """Yield SEND frames with these commands. A frame has about `SEND_BYTES`, and contains each value once."""
    packed: list[bytes] = []
    values: dict[bytes, SentValue] = {}
    size = 0
    for command in commands:
        if packed and size + len(command.packed) > SEND_BYTES:
            yield _send_frame(packed, values)
            packed, values, size = [], {}, 0
        packed.append(command.packed)
        size += len(command.packed)
        for value in command.attachment:
            if value.block not in values:
                values[value.block] = value
                size += len(value.value)
    if packed:
        yield _send_frame(packed, values)


def _send_frame(packed: Sequence[bytes], values: Mapping[bytes, SentValue]) -> bytes:
    kind = bytes((FrameKind.SEND,))
    tail: bytes = msgpack.packb(tuple(values.values())) if values else b""
    head = (b"\x93" if values else b"\x92") + kind + msgpack.Packer().pack_array_header(len(packed))
    length = len(head) + sum(map(len, packed)) + len(tail)
    return b"".join((_LENGTH.pack(length), head, *packed, tail))


def pack_command(slot: int, number: int, flat: tuple[Any, ...], attachment: Attachment = ()) -> PackedCommand:
    """Encode a command for `send_frames`. Raises `Refused` if it is too long."""
    blocks = tuple(value.block for value in attachment)
    packed: bytes = msgpack.packb((slot, number, flat, blocks) if blocks else (slot, number, flat))
    if len(packed) > COMMAND_BYTES_MAX:
        raise Refused(f"a command of {len(packed)} bytes; the committer accepts {COMMAND_BYTES_MAX}")
    return PackedCommand(packed, attachment)


def read_values(values: Iterable[tuple[Any, ...]]) -> dict[bytes, SentValue]:
    """Return the inline values of a SEND frame by their blocks."""
    return {value.block: value for value in map(SentValue._make, values)}


def attachment_of(references: Iterable[Any], values: Mapping[bytes, SentValue]) -> Attachment:
    """Return the values that a command refers to, by their blocks or, as older versions do, as they are. Raises
    `ValueError` for a block whose value is not in the frame."""
    found = tuple(values.get(each) if isinstance(each, bytes) else SentValue._make(each) for each in references)
    if None in found:
        raise ValueError("a command refers to a value that is not in its frame")
    return found  # type: ignore[return-value]


class FrameReader:
    """Splits the bytes that arrive on a connection into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, tuple[Any, ...]]]:
        """Add *data*, and return the frames that are complete now: the length in bytes and the values of each. Raises
        `ValueError` for invalid bytes."""
        buffer = self._buffer
        buffer += data
        frames = []
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, at)
            if length > FRAME_BYTES_MAX:
                raise ValueError(f"a frame of {length} bytes")
            end = at + _LENGTH.size + length
            if len(buffer) < end:
                break
            view = memoryview(buffer)[at + _LENGTH.size : end]
            frames.append((length, msgpack.unpackb(view, use_list=False, strict_map_key=False)))
            view.release()
            at = end
        if at:
            del buffer[:at]
        return frames


def encode_error(error: EntrepotError) -> tuple[str, tuple[Any, ...]]:
    """Encode an error as its wire code and plain arguments."""
    plain = tuple(arg if isinstance(arg, str | bytes | int | float | bool | None) else str(arg) for arg in error.args)
    return error.wire_code, plain


def decode_error(code: str, args: tuple[Any, ...]) -> EntrepotError:
    """Decode an error. An unknown code becomes `Refused`."""
    return BY_WIRE_CODE.get(code, Refused)(*args)
