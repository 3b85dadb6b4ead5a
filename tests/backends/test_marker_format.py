"""The marker's text: what is written is read again, an old one too, and anything else is told from a marker."""

from __future__ import annotations

import json

import pytest

from backends.base import LINEAGE_MAX, Fence, IssuedToken, Marker
from backends.marker_format import MARKER_BYTES_MAX, encode_marker, parse_marker

SITE = "5e" * 16
BARE = Marker(SITE, (1 << 48) + 7, 2)
DRAW = IssuedToken((1 << 63) - 1, "ab" * 16, (1 << 63) - 1, "cd" * 32)
FENCE = Fence(*DRAW, 1_700_000_000 * 10**9, f"{DRAW.counter}.{DRAW.nonce}.{DRAW.number}.{DRAW.hash}", (DRAW,))


@pytest.mark.parametrize("marker", [BARE, BARE._replace(fence=FENCE), BARE._replace(fence=FENCE._replace(lineage=()))])
def test_a_marker_is_read_as_it_was_written(marker: Marker) -> None:
    assert parse_marker(encode_marker(marker)) == marker


def test_a_marker_of_a_version_without_fences_was_never_stamped() -> None:
    assert parse_marker(f'{{"site": "{SITE}", "backend": 3, "incarnation": 1}}'.encode()) == Marker(SITE, 3, 1, None)


def test_a_version_without_fences_finds_what_it_looks_for() -> None:
    held = json.loads(encode_marker(BARE._replace(fence=FENCE)))
    assert (held["site"], held["backend"], held["incarnation"]) == BARE[:3]


def test_the_longest_marker_is_not_too_long() -> None:
    text = encode_marker(BARE._replace(fence=FENCE._replace(lineage=(DRAW,) * LINEAGE_MAX)))
    assert len(text) < MARKER_BYTES_MAX
    assert parse_marker(text).fence is not None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[1]",
        b"{}",
        b"\xff",
        b"[" * 16_000,
        b'{"site": "x", "backend": Infinity, "incarnation": 1}',
        b'{"site": "x", "backend": true, "incarnation": 1}',
        b'{"site": "x", "backend": -1, "incarnation": 1}',
        b'{"site": "x", "backend": 9223372036854775808, "incarnation": 1}',
        b'{"site": "x", "backend": ' + b"9" * 5_000 + b', "incarnation": 1}',
        b'{"site": "x", "backend": 1, "incarnation": 1, "fence": 7}',
        b'{"site": "x", "backend": 1, "incarnation": 1, "fence": {}}',
        encode_marker(BARE._replace(fence=FENCE._replace(nonce="no hex"))),
        encode_marker(BARE._replace(fence=FENCE._replace(lineage=(DRAW,) * (LINEAGE_MAX + 1)))),
        encode_marker(BARE) + b" " * MARKER_BYTES_MAX,
    ],
)
def test_what_is_no_marker_is_told(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a marker"):
        parse_marker(raw)
