"""The limits of object metadata and tags, which hold for every protocol. Pure.

What one protocol stores, the others must be able to return, so the limits are those of S3. The S3 API and the file API
both check against this module; each raises its own errors.

Source: S3 user guide, "Working with object metadata" and "Categorizing your storage using tags".
"""

from __future__ import annotations

import re

CONTENT_HEADERS = frozenset(
    {"cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires"}
)
"""The headers that are stored with an object besides its user metadata; lower-case names."""
USER_METADATA_PREFIX = "x-amz-meta-"
"""The prefix of the headers that hold user metadata."""
USER_METADATA_BYTES_MOST = 2 << 10
"""The limit of the names (without their prefix) and UTF-8 values of an object's user metadata together."""
TAGS_MOST, TAG_NAME_CHARS, TAG_VALUE_CHARS = 10, 128, 256
"""The limits of an object's tags: their number, and the lengths of a name and of a value."""
_TAG = re.compile(r"[\w\s+\-=.:/@]*")


def user_metadata_bytes(header: str, value: str) -> int:
    """Return how much a header counts against `USER_METADATA_BYTES_MOST`; 0 if it holds no user metadata."""
    if not header.startswith(USER_METADATA_PREFIX):
        return 0
    return len(header) - len(USER_METADATA_PREFIX) + len(value.encode())


def is_tag_name(name: str) -> bool:
    """Return whether *name* may name a tag. Names that begin with `aws:` are reserved."""
    return 0 < len(name) <= TAG_NAME_CHARS and not name.startswith("aws:") and _TAG.fullmatch(name) is not None


def is_tag_value(value: str) -> bool:
    """Return whether *value* may be a tag's value."""
    return len(value) <= TAG_VALUE_CHARS and _TAG.fullmatch(value) is not None
