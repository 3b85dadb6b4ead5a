"""Headers that a presigned request has as parameters of its query: SDKs write them there, so that whoever is given the
address need not know them, and S3 takes them for headers. Pure.

What would be passed over here would be worse than refused: an ACL that was asked for, metadata that was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.identity.sigv2 import BODY_HEADERS
from gateway.identity.sigv4_parse import has_sigv2_query
from s3api.errors import S3Error
from s3api.format.checksums import HEADERS
from s3api.format.metadata import as_text
from s3api.format.request_target import Target

PREFIX = "x-amz-"
OF_THE_BODY = frozenset({*HEADERS, "x-amz-sdk-checksum-algorithm", "x-amz-content-sha256"})
"""SDKs that sign before there is a body write down the checksum of none; S3 does not look for it in the query."""
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+", re.IGNORECASE | re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def hoisted_headers(target: Target, headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers among the parameters of *target*, under lower-case names; none where it is not presigned. *headers*
    are those that came as headers.

    Raises S3Error InvalidArgument for a parameter that could not have come as a header, one that comes in two
    spellings, and one that says something else than the header of its name."""
    old = has_sigv2_query(target.raw_query)
    if not old and "X-Amz-Signature=" not in target.raw_query:
        return {}
    found: dict[str, str] = {}
    # By their decoded names: an escape changes nothing in what is signed, and so must change nothing here.
    for name, value in target.query.items():
        lower = name.lower()
        if not (name.startswith(PREFIX) or (old and lower in BODY_HEADERS)) or lower in OF_THE_BODY:
            continue
        if not _NAME.fullmatch(name) or _CONTROL.search(value):
            raise S3Error("InvalidArgument", "A parameter stands for a header that cannot be one.", ArgumentName=name)
        text = as_text(value).strip()
        if lower in found or headers.get(lower, text).strip() != text:
            raise S3Error("InvalidArgument", "A header is given more than once.", ArgumentName=name)
        found[lower] = text
    return found
