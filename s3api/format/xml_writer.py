"""Write XML: escaping, and the formats of dates, keys and ETags. Pure."""

from __future__ import annotations

import re
import time
from functools import lru_cache
from urllib.parse import quote_from_bytes

XML_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'

_SPECIAL = re.compile('[&<>"\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]')
_REFERENCES = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    '"': "&quot;",
    "\t": "&#x9;",
    "\n": "&#xa;",
    "\r": "&#xd;",
    "\x7f": "\x7f",
}
REPLACEMENT = "\ufffd"


def _escape_char(match: re.Match[str]) -> str:
    return _REFERENCES.get(match[0], REPLACEMENT)


def _escape_key_char(match: re.Match[str]) -> str:
    char = match[0]
    return _REFERENCES.get(char) or (f"&#x{ord(char):x};" if char < " " else REPLACEMENT)


def escape(text: str) -> str:
    """Escape *text* as XML character data or attribute value. Characters that XML 1.0 cannot represent become
    U+FFFD."""
    return _SPECIAL.sub(_escape_char, text) if _SPECIAL.search(text) else text


def escape_bytes(raw: bytes) -> str:
    """Escape a key as XML character data. Bytes that are not UTF-8 become U+FFFD.

    Control characters become character references, as in S3, so that different keys stay different. XML 1.0 does not
    allow most of these references; a client that lists such keys uses encoding-type=url."""
    text = raw.decode("utf-8", "replace")
    return _SPECIAL.sub(_escape_key_char, text) if _SPECIAL.search(text) else text


def url_encode(raw: bytes) -> str:
    """Encode a key for `encoding-type=url`: all but unreserved characters, `/` and `*` are percent-encoded."""
    return quote_from_bytes(raw, safe="/*")


@lru_cache(maxsize=65536)
def iso_second(second: int) -> str:
    """Format seconds since the epoch as `2009-10-12T17:50:30.000Z`; S3 shows whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(second))


def iso(at_ns: int) -> str:
    """Format nanoseconds since the epoch like `iso_second`."""
    return iso_second(at_ns // 1_000_000_000)


def quoted(etag: str) -> str:
    """Return an ETag for XML, within quotes as in S3."""
    return f"&quot;{etag}&quot;"
