"""The format of a marker, the same for every driver: one JSON object. Pure.

`{"site": …, "backend": …, "incarnation": …}`, with `"fence": {…}` once a committer has stamped the backend. A reader
that knows no fences ignores that key; a marker without it was never stamped.
"""

from __future__ import annotations

import json
import re
from typing import Any

from backends.base import LINEAGE_MAX, Fence, IssuedToken, Marker

MARKER_BYTES_MAX = 16 << 10
"""A longer text is not a marker."""
_INTEGER_MAX = (1 << 63) - 1
_HEX = re.compile(r"[0-9a-f]{1,128}")
_SITE = re.compile(r"[0-9a-f]{32}")
_KEY = re.compile(r"[0-9a-f.]{0,400}")


def encode_marker(marker: Marker) -> bytes:
    """Return *marker* as it is stored."""
    fields: dict[str, Any] = {"site": marker.site, "backend": marker.backend, "incarnation": marker.incarnation}
    if marker.fence is not None:
        fields["fence"] = marker.fence._asdict()
    return json.dumps(fields).encode()


def parse_marker(raw: bytes) -> Marker:
    """Return the marker that *raw* encodes. Raises `ValueError` where it is none: too long, no JSON, or a field that is
    missing, of another type or out of range."""
    if len(raw) > MARKER_BYTES_MAX:
        raise ValueError(f"{len(raw)} bytes are not a marker")
    try:
        fields = json.loads(raw)
        fence = fields.get("fence")
        return Marker(
            _site(fields["site"]),
            _integer(fields["backend"]),
            _integer(fields["incarnation"]),
            None if fence is None else _fence(fence),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a marker: {type(error).__name__}: {error}") from error


def _fence(fields: dict[str, Any]) -> Fence:
    lineage = tuple(IssuedToken(_integer(c), _hex(n), _integer(at), _hex(h)) for c, n, at, h in fields["lineage"])
    if len(lineage) > LINEAGE_MAX:
        raise ValueError(f"a lineage of {len(lineage)} tokens")
    return Fence(
        _integer(fields["counter"]),
        _hex(fields["nonce"]),
        _integer(fields["number"]),
        _hex(fields["hash"]),
        _integer(fields["at_ns"]),
        _key(fields["replaces"]),
        lineage,
    )


def _site(value: Any) -> str:
    if not isinstance(value, str) or _SITE.fullmatch(value) is None:
        raise ValueError("the id of a site must have 32 hex digits")
    return value


def _key(value: Any) -> str:
    if not isinstance(value, str) or _KEY.fullmatch(value) is None:
        raise ValueError("`replaces` is not the key of a fence")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _INTEGER_MAX:
        raise ValueError("a field is not a whole number in range")  # not quoted: the value may be of any length
    return value


def _hex(value: Any) -> str:
    if not isinstance(value, str) or _HEX.fullmatch(value) is None:
        raise ValueError("a field is not a string of hex digits")
    return value
