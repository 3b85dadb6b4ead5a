"""The marker's text, as every driver stores it: one JSON object. Pure.

`{"site": …, "backend": …, "incarnation": …}`, and with `"fence": {…}` once a committer has stamped the place. A reader
that knows no fences passes over that key; a marker without it was never stamped.
"""

from __future__ import annotations

import json
import re
from typing import Any

from backends.base import LINEAGE_MAX, Fence, IssuedToken, Marker

MARKER_BYTES_MAX = 16 << 10
"""A marker is never longer; what is longer is something else."""
_INTEGER_MAX = (1 << 63) - 1
_HEX = re.compile(r"[0-9a-f]{1,128}")
_SITE = re.compile(r"[0-9a-f]{32}")
_KEY = re.compile(r"[0-9a-f.]{0,400}")


def marker_text(marker: Marker) -> bytes:
    """*marker* as it is stored."""
    told: dict[str, Any] = {"site": marker.site, "backend": marker.backend, "incarnation": marker.incarnation}
    if marker.fence is not None:
        told["fence"] = marker.fence._asdict()
    return json.dumps(told).encode()


def parse_marker(raw: bytes) -> Marker:
    """The marker that *raw* spells. Raises `ValueError` where it spells none: too long, no JSON, a field missing, of
    another type or out of range."""
    if len(raw) > MARKER_BYTES_MAX:
        raise ValueError(f"{len(raw)} bytes are no marker")
    try:
        told = json.loads(raw)
        fence = told.get("fence")
        return Marker(
            _site(told["site"]),
            _integer(told["backend"]),
            _integer(told["incarnation"]),
            None if fence is None else _fence(fence),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no marker: {type(error).__name__}: {error}") from error


def _fence(told: dict[str, Any]) -> Fence:
    lineage = tuple(IssuedToken(_integer(c), _hex(n), _integer(at), _hex(h)) for c, n, at, h in told["lineage"])
    if len(lineage) > LINEAGE_MAX:
        raise ValueError(f"a lineage of {len(lineage)} tokens")
    return Fence(
        _integer(told["counter"]),
        _hex(told["nonce"]),
        _integer(told["number"]),
        _hex(told["hash"]),
        _integer(told["at_ns"]),
        _key(told["replaces"]),
        lineage,
    )


def _site(value: Any) -> str:
    if not isinstance(value, str) or _SITE.fullmatch(value) is None:
        raise ValueError("the id of a site has 32 hex digits")
    return value


def _key(value: Any) -> str:
    if not isinstance(value, str) or _KEY.fullmatch(value) is None:
        raise ValueError("the key of a fence is missing")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _INTEGER_MAX:
        raise ValueError("there is no whole number where one belongs")  # the value may be of any length
    return value


def _hex(value: Any) -> str:
    if not isinstance(value, str) or _HEX.fullmatch(value) is None:
        raise ValueError("hex digits are missing")
    return value
