"""Version ids and upload ids as text: 16 hex digits of a 64-bit id, or S3's `null`. Pure."""

from __future__ import annotations

import re

from gateway.errors import InvalidArgument, NoSuchUpload
from gateway.journal.tables import Versioning

NULL = "null"
"""What S3 calls the version that was written while versioning was not enabled."""

_HEX = re.compile(r"[0-7][0-9a-f]{15}")
"""Ids have 63 bits: a store's integers have a sign."""


def spell(version: int) -> str:
    return f"{version:016x}"


def shown(version: int, null: int, versioning: int) -> str | None:
    """A version as S3 shows it; None in a bucket that never had versioning."""
    if null:
        return None if versioning == Versioning.OFF else NULL
    return f"{version:016x}"


def parse(version: str) -> int | None:
    """The id of a version; None for the null version. Raises `InvalidArgument`."""
    if version == NULL:
        return None
    if not _HEX.fullmatch(version):
        raise InvalidArgument("Invalid version id specified")
    return int(version, 16)


def parse_upload(upload: str) -> int:
    """The id of an upload. Raises `NoSuchUpload` for what cannot be one."""
    if not _HEX.fullmatch(upload):
        raise NoSuchUpload(upload)
    return int(upload, 16)
