"""The marker of an S3 backend: a small JSON object in the control folder, replaced by conditional writes.

The first write has If-None-Match, a later one If-Match. So of two concurrent claims, a server that supports conditions
accepts one; the other is refused, reads the winner's marker, and is judged by it. Whether the server supports
conditions shows when the same write is sent again: its condition no longer holds, so it must be refused. If it is
not, the server ignores conditions (some clones of S3). Then the claimant waits until every other one that read before
this write has written too, and reads which marker came last. That is a convention among claimants that take less than
`settle_seconds` between reading and writing, and no proof.
"""

from __future__ import annotations

import asyncio

from backends import errors
from backends.base import Marker, check_claim, is_claimed
from backends.marker_format import MARKER_BYTES_MAX, encode_marker, parse_marker
from backends.s3.control import ControlClient

MARKER = "marker"
_ROUNDS = 20


async def read_marker(control: ControlClient) -> Marker | None:
    """Return the marker; None before the first claim. Raises `OwnedByAnotherSite` if the object is no marker."""
    return (await _read(control))[0]


async def write_claim(control: ControlClient, wanted: Marker, settle_seconds: float) -> None:
    """Write the marker *wanted* if `check_claim` allows it. A repeated call finds a marker that was written although
    its response was lost."""
    value = encode_marker(wanted)
    for _ in range(_ROUNDS):
        held, etag = await _read(control)
        if is_claimed(held, wanted):
            return
        reason = check_claim(held, wanted)
        if reason is not None:
            raise errors.OwnedByAnotherSite(f"{control.location}: {reason}", backend=control.location.name)
        if not await control.write_control_object(MARKER, value, replacing=etag):
            continue  # another claim was faster
        if not await control.write_control_object(MARKER, value, replacing=etag):
            continue  # conditions are supported, so the first write succeeded; the next round confirms it
        await asyncio.sleep(settle_seconds)
    raise errors.Unavailable(
        f"{control.location}: other claims keep overtaking this one", backend=control.location.name
    )


async def _read(control: ControlClient) -> tuple[Marker | None, str | None]:
    stored = await control.read_control_object(MARKER, MARKER_BYTES_MAX + 1)
    if stored is None:
        return None, None
    raw, etag = stored
    try:
        return parse_marker(raw), etag
    except ValueError as error:
        message = f"{control.location}: {MARKER!r} in its control folder is no marker; find out whose bucket this is"
        raise errors.OwnedByAnotherSite(message, backend=control.location.name) from error
