"""Presigned addresses of AWS Signature Version 2, which some SDKs still write. Pure; the secret comes at the end.

Sources: the S3 developer guide, "Signing and authenticating REST requests" (its section on query strings); the list of
what is signed is botocore's. Version 2 leaves most parameters unsigned: a request that has one of those is refused,
for whoever holds an address could have added it. Version 2 in the Authorization header is not read at all.
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
"""The parameters that are part of the signed resource."""
BODY_HEADERS = frozenset({"content-md5", "content-type"})
"""Signed, and written into the query by SDKs, as x-amz- headers are."""
_OWN = frozenset({"AWSAccessKeyId", "Expires", "Signature"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HEADER = re.compile(r"x-amz-[!#$%&'*+\-.^_`|~0-9a-z]+")


class ParsedSigV2(NamedTuple):
    """What an address says, and what must have been signed for it."""

    access_key: str
    signature: str
    to_sign: str
    content: str
    """What x-amz-content-sha256 says, or what stands for it."""


def parse(request: SignedRequest, now: float) -> ParsedSigV2:
    """What *request* asks for at *now*, seconds since 1970; its headers may stand in its query or come as headers.

    Raises a `SignatureError` unless it is whole and in time."""
    own, resource, headers = _sorted_out(request.raw_query)
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


def _sorted_out(raw_query: str) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """The parameters, decoded as the operations decode them: the signature's own, those of the resource as they are
    signed, and those that stand for headers.

    Raises for any other parameter, for a name that comes twice, and for a value with which the signed text could be
    read in two ways: one with a line end, or with `&` before the name of another parameter of the resource."""
    own: dict[str, str] = {}
    resource: dict[str, str] = {}
    headers: dict[str, str] = {}
    for item in filter(None, raw_query.split("&")):
        raw_name, equals, raw_value = item.partition("=")
        name, value = _decoded(raw_name), _decoded(raw_value)
        if name in _OWN:
            place, said = own, value
        elif name in SIGNED_PARAMETERS:
            _check_resource(name, value)
            place, said = resource, f"{name}{equals}{value}"
        else:
            place, name, said = headers, _header_name(name), value.strip()
        if name in place:
            raise InvalidArgumentError("A parameter is given more than once.", ArgumentName=name)
        if _CONTROL.search(value):
            raise InvalidArgumentError("A parameter holds a control character.", ArgumentName=name)
        place[name] = said
    return own, resource, headers


def _check_resource(name: str, value: str) -> None:
    """Raise `InvalidArgumentError` where the signed resource could be read in two ways.

    Its parameters are signed decoded and joined by `&`: `tagging=a&uploadId=b` may be two parameters, or one whose
    value holds an `&`. A piece of a value that begins with no known name can only be part of the value."""
    if "&" in value and any(piece.partition("=")[0] in SIGNED_PARAMETERS for piece in value.split("&")[1:]):
        raise InvalidArgumentError(
            "The value of a parameter reads like a further parameter, from which Signature Version 2 cannot tell it. "
            "Please use AWS4-HMAC-SHA256.",
            ArgumentName=name,
        )


def _decoded(text: str) -> str:
    return unquote_plus(text, errors="surrogateescape")


def sign(secret: str, to_sign: str) -> str:
    """The signature of *to_sign*: base64 of an HMAC with SHA-1."""
    return b64encode(digest(secret.encode(), to_bytes(to_sign), "sha1")).decode()


def _header_name(name: str) -> str:
    """The header that a parameter stands for; raises for one that version 2 does not sign."""
    lower = name.lower()
    # Version 4 writes its own parameters X-Amz-: the two are never mixed.
    if name.isascii() and (lower in BODY_HEADERS or (name.startswith("x-amz-") and _HEADER.fullmatch(lower))):
        return lower
    raise AccessDeniedError(
        "There were parameters present in the request which Signature Version 2 does not sign. "
        "Please use AWS4-HMAC-SHA256.",
        ParametersNotSigned=name,
    )


def _check_time(own: dict[str, str], now: float) -> None:
    """Expires is a moment, not a length of time, and there is no latest one."""
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
    """The path as it was sent, behind the bucket that the host named. A bucket alone is signed with a slash."""
    path = f"/{request.virtual_bucket}{request.raw_path}" if request.virtual_bucket else request.raw_path
    return path if "/" in path[1:] or path == "/" else path + "/"
