"""AWS's canonical request, string to sign and signing key. Pure.

Source: the S3 API reference, "Authenticating requests (AWS Signature Version 4)". S3 does not normalise paths and
encodes them once. Text from the wire may contain surrogates that stand for bytes which are not UTF-8: the signature
covers those bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hmac import digest
from urllib.parse import quote, unquote_to_bytes

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_SAFE = "-_.~"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._~-]*")
_SPACES = re.compile(r"[ \t\n\r\f\v]+")
_CACHED_CHARS_MOST = 256


def to_bytes(text: str) -> bytes:
    """Return the bytes that arrived over the wire as *text*."""
    return text.encode("utf-8", "surrogateescape")


def encode(text: bytes | str) -> str:
    """Encode as AWS's UriEncode does, slashes included."""
    return quote(text, safe=_SAFE)


def canonical_path(raw_path: str) -> str:
    """Return the path as it is signed: decoded, then encoded by AWS's rules, with slashes kept."""
    if _PLAIN_PATH.fullmatch(raw_path):
        return raw_path
    return quote(unquote_to_bytes(to_bytes(raw_path)), safe="/" + _SAFE)


def canonical_query(raw_query: str) -> str:
    """Return the query as it is signed: decoded, encoded by AWS's rules, sorted by name and value. The caller removes
    the signature of a presigned request."""
    if not raw_query:
        return ""
    pairs = []
    for item in raw_query.split("&"):
        if item:
            name, _, value = item.partition("=")
            pairs.append((_recode(name), _recode(value)))
    pairs.sort()
    return "&".join([f"{name}={value}" for name, value in pairs])


def _recode(text: str) -> str:
    if text.isalnum() and text.isascii():
        return text
    # Only short texts are cached, so the cache is bounded in bytes, too.
    return _recode_short(text) if len(text) <= _CACHED_CHARS_MOST else _recode_any(text)


def _recode_any(text: str) -> str:
    # SDKs send a space as %20 and as +; AWS reads both as a space.
    return encode(unquote_to_bytes(to_bytes(text.replace("+", " "))))


_recode_short = lru_cache(4096)(_recode_any)


def canonical_headers(headers: Mapping[str, str], signed: Iterable[str]) -> str:
    """Return one line for each signed header, with runs of blanks folded, as SDKs do. An absent header counts as
    empty."""
    lines = []
    for name in signed:
        value = headers.get(name, "")
        if has_folded_blanks(value):
            value = _SPACES.sub(" ", value).strip(" ")
        lines.append(f"{name}:{value}\n")
    return "".join(lines)


def has_folded_blanks(value: str) -> bool:
    """Whether a header's value contains blanks that its canonical form does not."""
    return "  " in value or "\t" in value or value[:1] == " " or value[-1:] == " "


def canonical_request(method: str, path: str, query: str, headers: str, signed: str, payload: str) -> str:
    """Return the canonical request. *signed*: the names of the signed headers, joined by semicolons. *payload*: the
    hash of the body, or the text that replaces it."""
    return f"{method}\n{path}\n{query}\n{headers}\n{signed}\n{payload}"


def string_to_sign(amz_date: str, scope: str, request: str) -> str:
    """Return the string to sign for a canonical request."""
    return f"{ALGORITHM}\n{amz_date}\n{scope}\n{hashlib.sha256(to_bytes(request)).hexdigest()}"


@lru_cache(1024)
def signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    """Return the key for one day, region and service. Recent keys are cached; the results of verifications never
    are."""
    key = digest(b"AWS4" + secret.encode(), date.encode(), "sha256")
    for word in (region, service, "aws4_request"):
        key = digest(key, word.encode(), "sha256")
    return key


def sign(key: bytes, text: str) -> str:
    """Return the HMAC-SHA256 of *text*, in hex."""
    keyed = _keyed(key).copy()
    keyed.update(text.encode())
    return keyed.hexdigest()


@lru_cache(1024)
def _keyed(key: bytes) -> hmac.HMAC:
    """Return an HMAC that has processed the key: copying it takes half the time of creating one."""
    return hmac.new(key, digestmod="sha256")
