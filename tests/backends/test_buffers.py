"""Buffers that are about to be filled."""

from __future__ import annotations

import pytest

from backends.buffers import unfilled


@pytest.mark.parametrize("size", [0, 1, 32 << 10, (32 << 10) + 1, 8 << 20])
def test_an_unfilled_buffer_has_its_size_and_takes_what_is_written(size: int) -> None:
    buffer = unfilled(size)
    assert type(buffer) is bytearray
    assert len(buffer) == size
    buffer[:] = b"x" * size
    assert buffer == b"x" * size
