"""The limits of metadata and tags: what S3 clients can read back, within the limits of S3. Pure.

Source: S3's user guide, "Working with object metadata" and "Categorizing your storage using tags".
"""

from __future__ import annotations

import re

from gateway.engine.metadata_rules import (
    CONTENT_HEADERS,
    TAGS_MOST,
    USER_METADATA_BYTES_MOST,
    USER_METADATA_PREFIX,
    is_tag_name,
    is_tag_value,
    user_metadata_bytes,
)
from gateway.engine.types import ObjectMeta
from gateway.errors import InvalidArgument

META = USER_METADATA_PREFIX
HEADER_CHARS_MOST = 4 << 10
_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
"""A token of RFC 9110, in lower case."""
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def check_meta(meta: ObjectMeta) -> ObjectMeta:
    """Return *meta*. Raises `InvalidArgument` for names and values that no header or tag can hold."""
    size = 0
    for name, value in meta.headers.items():
        short_name = name.removeprefix(META)
        if name not in CONTENT_HEADERS and (short_name == name or not _NAME.fullmatch(short_name)):
            raise InvalidArgument(f"metadata cannot be named {short_name[:100]!r}")
        if _CONTROL.search(value) or len(value) > HEADER_CHARS_MOST:
            raise InvalidArgument(f"the value of {short_name[:100]!r} is too long, or has a control character")
        size += user_metadata_bytes(name, value)
    if size > USER_METADATA_BYTES_MOST:
        raise InvalidArgument(f"metadata of {size} bytes; at most {USER_METADATA_BYTES_MOST}")
    if len(meta.tags) > TAGS_MOST:
        raise InvalidArgument(f"{len(meta.tags)} tags; at most {TAGS_MOST}")
    for name, value in meta.tags.items():
        if not (is_tag_name(name) and is_tag_value(value)):
            raise InvalidArgument(f"the tag {name[:100]!r} is not a valid tag of S3")
    return meta
