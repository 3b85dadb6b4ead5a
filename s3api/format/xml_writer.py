"""XML out: escaping, and the few spellings that every answer shares. Pure; a listing escapes only what needs it."""

from __future__ import annotations

import re
import time
from functools import lru_cache
from urllib.parse import quote_from_bytes

XML_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'

_SPECIAL = re.compile('[&<>"\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]')
_NAMES = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    '"': "&quot;",
    "\t": "&#x9;",
    "\n": "&#xa;",
    "\r": "&#xd;",
    "\x7f": "\x7f",
}
UNKNOWN = "\ufffd"


def _escape_char(match: re.Match[str]) -> str:
    return _NAMES.get(match[0], UNKNOWN)


def _escape_key_char(match: re.Match[str]) -> str:
    char = match[0]
    return _NAMES.get(char) or (f"&#x{ord(char):x};" if char < " " else UNKNOWN)


def escape(text: str) -> str:
    """*text* as XML character data or attribute value. What XML 1.0 has no name for becomes U+FFFD."""
    return _SPECIAL.sub(_escape_char, text) if _SPECIAL.search(text) else text


def escape_bytes(raw: bytes) -> str:
    """A key as XML character data; bytes that are not UTF-8 become U+FFFD.

    Control characters are written as references, as S3 does, so that two keys never look the same; though XML 1.0 has
    no name for most of them, and who lists such keys asks for encoding-type=url."""
    text = raw.decode("utf-8", "replace")
    return _SPECIAL.sub(_escape_key_char, text) if _SPECIAL.search(text) else text


def url_encode(raw: bytes) -> str:
    """A key under `encoding-type=url`: percent-encoded but for unreserved characters and `/`."""
    return quote_from_bytes(raw, safe="/*")


@lru_cache(maxsize=65536)
def iso_second(second: int) -> str:
    """`2009-10-12T17:50:30.000Z`: S3 shows whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(second))


def iso(at_ns: int) -> str:
    """`iso_second` of nanoseconds since the epoch."""
    return iso_second(at_ns // 1_000_000_000)


def quoted(etag: str) -> str:
    """An ETag with the quotes that S3 puts around it, for XML."""
    return f"&quot;{etag}&quot;"
