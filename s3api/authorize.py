"""Authorize requests: decide by bucket policies whether the caller may perform the operation.

The engine evaluates the policies (`gateway.engine.bucket_policies`). This module knows which actions an operation needs
(`permissions`) and which condition keys a request has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from gateway import errors as core
from gateway.engine.types import DocumentKind
from s3api.errors import S3Error
from s3api.format.copy_source import SOURCE as COPY_SOURCE
from s3api.format.copy_source import CopySource, copy_source
from s3api.format.metadata import parse_tagging
from s3api.format.request_target import OBJECT
from s3api.permissions import COPIES, EACH_KEY, PERMISSIONS, PUT_TAGS, SOURCE, SOURCE_TAGS
from s3api.request import S3Request

_HEADER_KEYS = (
    "x-amz-acl", "x-amz-content-sha256", "x-amz-copy-source", "x-amz-metadata-directive",
    "x-amz-server-side-encryption", "x-amz-storage-class",
)  # fmt: skip
_NOT_SIGNED = "Access Denied: the request is not signed"
_LISTINGS = frozenset({"ListObjects", "ListObjectsV2", "ListObjectVersions", "ListMultipartUploads"})
_STORES_TAGS = frozenset({"PutObject", "CopyObject", "CreateMultipartUpload"})


def authorize(request: S3Request) -> None:
    """Check that policies let the caller perform the operation, and set `request.caller` to the caller with what
    they allow.

    A request that no policy mentions is left to the engine, which lets only the bucket's owner and root users
    pass. Raises `AccessDenied`, and what `copy_source` raises."""
    permission = PERMISSIONS.get(request.operation)
    if permission is None:
        if not request.caller.user_id and request.operation not in EACH_KEY:
            raise S3Error("AccessDenied", _NOT_SIGNED)
        return
    actions = ("versionId" in request.query and permission.version_actions) or permission.actions
    source = copy_source(request.headers[COPY_SOURCE]) if request.operation in COPIES else None
    if request.operation in _STORES_TAGS:
        request.stored_tags = _stored_tags(request, source)
        if request.stored_tags:
            actions = (*actions, PUT_TAGS)
    key = request.key if request.target.scope == OBJECT else None
    granted = {request.bucket: _all_granted(request, actions, request.bucket, key, request.query.get("versionId"))}
    if source is not None:
        of_source = _source_granted(request, source)
        granted[source.bucket] = of_source if granted.get(source.bucket, of_source) else 0
    if not request.caller.user_id and not all(granted.values()):
        # Decided here, so that an anonymous client does not learn which buckets exist.
        raise S3Error("AccessDenied", _NOT_SIGNED)
    if any(granted.values()):
        buckets = {bucket: owner for bucket, owner in granted.items() if owner}
        request.caller = request.caller._replace(granted=buckets)


def _stored_tags(request: S3Request, source: CopySource | None) -> Mapping[str, str]:
    """Return the tags that the request stores with an object: those of its header or, for a copy that does not replace
    them, those of the source."""
    if source is None or _replaces_tags(request):
        return parse_tagging(request.headers.get("x-amz-tagging", ""))
    if request.engine.public_document(request.bucket, DocumentKind.POLICY) is None:
        return {}  # nobody is asked
    return request.engine.stored_tags(source.bucket, source.key, source.version)


def _source_granted(request: S3Request, source: CopySource) -> int:
    actions = SOURCE.version_actions if source.version is not None else SOURCE.actions
    if request.operation == "CopyObject" and not _replaces_tags(request):
        actions += SOURCE_TAGS.version_actions if source.version is not None else SOURCE_TAGS.actions
    return _all_granted(request, actions, source.bucket, source.key, source.version)


def conceal(request: S3Request, error: Exception) -> Exception:
    """Return the error for the client. Two kinds of errors would tell too much:

    - A missing key is AccessDenied for a caller who uses the bucket by a policy and may not list it (S3 API reference,
      GetObject, "Permissions").
    - All refusals of anonymous requests are alike, so that they do not tell which buckets exist."""
    if request.caller.granted and isinstance(error, core.NoSuchKey | core.NoSuchVersion | core.DeleteMarker):
        error = _unless_listed(request, error)
    if not request.caller.user_id and isinstance(error, core.AccessDenied):
        return S3Error("AccessDenied", _NOT_SIGNED)
    return error


def _unless_listed(request: S3Request, error: Exception) -> Exception:
    """Return *error* if the caller may list all buckets that are granted, otherwise `AccessDenied`."""
    try:
        if all(_all_granted(request, ("s3:ListBucket",), bucket, None, None) for bucket in request.caller.granted):
            return error
    except core.AccessDenied as denied:
        return denied
    return core.AccessDenied("the caller may not list the bucket")


def key_granted(request: S3Request, action: str, key: bytes, version: str | None) -> int:
    """Return the id of the owner of the request's bucket if its policy grants *action* on one of its keys, otherwise 0,
    as `authorize` decides for the whole request. Raises `AccessDenied`."""
    return _all_granted(request, (action,), request.bucket, key, version)


def _all_granted(
    request: S3Request, actions: Sequence[str], bucket: str, key: bytes | None, version: str | None
) -> int:
    """Return the id of the bucket's owner if its policy grants each of *actions* to a caller who is not the owner,
    otherwise 0. Raises `AccessDenied`."""
    context = RequestContext(request, version)
    granted = request.engine.granted_by_policy
    # Each action is evaluated, since a later one may be denied.
    return min([granted(request.caller, action, bucket, key, version or None, context) for action in actions])


class RequestContext:
    """The values of a request's condition keys. Implements `gateway.access.request.Context`."""

    __slots__ = ("_request", "_version")

    def __init__(self, request: S3Request, version: str | None = None) -> None:
        """*version*: the version id that is asked about; None: the current version."""
        self._request = request
        self._version = version

    def get(self, key: str) -> tuple[str, ...] | None:
        """Return the values of a condition key; None if the request has none."""
        if key.startswith(_TAG_KEYS):
            return self._tags(key)
        if key == "s3:versionid":
            return (self._version,) if self._version else None
        found = _VALUES.get(key)
        value = found(self._request) if found is not None else None
        return None if value is None else (value,)

    def _tags(self, key: str) -> tuple[str, ...] | None:
        tags = self._request.stored_tags
        if key == "s3:requestobjecttagkeys":
            return tuple(tags) or None
        value = tags.get(key.partition("/")[2])
        return None if value is None else (value,)


_TAG_KEYS = "s3:requestobjecttag"


def _time(request: S3Request) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(request.received_ns // 10**9))


def _signature_version(request: S3Request) -> str | None:
    if request.verified is None or not request.verified.access_key:
        return None
    return "AWS4-HMAC-SHA256" if request.verified.scope else "AWS"


def _auth_type(request: S3Request) -> str | None:
    if request.verified is None or not request.verified.access_key:
        return None
    return "REST-QUERY-STRING" if request.verified.presigned else "REST-HEADER"


def _header(name: str) -> Callable[[S3Request], str | None]:
    return lambda request: request.headers.get(name)


def _of_listing(name: str) -> Callable[[S3Request], str | None]:
    return lambda request: request.query.get(name) if request.operation in _LISTINGS else None


_VALUES: dict[str, Callable[[S3Request], str | None]] = {
    "aws:currenttime": _time,
    "aws:epochtime": lambda request: str(request.received_ns // 10**9),
    "aws:principaltype": lambda request: "User" if request.caller.user_id else "Anonymous",
    "aws:referer": _header("referer"),
    "aws:securetransport": lambda request: "true" if request.stream.is_tls else "false",
    "aws:sourceip": lambda request: request.stream.remote,
    "aws:useragent": _header("user-agent"),
    "aws:userid": lambda request: str(request.caller.user_id) if request.caller.user_id else None,
    "aws:username": lambda request: request.caller.user or None,
    "s3:authtype": _auth_type,
    "s3:signatureversion": _signature_version,
    **{f"s3:{name}": _of_listing(name) for name in ("prefix", "delimiter", "max-keys")},
    **{f"s3:{name}": _header(name) for name in _HEADER_KEYS},
}
"""What each condition key is, except those of tags."""


def _replaces_tags(request: S3Request) -> bool:
    return request.headers.get("x-amz-tagging-directive", "").upper() == "REPLACE"
