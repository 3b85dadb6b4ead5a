"""Packed columns of very many values: the bytes are the same, and no single call holds up other threads for long."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.journal import columns
from gateway.journal.columns import PACKED_AT_ONCE, UNPACKED_AT_ONCE, Piece, pack, pack_list, unpack_pieces

MANY = [Piece(10**9 + number, number * 100, 5_000_000) for number in range(99_900)]


@pytest.mark.parametrize("count", [0, 1, 15, 16, PACKED_AT_ONCE, PACKED_AT_ONCE + 1, 99_900])
def test_pieces_are_packed_to_the_same_bytes_and_read_back_however_many_they_are(count: int) -> None:
    column = pack_list(iter(MANY[:count]))
    assert column == (pack(MANY[:count]) if count else b"")
    assert unpack_pieces(column) == MANY[:count]


def test_no_call_packs_or_unpacks_very_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a call keeps the event loop, which is another thread, from running."""
    sizes: list[int] = []
    pack_one, unpack_one = columns.pack, columns.unpack

    def counted_pack(value: Any) -> bytes:
        sizes.append(len(value))
        return pack_one(value)

    def counted_unpack(column: bytes) -> Any:
        sizes.append(len(column) * PACKED_AT_ONCE // UNPACKED_AT_ONCE)
        return unpack_one(column)

    monkeypatch.setattr(columns, "pack", counted_pack)
    monkeypatch.setattr(columns, "unpack", counted_unpack)
    for count in (PACKED_AT_ONCE, 99_900):
        assert unpack_pieces(pack_list(MANY[:count])) == MANY[:count]
    assert max(sizes) <= PACKED_AT_ONCE
