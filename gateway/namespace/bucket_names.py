"""Validation of bucket names. Pure. Source: the S3 user guide, "General purpose bucket naming rules"."""

from __future__ import annotations

import re

from gateway.errors import InvalidBucketName

# Labels of letters, digits and hyphens between single dots, each beginning and ending in a letter or digit.
_NAME = re.compile(r"(?=.{3,63}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*", re.ASCII)
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+", re.ASCII)
_TAKEN_STARTS = ("xn--", "sthree-", "amzn-s3-demo-")
_TAKEN_ENDS = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")


def check_bucket_name(name: str) -> None:
    """Raise `InvalidBucketName` if *name* is not allowed for a new bucket."""
    if (
        not _NAME.fullmatch(name)
        or _ADDRESS.fullmatch(name)
        or name.startswith(_TAKEN_STARTS)
        or name.endswith(_TAKEN_ENDS)
    ):
        raise InvalidBucketName(name)
