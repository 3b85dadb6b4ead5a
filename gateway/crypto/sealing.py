"""The format of a block: a header and a row of sealed frames. Pure but for the random block id.

    block  = header, frame, frame, …
    header = "ENTB", version 1, mode (1 AES-256-GCM, 2 tagged only), 2 reserved bytes, ring key id (8, big-endian)
    frame  = at most 64 KiB of bytes (mode 1: encrypted), then a tag of 16 bytes

A block's key is HKDF-SHA256(ring key, info = "entrepot block 1" + block id), so no two blocks share one, and a frame's
number is nonce enough. Every extent begins a frame and only its last frame may be short. Each frame's tag also covers
(block id, frame number, whether it is its extent's last).

Why a reader notices everything, without trusting the backend. It knows from the journal, which is trusted, the block's
id, the extent's first frame and its exact plain length, hence each frame's number, length and last-flag:
- a flipped bit fails the frame's tag; in the header, the comparison with the header that the journal implies;
- a swapped frame, within an extent or across, fails because its number is in the tag (and is the nonce);
- a truncated extent is short of a frame, or its last frame has another length or flag than expected;
- a swapped, replayed or foreign block has another id or ring key, hence another key.
"Last" is said of the extent, not of the block: a pack's extents are sealed while others are still to come, and readers
never need the block's end. Ids are never tried twice, so there is no older version of a block that could be shown.
"""

from __future__ import annotations

import hmac
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from awscrt import checksums
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from backends.buffers import unfilled
from gateway.errors import Corrupted

Buffer = bytes | bytearray | memoryview

MAGIC = b"ENTB"
VERSION = 1
ENCRYPTED = 1
TAGGED = 2
HEADER = struct.Struct(">4sBBHQ")
HEADER_BYTES = HEADER.size
FRAME_PLAIN = 64 << 10
TAG_BYTES = 16
FRAME_SEALED = FRAME_PLAIN + TAG_BYTES
MAX_BLOCK_PLAIN = 8 << 20
SESSION_BYTES = 8
RANDOM_BYTES = 16
_FRAME_NAME = struct.Struct(">I?")


class ExtentLocation(NamedTuple):
    """Where an extent lies in its block."""

    offset: int
    """Of its first frame, in sealed bytes."""
    frame: int
    """The number of its first frame."""
    length: int
    """Plain bytes."""


class Sealed(NamedTuple):
    """A finished block."""

    block_id: bytes
    buffers: list[Buffer]
    size: int
    """Bytes of all buffers."""
    crc32c: int


class SealedSpan(NamedTuple):
    """The sealed bytes that hold a plain range."""

    start: int
    length: int
    first: int
    """Which of the extent's frames is the first in it, from 0."""
    skip: int
    """How many plain bytes of that frame come before the range."""


def frames_of(length: int) -> int:
    """How many frames an extent of *length* plain bytes has."""
    return -(-length // FRAME_PLAIN)


def sealed_length(length: int) -> int:
    """The sealed bytes of an extent of *length* plain bytes."""
    return length + TAG_BYTES * frames_of(length)


def sealed_span(offset: int, length: int, want_start: int, want_length: int) -> SealedSpan:
    """Which sealed bytes hold *want_length* > 0 plain bytes from *want_start* on, of the extent of *length* plain
    bytes whose first frame stands at *offset*. Raises `ValueError` for a range that is not inside the extent."""
    if want_start < 0 or want_length <= 0 or want_start + want_length > length:
        raise ValueError(f"no {want_length} bytes from {want_start} on in an extent of {length}")
    first = want_start // FRAME_PLAIN
    behind = frames_of(want_start + want_length)
    start = first * FRAME_SEALED
    end = min(behind * FRAME_SEALED, sealed_length(length))
    return SealedSpan(offset + start, end - start, first, want_start - first * FRAME_PLAIN)


def new_block_id(session: int) -> bytes:
    """A block id that was never tried before: the session's id and 128 random bits."""
    return session.to_bytes(SESSION_BYTES, "big") + os.urandom(RANDOM_BYTES)


def derive_block_key(ring_key: bytes, block_id: bytes) -> bytes:
    """HKDF (RFC 5869) with SHA-256 over the ring key, 32 bytes, bound to the block's id.

    Its second step is one HMAC for as many bytes as a hash has; cryptography's takes six times as long, which random
    small reads would feel."""
    expanded = _extracted(ring_key).copy()
    expanded.update(b"entrepot block 1" + block_id + b"\x01")
    return expanded.digest()


@lru_cache(64)
def _extracted(ring_key: bytes) -> hmac.HMAC:
    """HKDF's first step, the same for all blocks of a ring key, taken in as the key of the second."""
    return hmac.new(hmac.digest(bytes(32), ring_key, "sha256"), digestmod="sha256")


def header(ring_key_id: int, mode: int) -> bytes:
    """How a block sealed under that ring key, in its mode, begins."""
    return HEADER.pack(MAGIC, VERSION, mode, 0, ring_key_id)


def check_header(found: Buffer, block_id: bytes, ring_key_id: int, mode: int) -> None:
    """Raises `Corrupted` unless *found* begins with the header of a block sealed under that ring key, in its mode.

    No read relies on a header; it is there for who repairs a site from its blocks, so `fsck` looks at all its bits."""
    if len(found) < HEADER_BYTES:
        raise Corrupted(f"block {block_id.hex()} has no whole header")
    magic, version, said_mode, reserved, key_id = HEADER.unpack(bytes(found[:HEADER_BYTES]))
    if magic != MAGIC or version != VERSION or reserved:
        raise Corrupted(f"block {block_id.hex()} does not begin as a block of version {VERSION} does")
    if (key_id, said_mode) != (ring_key_id, mode):
        raise Corrupted(
            f"block {block_id.hex()} says mode {said_mode} and ring key {key_id:016x}, the journal "
            f"mode {mode} and ring key {ring_key_id:016x}"
        )


class Frames:
    """Seals and opens single frames of one block. Raises `Corrupted`, with the block and the frame, on any mismatch."""

    __slots__ = ("_aead", "_id", "_key", "mode")

    def __init__(self, ring_key: bytes, block_id: bytes, mode: int) -> None:
        key = derive_block_key(ring_key, block_id)
        self._id = block_id
        self._key = key
        self._aead = AESGCM(key) if mode == ENCRYPTED else None
        self.mode = mode

    def seal(self, number: int, last: bool, plain: Buffer, into: memoryview) -> None:
        """*into* is as long as *plain* and a tag."""
        name = self._id + _FRAME_NAME.pack(number, last)
        if self._aead is not None:
            self._aead.encrypt_into(number.to_bytes(12, "big"), plain, name, into)
            return
        into[: len(plain)] = plain
        into[len(plain) :] = self._tag(name, plain)

    def open(self, number: int, last: bool, sealed: memoryview, into: memoryview) -> None:
        """*into* is as long as *sealed* less the tag."""
        name = self._id + _FRAME_NAME.pack(number, last)
        if self._aead is not None:
            try:
                self._aead.decrypt_into(number.to_bytes(12, "big"), sealed, name, into)
            except InvalidTag:
                raise self._damaged(number) from None
            return
        plain = sealed[:-TAG_BYTES]
        if not compare_digest(self._tag(name, plain), bytes(sealed[-TAG_BYTES:])):
            raise self._damaged(number)
        into[:] = plain

    def open_one(self, number: int, sealed: Buffer) -> Buffer:
        """The plain bytes of a frame that is all of its extent."""
        if self._aead is None:
            plain = memoryview(bytearray(len(sealed) - TAG_BYTES))
            self.open(number, True, memoryview(sealed), plain)
            return plain
        try:
            return self._aead.decrypt(number.to_bytes(12, "big"), sealed, self._id + _FRAME_NAME.pack(number, True))
        except InvalidTag:
            raise self._damaged(number) from None

    def _tag(self, name: bytes, plain: Buffer) -> bytes:
        tag = blake2b(name, digest_size=TAG_BYTES, key=self._key)
        tag.update(plain)
        return tag.digest()

    def _damaged(self, number: int) -> Corrupted:
        return Corrupted(f"frame {number} of block {self._id.hex()} is not what was sealed")


def _frames_from(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """The frames' plain bytes. Only a frame that lies across buffers is copied, so that a body which came in small
    buffers is never laid out whole a second time (which would cost more than sealing it)."""
    frame = bytearray()
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        at = 0
        if frame:
            at = FRAME_PLAIN - len(frame)
            frame += view[:at]
            if len(frame) < FRAME_PLAIN:
                continue
            yield frame
            frame = bytearray()
        whole = at + (len(view) - at) // FRAME_PLAIN * FRAME_PLAIN
        for start in range(at, whole, FRAME_PLAIN):
            yield view[start : start + FRAME_PLAIN]
        frame += view[whole:]
    if frame:
        yield frame


class Sealer:
    """Fills one block, extent by extent.

    Sealing 8 MiB takes one or two milliseconds; a caller on the event loop adds a block in slices, or in a thread.
    """

    def __init__(self, ring_key: bytes, ring_key_id: int, session: int, mode: int = ENCRYPTED) -> None:
        self.block_id = new_block_id(session)
        self._frames = Frames(ring_key, self.block_id, mode)
        self._buffers: list[Buffer] = [header(ring_key_id, mode)]
        self._frame = 0
        self.size = HEADER_BYTES
        """Sealed bytes so far."""
        self.plain = 0
        """Plain bytes so far."""

    def add(self, buffers: Sequence[Buffer], *, more: bool = False) -> ExtentLocation:
        """Seal one extent, which may come in several buffers. Raises `ValueError` if it is empty or too long.

        *more*: the extent goes on with the next `add`, so that a large one is sealed as it arrives; its length is
        then the sum of them, and this stretch of it must be whole frames."""
        length = sum(map(len, buffers))
        if not 0 < length <= MAX_BLOCK_PLAIN - self.plain:
            raise ValueError(f"an extent of {length} bytes does not fit behind {self.plain}")
        if more and length % FRAME_PLAIN:
            raise ValueError(f"an extent cannot go on behind {length} bytes: only its last frame may be short")
        sealed = memoryview(unfilled(sealed_length(length)))
        placed = ExtentLocation(self.size, self._frame, length)
        at = 0
        for piece in _frames_from(buffers):
            end = at + len(piece) + TAG_BYTES
            last = not more and end == len(sealed)
            self._frames.seal(self._frame, last, piece, sealed[at:end])
            self._frame += 1
            at = end
        self._buffers.append(sealed)
        self.size += len(sealed)
        self.plain += length
        return placed

    def finish(self) -> Sealed:
        """The block, whose buffers must not change any more."""
        crc = 0
        for buffer in self._buffers:
            crc = checksums.crc32c(buffer, crc)
        return Sealed(self.block_id, self._buffers, self.size, crc)


class Opener:
    """Opens frames of one block."""

    __slots__ = ("_frames", "block_id", "mode")

    def __init__(self, ring_key: bytes, block_id: bytes, mode: int = ENCRYPTED) -> None:
        self.block_id = block_id
        self.mode = mode
        self._frames = Frames(ring_key, block_id, mode)

    def open(self, sealed: Buffer, length: int, frame: int, first: int = 0, count: int | None = None) -> memoryview:
        """The plain bytes of *count* frames (None: all that follow) of an extent, from its *first*-th on.

        The extent has *length* plain bytes, and its own first frame the number *frame* in the block. *sealed* is
        exactly those frames. Raises `Corrupted` if it is shorter, longer, or anything else than what was sealed."""
        view = memoryview(sealed).cast("B")
        if count is None:
            count = frames_of(length) - first
        expected = min(length - first * FRAME_PLAIN, count * FRAME_PLAIN)
        if expected <= 0 or len(view) != expected + count * TAG_BYTES:
            raise Corrupted(
                f"block {self.block_id.hex()} has {len(view)} bytes where frame {frame + first} and "
                f"{count - 1} behind it have {expected + count * TAG_BYTES}"
            )
        plain = memoryview(unfilled(expected))
        total = frames_of(length)
        for index in range(count):
            piece = view[index * FRAME_SEALED : (index + 1) * FRAME_SEALED]
            into = plain[index * FRAME_PLAIN : (index + 1) * FRAME_PLAIN]
            self._frames.open(frame + first + index, first + index + 1 == total, piece, into)
        return plain

    def open_one(self, sealed: Buffer, length: int, frame: int) -> Buffer:
        """As `open`, of an extent that is one frame, all of it: half the time, for 4 KiB."""
        if not 0 < length <= FRAME_PLAIN or len(sealed) != length + TAG_BYTES:
            raise Corrupted(
                f"block {self.block_id.hex()} has {len(sealed)} bytes where frame {frame} has {length + TAG_BYTES}"
            )
        return self._frames.open_one(frame, sealed)


class BlockKeys:
    """Openers of the blocks read lately, so that a block's key is not derived again for each read."""

    def __init__(self, ring_key: Callable[[int], tuple[bytes, int]], most: int = 4096) -> None:
        """*ring_key* answers the key and the mode of a ring key's id; *most* openers are kept."""

        @lru_cache(most)
        def opener(ring_key_id: int, block_id: bytes) -> Opener:
            key, mode = ring_key(ring_key_id)
            return Opener(key, block_id, mode)

        self.opener = opener
