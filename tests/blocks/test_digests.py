"""Digests: the same values whatever the chunks, in threads or not."""

from __future__ import annotations

import base64
import hashlib
import random
import zlib

import pytest
from awscrt import checksums
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.blocks.digests import ALGORITHMS, Digests

DATA = random.Random(5).randbytes(3 << 20)


def expected(algorithm: str, data: bytes) -> str:
    match algorithm:
        case "CRC32":
            raw = zlib.crc32(data).to_bytes(4, "big")
        case "CRC32C":
            raw = checksums.crc32c(data).to_bytes(4, "big")
        case "CRC64NVME":
            raw = checksums.crc64nvme(data).to_bytes(8, "big")
        case _:
            raw = hashlib.new(algorithm.lower(), data).digest()
    return base64.b64encode(raw).decode()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 700_000), max_size=6), st.sampled_from(ALGORITHMS))
async def test_digests_do_not_depend_on_the_chunks(sizes: list[int], algorithm: str) -> None:
    digests = Digests(algorithm, sha256=True)
    at = 0
    for size in sizes:
        piece = DATA[at : at + size]
        if not digests.update_now(piece):
            await digests.update(piece)
        at += len(piece)
    await digests.finish()
    data = DATA[:at]
    assert digests.size == len(data)
    assert digests.md5 == hashlib.md5(data).digest()
    assert digests.crc64nvme == checksums.crc64nvme(data)
    assert digests.sha256 == hashlib.sha256(data).hexdigest()
    assert digests.value(algorithm) == expected(algorithm, data)
    assert digests.value("CRC64NVME") == expected("CRC64NVME", data)


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match="CRC16"):
        Digests("CRC16")
