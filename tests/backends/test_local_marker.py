"""The marker of a local backend that is corrupted or hostile: it is rejected, and read only up to a limit."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from backends import errors
from backends.base import Marker
from backends.marker_format import MARKER_BYTES_MAX, encode_marker, parse_marker
from tests.backends.contract import SITE
from tests.backends.opening import opened

GOOD = {"site": SITE, "backend": 3, "incarnation": 1}
NO_MARKERS = {
    "empty": b"",
    "no object": b"[1]",
    "a null": b"null",
    "no text": b"\xff\xfe\xfd",
    "no fields": b"{}",
    "infinity": json.dumps(GOOD | {"incarnation": float("inf")}).encode(),
    "not a number": json.dumps(GOOD | {"backend": float("nan")}).encode(),
    "an overflow": json.dumps(GOOD).replace("3", "1e999").encode(),
    "a fraction": json.dumps(GOOD | {"backend": 3.0}).encode(),
    "a boolean": json.dumps(GOOD | {"incarnation": True}).encode(),
    "a text": json.dumps(GOOD | {"incarnation": "1"}).encode(),
    "a list": json.dumps(GOOD | {"incarnation": [1]}).encode(),
    "below zero": json.dumps(GOOD | {"incarnation": -1}).encode(),
    "more than SQLite holds": json.dumps(GOOD | {"incarnation": 1 << 64}).encode(),
    "more digits than Python reads": json.dumps(GOOD).replace("3", "9" * 4_000).encode(),
    "a site that is none": json.dumps(GOOD | {"site": "\x1b[31m"}).encode(),
    "a site that is a number": json.dumps(GOOD | {"site": 5}).encode(),
    "deep lists": b"[" * MARKER_BYTES_MAX,
    "deep objects": b'{"a":' * (MARKER_BYTES_MAX // 5),
    "too long": json.dumps(GOOD | {"more": "x" * MARKER_BYTES_MAX}).encode(),
}


@pytest.mark.parametrize("raw", NO_MARKERS.values(), ids=NO_MARKERS)
def test_what_is_no_marker_is_told_and_raises_nothing_else(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_marker(raw)
    assert len(str(caught.value)) < 200


def test_a_marker_comes_back_and_fields_of_a_later_version_are_ignored() -> None:
    marker = Marker(SITE, 3, (1 << 63) - 1)
    assert parse_marker(encode_marker(marker)) == marker
    later = json.loads(encode_marker(marker)) | {"of a later version": {"deep": [1, 2.5, None]}}
    assert parse_marker(json.dumps(later).encode()) == marker


@pytest.mark.parametrize("raw", NO_MARKERS.values(), ids=NO_MARKERS)
async def test_a_folder_whose_marker_is_none_is_foreign(folder: Path, raw: bytes) -> None:
    async with opened(folder, warm=False) as backend:
        (folder / ".entrepot" / "marker").write_bytes(raw)
        for call in (backend.marker(), backend.claim(Marker(SITE, 3, 1))):
            with pytest.raises(errors.OwnedByAnotherSite, match="is no marker"):
                await call


async def test_a_huge_file_a_fifo_and_a_device_in_the_markers_place_are_foreign_and_hold_nobody_up(
    folder: Path,
) -> None:
    """A terabyte that was never written takes no room, and reading it would."""
    async with opened(folder, warm=False) as backend:
        marker = folder / ".entrepot" / "marker"
        marker.touch()
        os.truncate(marker, 1 << 40)
        with pytest.raises(errors.OwnedByAnotherSite, match="is no marker"):
            await backend.marker()
        marker.unlink()
        os.mkfifo(marker)
        with pytest.raises(errors.OwnedByAnotherSite, match="is no marker"):
            await backend.marker()
        marker.unlink()
        marker.symlink_to("/dev/zero")
        with pytest.raises(errors.OwnedByAnotherSite, match="is no marker"):
            await backend.marker()
