"""Text form of version ids and upload ids: a `v` and the 16 hex digits of a 64-bit id, or S3's `null`. Pure.

The letter is there because some clients read what looks like a number in XML as one, and hex without letters does:
an id of `0001000000002006` came back as 1000000002006. Ids without it were given out once, and are still understood.
"""

from __future__ import annotations

import re

from gateway.errors import InvalidArgument, NoSuchUpload
from gateway.journal.tables import Versioning

NULL = "null"
"""S3's id of the version that was written while versioning was not enabled."""

_HEX = re.compile(r"v?([0-7][0-9a-f]{15})")
"""Ids have 63 bits, because SQLite's integers are signed."""


def encode_version_id(number: int) -> str:
    return f"v{number:016x}"


def version_id_text(version: int, null: int) -> str:
    """Return the version id that clients use: hex digits, or `null`."""
    return NULL if null else encode_version_id(version)


def s3_version_id(version: int, null: int, versioning: int) -> str | None:
    """Return the version id that S3 sends; None if the bucket never had versioning."""
    return None if null and versioning == Versioning.OFF else version_id_text(version, null)


def parse_version_id(version: str) -> int | None:
    """Return the number of a version id; None for the null version. Raises `InvalidArgument`."""
    if version == NULL:
        return None
    found = _HEX.fullmatch(version)
    if found is None:
        raise InvalidArgument("Invalid version id specified")
    return int(found[1], 16)


def parse_upload_id(upload: str) -> int:
    """Return the number of an upload id. Raises `NoSuchUpload` if *upload* is not a valid id."""
    found = _HEX.fullmatch(upload)
    if found is None:
        raise NoSuchUpload(upload)
    return int(found[1], 16)
