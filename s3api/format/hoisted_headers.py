"""Headers that a presigned URL contains as query parameters. Pure.

SDKs put them there so that the holder of the URL need not know them, and S3 treats them as headers. Ignoring one would
be worse than rejecting it: it may be an ACL or metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.identity.sigv2 import BODY_HEADERS
from gateway.identity.sigv4_parse import has_sigv2_query
from s3api.errors import S3Error
from s3api.format.checksums import HEADERS
from s3api.format.metadata import as_text
from s3api.format.request_target import RequestTarget

PREFIX = "x-amz-"
NEVER_HOISTED = frozenset({*HEADERS, "x-amz-sdk-checksum-algorithm", "x-amz-content-sha256"})
"""Headers that are not looked for in the query, as in S3. An SDK that signs without a body adds the checksum of an
empty one."""
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+", re.IGNORECASE | re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def hoisted_headers(target: RequestTarget, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers among the query parameters of *target*, under lower-case names; none if the request is not
    presigned. *headers*: the headers of the request.

    Raises S3Error InvalidArgument for a parameter that is no valid header, one that is given in two spellings, and one
    that contradicts the header of its name."""
    old = has_sigv2_query(target.raw_query)
    if not old and "X-Amz-Signature=" not in target.raw_query:
        return {}
    hoisted: dict[str, str] = {}
    # Names are compared decoded: percent-encoding a name does not change what is signed, so it must not matter here.
    for name, value in target.query.items():
        lower = name.lower()
        if not (name.startswith(PREFIX) or (old and lower in BODY_HEADERS)) or lower in NEVER_HOISTED:
            continue
        if not _NAME.fullmatch(name) or _CONTROL.search(value):
            raise S3Error("InvalidArgument", "A query parameter is not valid as a header.", ArgumentName=name)
        text = as_text(value).strip()
        if lower in hoisted or headers.get(lower, text).strip() != text:
            raise S3Error("InvalidArgument", "A header is given more than once.", ArgumentName=name)
        hoisted[lower] = text
    return hoisted
