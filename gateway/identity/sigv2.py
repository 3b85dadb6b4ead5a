"""Presigned URLs of AWS Signature Version 2, which some SDKs still produce. Pure: `sign` alone needs the secret.

Sources: the S3 developer guide, "Signing and authenticating REST requests" (its section on query strings); the list of
signed parameters is botocore's. Version 2 leaves most parameters unsigned. A request with an unsigned parameter is
refused, since anyone with the URL could have added it. Version 2 in the Authorization header is not supported.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hmac import digest
from time import gmtime, strftime
from typing import NamedTuple
from urllib.parse import unquote_plus

from gateway.identity.canonical import UNSIGNED_PAYLOAD, to_bytes
from gateway.identity.signature_errors import AccessDeniedError, InvalidArgumentError, InvalidToken
from gateway.identity.sigv4_parse import SignedRequest

SIGNED_PARAMETERS = frozenset(
    {
        "accelerate", "acl", "analytics", "cors", "defaultObjectAcl", "delete", "inventory", "lifecycle", "location",
        "logging", "metrics", "notification", "object-lock", "partNumber", "policy", "replication", "requestPayment",
        "response-cache-control", "response-content-disposition", "response-content-encoding",
        "response-content-language", "response-content-type", "response-expires", "restore", "select", "select-type",
        "storageClass", "tagging", "torrent", "uploadId", "uploads", "versionId", "versioning", "versions", "website",
    }
)  # fmt: skip
"""The parameters that belong to the signed resource."""
BODY_HEADERS = frozenset({"content-md5", "content-type"})
"""Signed headers that SDKs may write into the query, as they do with x-amz- headers."""
_OWN = frozenset({"AWSAccessKeyId", "Expires", "Signature"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HEADER = re.compile(r"x-amz-[!#$%&'*+\-.^_`|~0-9a-z]+")


class ParsedSigV2(NamedTuple):
    """The contents of a presigned URL, and the string that its signature must match."""

    access_key: str
    signature: str
    string_to_sign: str
    content_sha256: str
    """The value of x-amz-content-sha256, or its default."""


def parse(request: SignedRequest, now: float) -> ParsedSigV2:
    """Parse a presigned request. *now*: seconds since 1970. Headers may be in the query or in the request's head.

    Raises a `SignatureError` unless the request is complete and has not expired."""
    own, resource, headers = _split_query(request.raw_query)
    _check_time(own, now)
    for name, sent in request.headers.items():
        if name in BODY_HEADERS or name.startswith("x-amz-"):
            value = sent.strip()
            if headers.setdefault(name, value) != value:
                raise InvalidArgumentError("A header and a parameter of the same name differ.", ArgumentName=name)
    if "x-amz-security-token" in headers:
        raise InvalidToken("The provided token is malformed or otherwise invalid.")
    lines = [request.method, headers.pop("content-md5", ""), headers.pop("content-type", ""), own["Expires"]]
    lines += [f"{name}:{headers[name]}" for name in sorted(headers)]
    signed = "&".join([resource[name] for name in sorted(resource)])
    lines.append(f"{_path(request)}?{signed}" if signed else _path(request))
    content = headers.get("x-amz-content-sha256", UNSIGNED_PAYLOAD)
    return ParsedSigV2(own["AWSAccessKeyId"], own["Signature"], "\n".join(lines), content)


def _split_query(raw_query: str) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the decoded parameters: those of the signature, those of the resource as they are signed, and those that
    stand for headers. They are decoded as the operations decode them.

    Raises for any other parameter, for a repeated name, and for a value that makes the string to sign ambiguous: one
    with a control character, or with `&` before the name of another parameter of the resource."""
    own: dict[str, str] = {}
    resource: dict[str, str] = {}
    headers: dict[str, str] = {}
    for item in filter(None, raw_query.split("&")):
        raw_name, equals, raw_value = item.partition("=")
        name, value = _decoded(raw_name), _decoded(raw_value)
        if name in _OWN:
            group, signed = own, value
        elif name in SIGNED_PARAMETERS:
            _check_resource(name, value)
            group, signed = resource, f"{name}{equals}{value}"
        else:
            group, name, signed = headers, _header_name(name), value.strip()
        if name in group:
            raise InvalidArgumentError("A parameter is given more than once.", ArgumentName=name)
        if _CONTROL.search(value):
            raise InvalidArgumentError("A parameter holds a control character.", ArgumentName=name)
        group[name] = signed
    return own, resource, headers


def _check_resource(name: str, value: str) -> None:
    """Raise `InvalidArgumentError` if the signed resource could be read in two ways.

    Its parameters are signed decoded and joined by `&`: `tagging=a&uploadId=b` may be two parameters, or one whose
    value contains an `&`. A piece of a value that does not begin with a known name can only be part of the value."""
    if "&" in value and any(piece.partition("=")[0] in SIGNED_PARAMETERS for piece in value.split("&")[1:]):
        raise InvalidArgumentError(
            "The value of a parameter reads like a further parameter, from which Signature Version 2 cannot tell it. "
            "Please use AWS4-HMAC-SHA256.",
            ArgumentName=name,
        )


def _decoded(text: str) -> str:
    return unquote_plus(text, errors="surrogateescape")


def sign(secret: str, string_to_sign: str) -> str:
    """Return the signature: base64 of an HMAC with SHA-1."""
    return b64encode(digest(secret.encode(), to_bytes(string_to_sign), "sha1")).decode()


def _header_name(name: str) -> str:
    """Return the name of the header that a parameter stands for. Raises for a parameter that version 2 does not
    sign."""
    lower = name.lower()
    # Parameters of version 4 begin with X-Amz-, so the two are never mixed up.
    if name.isascii() and (lower in BODY_HEADERS or (name.startswith("x-amz-") and _HEADER.fullmatch(lower))):
        return lower
    raise AccessDeniedError(
        "There were parameters present in the request which Signature Version 2 does not sign. "
        "Please use AWS4-HMAC-SHA256.",
        ParametersNotSigned=name,
    )


def _check_time(own: dict[str, str], now: float) -> None:
    """Raise if the URL has expired. `Expires` is a time, not a duration, and is not limited."""
    if len(own) != len(_OWN):
        raise AccessDeniedError(
            "Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters"
        )
    expires = own["Expires"]
    if not (expires.isascii() and expires.isdigit() and len(expires) <= 10):
        raise AccessDeniedError(f"Invalid date (should be seconds since epoch): {expires[:20]}")
    if int(expires) < now:
        raise AccessDeniedError("Request has expired", Expires=_iso(int(expires)), ServerTime=_iso(now))


def _iso(at: float) -> str:
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(at))


def _path(request: SignedRequest) -> str:
    """Return the path as it was sent, after the bucket if the host named that. A bucket alone is signed with a
    slash."""
    path = f"/{request.virtual_bucket}{request.raw_path}" if request.virtual_bucket else request.raw_path
    return path if "/" in path[1:] or path == "/" else path + "/"
