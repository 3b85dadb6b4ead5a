"""Parse the sizes, bandwidths and addresses of a config. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,19}) ?(|B|KiB|MiB|GiB|TiB)")
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z._-]+)):([0-9]{1,5})")
_BANDWIDTH = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?(kbit|Mbit|Gbit|Tbit|kB|MB|GB|TB|KiB|MiB|GiB|TiB)/s")
_BANDWIDTHS = {"kbit": 125.0, "Mbit": 125e3, "Gbit": 125e6, "Tbit": 125e9, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
PORT_MAX = 65_535
SIZE_MAX = (1 << 63) - 1
BANDWIDTH_MAX = 1e15
"""Bytes per second."""


class Address(NamedTuple):
    """The address on which a server listens. Port 0: any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_size(written: Any) -> int:
    """Return the bytes of a size, which is a text such as `"64 MiB"` or a number. Raises `ValueError`."""
    found = _SIZE.fullmatch(written) if isinstance(written, str) else None
    size = -1
    if found is not None:
        size = int(found[1]) * _UNITS[found[2]]
    elif isinstance(written, int) and not isinstance(written, bool):
        size = written
    if not 0 <= size <= SIZE_MAX:
        raise ValueError('a size is a number of bytes or like "64 MiB" (KiB, MiB, GiB, TiB), below 8 EiB')
    return size


def parse_bandwidth(written: Any) -> float:
    """Return the bytes per second of `"10 Gbit/s"`, `"50 MB/s"` or a number. Raises `ValueError`."""
    found = _BANDWIDTH.fullmatch(written) if isinstance(written, str) else None
    bandwidth = 0.0
    if found is not None:
        bandwidth = float(found[1]) * (_BANDWIDTHS.get(found[2]) or _UNITS[found[2]])
    elif isinstance(written, (int, float)) and not isinstance(written, bool) and written < BANDWIDTH_MAX:
        bandwidth = float(written)
    if not 1 <= bandwidth < BANDWIDTH_MAX:
        raise ValueError(
            'a bandwidth is a number of bytes per second, or like "10 Gbit/s" or "50 MB/s"; at least 1 byte per second'
        )
    return bandwidth


def parse_address(written: Any) -> Address:
    """Parse `HOST:PORT` or `[IPv6]:PORT`. Raises `ValueError`."""
    if isinstance(written, Address):
        return written
    found = _ADDRESS.fullmatch(written) if isinstance(written, str) else None
    if found is None or int(found[3]) > PORT_MAX:
        raise ValueError('an address is HOST:PORT, like "127.0.0.1:9000" or "[::1]:9000"')
    return Address(found[1] or found[2], int(found[3]))


_SIZE_SCHEMA = [{"type": "string", "pattern": f"^{_SIZE.pattern}$"}, {"type": "integer", "minimum": 0}]
_BANDWIDTH_SCHEMA = [
    {"type": "string", "pattern": f"^{_BANDWIDTH.pattern}$"},
    {"type": "number", "minimum": 1, "exclusiveMaximum": BANDWIDTH_MAX},
]

Size = Annotated[int, BeforeValidator(parse_size), WithJsonSchema({"anyOf": _SIZE_SCHEMA})]
"""Bytes: a text such as `"64 MiB"`, or a number."""

Bandwidth = Annotated[float, BeforeValidator(parse_bandwidth), WithJsonSchema({"anyOf": _BANDWIDTH_SCHEMA})]
"""Bytes per second: a text such as `"10 Gbit/s"` or `"50 MB/s"`, or a number."""

Listen = Annotated[
    Address, BeforeValidator(parse_address), PlainSerializer(str), WithJsonSchema({"type": "string"}, mode="validation")
]
"""An address: `"HOST:PORT"`."""
