"""The marker of an S3 backend: a small JSON object in the control folder, replaced on a condition.

The first write says If-None-Match, a later one If-Match, so of two that claim at once a server that heeds conditions
lets one through and tells the other, which then judges the winner's marker. Whether it heeds them is found out by
saying the same write again: its condition no longer holds, so it must be refused. If it is not, the server heeds none
(some clones of S3); then we wait until whoever read before our write has written too, and read who came last. That
is a convention among claimants that take less than `settle_seconds` between reading and writing, and no proof.
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
    """Whose place this is; None while nobody claimed it. Raises `OwnedByAnotherSite` if what stands there is no
    marker."""
    return (await _read(control))[0]


async def write_claim(control: ControlClient, wanted: Marker, settle_seconds: float) -> None:
    """Put *wanted* there if `check_claim` allows it. One that was written, but whose answer was lost, is found by the
    next call's reading."""
    value = encode_marker(wanted)
    for _ in range(_ROUNDS):
        held, etag = await _read(control)
        if is_claimed(held, wanted):
            return
        reason = check_claim(held, wanted)
        if reason is not None:
            raise errors.OwnedByAnotherSite(f"{control.where}: {reason}", backend=control.where.name)
        if not await control.write_own(MARKER, value, replacing=etag):
            continue  # somebody was faster
        if not await control.write_own(MARKER, value, replacing=etag):
            continue  # conditions are heeded, so ours it is, unless somebody took it over since
        await asyncio.sleep(settle_seconds)
    raise errors.Unavailable(f"{control.where}: others claim it all the time", backend=control.where.name)


async def _read(control: ControlClient) -> tuple[Marker | None, str | None]:
    found = await control.read_own(MARKER, MARKER_BYTES_MAX + 1)
    if found is None:
        return None, None
    raw, etag = found
    try:
        return parse_marker(raw), etag
    except ValueError as error:
        message = f"{control.where}: {MARKER!r} in its control folder is no marker; see whose bucket this is"
        raise errors.OwnedByAnotherSite(message, backend=control.where.name) from error
