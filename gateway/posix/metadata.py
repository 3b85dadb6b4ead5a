"""The limits of metadata and tags: what S3 clients can read back, within the limits of S3. Pure.

Source: S3's user guide, "Working with object metadata" and "Categorizing your storage using tags".
"""

from __future__ import annotations

import re

from gateway.engine.types import ObjectMeta
from gateway.errors import InvalidArgument

META = "x-amz-meta-"
"""The prefix of the headers with user metadata."""
CONTENT_HEADERS = frozenset(
    {"cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires"}
)
METADATA_BYTES_MOST = 2 << 10
"""The names and values of user metadata together."""
HEADER_CHARS_MOST = 4 << 10
TAGS_MOST, TAG_NAME_CHARS, TAG_VALUE_CHARS = 10, 128, 256
_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
"""A token of RFC 9110, in lower case."""
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_TAG = re.compile(r"[\w\s+\-=.:/@]*")


def check_meta(meta: ObjectMeta) -> ObjectMeta:
    """Return *meta*. Raises `InvalidArgument` for names and values that no header or tag can hold."""
    size = 0
    for name, value in meta.headers.items():
        short_name = name.removeprefix(META)
        if name not in CONTENT_HEADERS and (short_name == name or not _NAME.fullmatch(short_name)):
            raise InvalidArgument(f"metadata cannot be named {short_name[:100]!r}")
        if _CONTROL.search(value) or len(value) > HEADER_CHARS_MOST:
            raise InvalidArgument(f"the value of {short_name[:100]!r} is too long, or has a control character")
        if short_name != name:
            size += len(short_name) + len(value.encode())
    if size > METADATA_BYTES_MOST:
        raise InvalidArgument(f"metadata of {size} bytes; at most {METADATA_BYTES_MOST}")
    if len(meta.tags) > TAGS_MOST:
        raise InvalidArgument(f"{len(meta.tags)} tags; at most {TAGS_MOST}")
    for name, value in meta.tags.items():
        fits = 0 < len(name) <= TAG_NAME_CHARS and len(value) <= TAG_VALUE_CHARS and not name.startswith("aws:")
        if not (fits and _TAG.fullmatch(name) and _TAG.fullmatch(value)):
            raise InvalidArgument(f"the tag {name[:100]!r} is not a valid tag of S3")
    return meta
