"""What is sealed comes back the same, and nothing else comes back at all."""

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.crypto import sealing
from gateway.crypto.sealing import (
    ENCRYPTED,
    FRAME_PLAIN,
    FRAME_SEALED,
    HEADER_BYTES,
    MAX_BLOCK_PLAIN,
    TAG_BYTES,
    TAGGED,
    BlockKeys,
    ExtentLocation,
    Opener,
    Sealer,
    check_header,
    header,
    sealed_length,
    sealed_span,
)
from gateway.errors import Corrupted

RING_KEY = bytes(range(32))
RING_KEY_ID = 0x0102030405060708
SESSION = 77
MODES = pytest.mark.parametrize("mode", [ENCRYPTED, TAGGED], ids=["encrypted", "tagged"])


class Block(NamedTuple):
    """A sealed block as a backend holds it, with what the journal knows of it."""

    id: bytes
    stored: bytes
    extents: list[ExtentLocation]
    plain: list[bytes]
    mode: int

    def opener(self) -> Opener:
        return Opener(RING_KEY, self.id, self.mode)

    def span(self, extent: int) -> bytes:
        placed = self.extents[extent]
        return self.stored[placed.offset : placed.offset + sealed_length(placed.length)]

    def open(self, sealed: bytes, extent: int = 0, first: int = 0, count: int | None = None) -> bytes:
        placed = self.extents[extent]
        return bytes(self.opener().open(sealed, placed.length, placed.frame, first, count))


def sealed(*extents: bytes, mode: int = ENCRYPTED, ring_key: bytes = RING_KEY) -> Block:
    sealer = Sealer(ring_key, RING_KEY_ID, SESSION, mode)
    placed = [sealer.add([extent]) for extent in extents]
    block = sealer.finish()
    stored = b"".join(block.buffers)
    assert block.size == len(stored)
    return Block(block.block_id, stored, placed, list(extents), mode)


def swapped(stored: bytes, one: int, other: int) -> bytes:
    """The whole frames that stand at two places, exchanged."""
    first, second = stored[one : one + FRAME_SEALED], stored[other : other + FRAME_SEALED]
    out = bytearray(stored)
    out[one : one + FRAME_SEALED], out[other : other + FRAME_SEALED] = second, first
    return bytes(out)


THREE_FRAMES = os.urandom(2 * FRAME_PLAIN + 1000)


@MODES
@settings(max_examples=150)
@given(data=st.data())
def test_a_flipped_bit_is_refused(mode: int, data: st.DataObject) -> None:
    block = sealed(os.urandom(3000), b"x", os.urandom(FRAME_PLAIN + 5), mode=mode)
    bit = data.draw(st.integers(0, 8 * len(block.stored) - 1))
    flipped = bytearray(block.stored)
    flipped[bit // 8] ^= 1 << bit % 8
    hurt = block._replace(stored=bytes(flipped))
    refused = 0
    try:
        check_header(hurt.stored, block.id, RING_KEY_ID, mode)
    except Corrupted:
        refused += 1
    for number in range(3):
        try:
            assert hurt.open(hurt.span(number), number) == block.plain[number]
        except Corrupted:
            refused += 1
    assert refused == 1


@MODES
@pytest.mark.parametrize("length", [1, 4096, FRAME_PLAIN])
def test_an_extent_of_one_frame_opens_in_one_go_and_only_as_it_was_sealed(mode: int, length: int) -> None:
    block = sealed(os.urandom(5), os.urandom(length), mode=mode)
    frame, span = block.extents[1].frame, block.span(1)
    assert bytes(block.opener().open_one(span, length, frame)) == block.plain[1]
    flipped = bytearray(span)
    flipped[length // 2] ^= 1
    for broken, number in ((flipped, frame), (span, frame + 1), (span[:-1], frame), (span + b"x", frame), (b"", frame)):
        with pytest.raises(Corrupted):
            block.opener().open_one(broken, length, number)


@MODES
def test_swapped_frames_of_one_extent_are_refused(mode: int) -> None:
    block = sealed(os.urandom(3 * FRAME_PLAIN), mode=mode)
    with pytest.raises(Corrupted, match="frame 0 of block"):
        block.open(swapped(block.span(0), 0, FRAME_SEALED))
    with pytest.raises(Corrupted, match="frame 1 of block"):
        block.open(swapped(block.span(0), FRAME_SEALED, 2 * FRAME_SEALED))


@MODES
def test_swapped_frames_of_two_extents_are_refused(mode: int) -> None:
    one = sealed(os.urandom(FRAME_PLAIN), os.urandom(FRAME_PLAIN), mode=mode)
    mixed = one._replace(stored=swapped(one.stored, one.extents[0].offset, one.extents[1].offset))
    for extent in (0, 1):
        with pytest.raises(Corrupted, match=f"frame {extent} of block {one.id.hex()}"):
            mixed.open(mixed.span(extent), extent)


@MODES
def test_a_truncated_extent_is_refused(mode: int) -> None:
    block = sealed(THREE_FRAMES, mode=mode)
    whole = block.span(0)
    for kept in (0, 1, TAG_BYTES, FRAME_SEALED - 1, FRAME_SEALED, 2 * FRAME_SEALED, len(whole) - 1):
        with pytest.raises(Corrupted):
            block.open(whole[:kept])
    with pytest.raises(Corrupted):
        block.open(whole + b"\0")


@MODES
def test_frames_out_of_the_middle_come_short_only_with_an_error(mode: int) -> None:
    block = sealed(THREE_FRAMES, mode=mode)
    second = block.span(0)[FRAME_SEALED : 2 * FRAME_SEALED]
    assert block.open(second, first=1, count=1) == THREE_FRAMES[FRAME_PLAIN : 2 * FRAME_PLAIN]
    for first, count in ((1, 2), (1, None), (1, 0), (0, 2), (3, 1), (4, None)):
        with pytest.raises(Corrupted, match=r"has \d+ bytes where frame"):
            block.open(second, first=first, count=count)
    with pytest.raises(Corrupted, match="frame 0 of block"):
        block.open(second, first=0, count=1)


@MODES
def test_an_extent_cut_at_a_frame_is_refused_even_by_who_believes_the_shorter_length(mode: int) -> None:
    block = sealed(os.urandom(3 * FRAME_PLAIN), mode=mode)
    with pytest.raises(Corrupted, match="frame 1 of block"):
        block.opener().open(block.span(0)[: 2 * FRAME_SEALED], 2 * FRAME_PLAIN, 0)


@MODES
def test_an_extent_is_no_head_of_a_longer_one(mode: int) -> None:
    block = sealed(os.urandom(FRAME_PLAIN), os.urandom(FRAME_PLAIN), mode=mode)
    with pytest.raises(Corrupted, match="frame 0 of block"):
        block.opener().open(block.stored[HEADER_BYTES:], 2 * FRAME_PLAIN, 0)


@MODES
def test_swapped_blocks_are_refused(mode: int) -> None:
    same = os.urandom(5000)
    one, other = sealed(same, mode=mode), sealed(same, mode=mode)
    assert one.stored[HEADER_BYTES:] != other.stored[HEADER_BYTES:]
    with pytest.raises(Corrupted, match=one.id.hex()):
        one.open(other.span(0))
    with pytest.raises(Corrupted, match=other.id.hex()):
        other.open(one.span(0))


@MODES
def test_an_old_block_replayed_under_a_new_id_is_refused(mode: int) -> None:
    """The id is in the key and in each tag: what was sealed under another id opens under none but that."""
    old = sealed(b"yesterday's price", mode=mode)
    new = sealed(b"today's new price", mode=mode)
    assert old.id != new.id
    replayed = new._replace(stored=old.stored)
    with pytest.raises(Corrupted):
        replayed.open(replayed.span(0))


@MODES
def test_a_foreign_block_is_refused(mode: int) -> None:
    """Another site's ring key, even with the same block id and the same ring key id."""
    foreign = sealed(os.urandom(5000), mode=mode, ring_key=bytes(32))
    with pytest.raises(Corrupted):
        foreign.open(foreign.span(0))
    assert bytes(Opener(bytes(32), foreign.id, mode).open(foreign.span(0), 5000, 0)) == foreign.plain[0]


def test_a_block_opened_in_the_other_mode_is_refused() -> None:
    for mode, other in ((ENCRYPTED, TAGGED), (TAGGED, ENCRYPTED)):
        block = sealed(b"mode" * 100, mode=mode)
        with pytest.raises(Corrupted):
            block._replace(mode=other).open(block.span(0))


@pytest.mark.parametrize(
    "found",
    [
        b"",
        header(RING_KEY_ID, ENCRYPTED)[:-1],
        b"ENTA" + header(RING_KEY_ID, ENCRYPTED)[4:],
        header(RING_KEY_ID + 1, ENCRYPTED),
        header(RING_KEY_ID, TAGGED),
        header(RING_KEY_ID, ENCRYPTED)[:6] + b"\0\1" + header(RING_KEY_ID, ENCRYPTED)[8:],
        header(RING_KEY_ID, ENCRYPTED)[:4] + b"\2" + header(RING_KEY_ID, ENCRYPTED)[5:],
    ],
    ids=["none", "short", "magic", "ring key", "mode", "reserved", "version"],
)
def test_another_header_is_refused(found: bytes) -> None:
    with pytest.raises(Corrupted, match="block 0a0b"):
        check_header(found, bytes.fromhex("0a0b"), RING_KEY_ID, ENCRYPTED)


def test_the_format_is_what_it_was() -> None:
    """Blocks written long ago must open for good: every byte of the format, made here by hand."""
    from hashlib import sha256
    from hmac import digest

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    block = sealed(b"first", b"s" * (FRAME_PLAIN + 1))
    assert block.id[:8] == SESSION.to_bytes(8, "big")
    assert len(block.id) == 24
    assert block.stored[:16] == b"ENTB\x01\x01\x00\x00" + RING_KEY_ID.to_bytes(8, "big")
    pseudo = digest(bytes(sha256().digest_size), RING_KEY, "sha256")
    key = digest(pseudo, b"entrepot block 1" + block.id + b"\1", "sha256")
    frames = [(b"first", True), (b"s" * FRAME_PLAIN, False), (b"s", True)]
    made = b"".join(
        AESGCM(key).encrypt(number.to_bytes(12, "big"), plain, block.id + number.to_bytes(4, "big") + bytes([last]))
        for number, (plain, last) in enumerate(frames)
    )
    assert block.stored[16:] == made
    assert block.extents == [ExtentLocation(16, 0, 5), ExtentLocation(16 + 5 + 16, 1, FRAME_PLAIN + 1)]


LENGTHS = st.one_of(
    st.integers(1, 300),
    st.builds(lambda frames, by: frames * FRAME_PLAIN + by, st.integers(1, 4), st.integers(-2, 2)),
)


def cut(value: bytes, at: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(each % (len(value) + 1) for each in at), len(value)]
    return [value[start:end] for start, end in pairwise(edges)]


@MODES
@settings(max_examples=80)
@given(data=st.data())
def test_any_split_into_extents_and_buffers_and_any_range_reads_back_the_same(mode: int, data: st.DataObject) -> None:
    plain = [os.urandom(length) for length in data.draw(st.lists(LENGTHS, min_size=1, max_size=5))]
    sealer = Sealer(RING_KEY, RING_KEY_ID, SESSION, mode)
    places = [sealer.add(cut(each, data.draw(st.lists(st.integers(0, 1 << 20), max_size=6)))) for each in plain]
    block = sealer.finish()
    stored = b"".join(block.buffers)
    number = data.draw(st.integers(0, len(plain) - 1))
    extent, placed = plain[number], places[number]
    start = data.draw(st.integers(0, len(extent) - 1))
    length = data.draw(st.integers(1, len(extent) - start))
    span = sealed_span(placed.offset, placed.length, start, length)
    fetched = stored[span.start : span.start + span.length]
    count = -(-span.length // FRAME_SEALED)
    opened = Opener(RING_KEY, block.block_id, mode).open(fetched, placed.length, placed.frame, span.first, count)
    assert bytes(opened[span.skip : span.skip + length]) == extent[start : start + length]
    assert span.length <= (length // FRAME_PLAIN + 2) * FRAME_SEALED, "no more frames than the range touches"


@MODES
def test_an_extent_sealed_as_it_arrives_is_the_same_as_one_sealed_at_once(mode: int) -> None:
    sealer = Sealer(RING_KEY, RING_KEY_ID, SESSION, mode)
    begun = sealer.add([THREE_FRAMES[:FRAME_PLAIN]], more=True)
    sealer.add([THREE_FRAMES[FRAME_PLAIN : 2 * FRAME_PLAIN]], more=True)
    sealer.add([THREE_FRAMES[2 * FRAME_PLAIN :]])
    block = sealer.finish()
    stored = b"".join(block.buffers)
    opened = Opener(RING_KEY, block.block_id, mode).open(stored[begun.offset :], len(THREE_FRAMES), begun.frame)
    assert bytes(opened) == THREE_FRAMES
    with pytest.raises(ValueError, match="only its last frame may be short"):
        Sealer(RING_KEY, RING_KEY_ID, SESSION).add([b"short"], more=True)


def test_a_block_takes_eight_mebibytes_and_not_a_byte_more() -> None:
    sealer = Sealer(RING_KEY, RING_KEY_ID, SESSION)
    placed = sealer.add([bytes(MAX_BLOCK_PLAIN - 1)])
    assert sealer.add([b"x"]).frame == 128
    assert (placed.offset, placed.frame) == (HEADER_BYTES, 0)
    for too_much in ([b"x"], [b""], []):
        with pytest.raises(ValueError, match="does not fit"):
            sealer.add(too_much)
    with pytest.raises(ValueError, match="in an extent of"):
        sealed_span(16, 10, 5, 6)


def test_no_two_blocks_share_an_id() -> None:
    ids = {sealing.new_block_id(SESSION) for _ in range(1000)}
    assert len(ids) == 1000
    assert {each[:8] for each in ids} == {SESSION.to_bytes(8, "big")}


def test_the_checksum_of_a_block_is_crc32c_over_all_its_buffers() -> None:
    from awscrt import checksums

    sealer = Sealer(RING_KEY, RING_KEY_ID, SESSION)
    sealer.add([b"one"])
    sealer.add([b"two"])
    block = sealer.finish()
    assert block.crc32c == checksums.crc32c(b"".join(block.buffers))


def test_without_encryption_the_bytes_lie_open_and_with_it_they_do_not() -> None:
    plain = b"to be or not to be" * 10
    assert plain in sealed(plain, mode=TAGGED).stored
    assert plain not in sealed(plain, mode=ENCRYPTED).stored


def test_openers_of_blocks_read_lately_are_kept_and_no_more_than_asked() -> None:
    asked: list[int] = []

    def ring_key(key_id: int) -> tuple[bytes, int]:
        asked.append(key_id)
        return RING_KEY, ENCRYPTED

    keys = BlockKeys(ring_key, most=2)
    block = sealed(b"cached")
    for _ in range(3):
        assert bytes(keys.opener(RING_KEY_ID, block.id).open(block.span(0), 6, 0)) == b"cached"
    assert asked == [RING_KEY_ID]
    for other in range(3):
        keys.opener(RING_KEY_ID, sealing.new_block_id(other))
    keys.opener(RING_KEY_ID, block.id)
    assert len(asked) == 5


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=24, max_size=24))
def test_a_blocks_key_is_hkdf(ring_key: bytes, block_id: bytes) -> None:
    told = HKDF(hashes.SHA256(), 32, salt=None, info=b"entrepot block 1" + block_id).derive(ring_key)
    assert sealing.derive_block_key(ring_key, block_id) == told
