"""Authorize requests: decide by bucket policies whether the caller may perform the operation.

The engine evaluates the policies (`gateway.engine.bucket_policies`). This module knows which actions an operation needs
(`permissions`) and which condition keys a request has.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

from gateway import errors as core
from s3api.errors import S3Error
from s3api.format.copy_source import SOURCE as COPY_SOURCE
from s3api.format.copy_source import CopySource, copy_source
from s3api.format.metadata import parse_tagging
from s3api.format.request_target import OBJECT
from s3api.permissions import COPIES, EACH_KEY, PERMISSIONS, PUT_TAGS, SOURCE, SOURCE_TAGS
from s3api.request import S3Request

_QUERY_KEYS = ("prefix", "delimiter", "max-keys")
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
    versioned = "versionId" in request.query
    actions = (versioned and permission.version_actions) or permission.actions
    if request.operation in _STORES_TAGS and request.headers.get("x-amz-tagging"):
        actions = (*actions, PUT_TAGS)
    key = request.key if request.target.scope == OBJECT else None
    allowed = _all_allowed(request, actions, request.bucket, key, request.query.get("versionId"))
    granted = {request.bucket: allowed}
    if request.operation in COPIES:
        source = copy_source(request.headers[COPY_SOURCE])
        granted[source.bucket] = _source_allowed(request, source) and granted.get(source.bucket, True)
    buckets = frozenset(bucket for bucket, allowed in granted.items() if allowed)
    if not request.caller.user_id and request.bucket not in buckets:
        # Decided here, so that an anonymous client does not learn which buckets exist.
        raise S3Error("AccessDenied", _NOT_SIGNED)
    if buckets:
        request.caller = request.caller._replace(granted=buckets)


def _source_allowed(request: S3Request, source: CopySource) -> bool:
    actions = SOURCE.version_actions if source.version is not None else SOURCE.actions
    if request.operation == "CopyObject" and not _replaces_tags(request):
        actions += SOURCE_TAGS.version_actions if source.version is not None else SOURCE_TAGS.actions
    return _all_allowed(request, actions, source.bucket, source.key, source.version)


def conceal(request: S3Request, error: Exception) -> Exception:
    """Return the error for the client: AccessDenied in the place of one that reveals that a key does not exist, to
    a caller who has the use of the bucket by a policy and may not list it (S3 API reference, GetObject,
    "Permissions")."""
    granted = request.caller.granted
    if not granted or not isinstance(error, core.NoSuchKey | core.NoSuchVersion | core.DeleteMarker):
        return error
    try:
        if all(_all_allowed(request, ("s3:ListBucket",), bucket, None, None) for bucket in granted):
            return error
    except core.AccessDenied as denied:
        return denied
    return core.AccessDenied("the caller may not list the bucket")


def key_allowed(request: S3Request, action: str, key: bytes, version: str | None) -> bool:
    """Whether the policy of the request's bucket allows *action* on one of its keys, as `authorize` decides for the
    whole request. Raises `AccessDenied`."""
    return _all_allowed(request, (action,), request.bucket, key, version)


def _all_allowed(
    request: S3Request, actions: Sequence[str], bucket: str, key: bytes | None, version: str | None
) -> bool:
    """Whether the bucket's policy allows each of *actions* to a caller who does not own it. Raises
    `AccessDenied`."""
    context = partial(_context, request)
    allows = request.engine.policy_allows
    # Each action is evaluated, since a later one may be denied.
    allowed = [allows(request.caller, action, bucket, key, version or None, context) for action in actions]
    return all(allowed)


def _context(request: S3Request) -> Mapping[str, tuple[str, ...]]:
    """Return the values of the request's condition keys."""
    at = request.received_ns // 10**9
    caller, headers, query, verified = request.caller, request.headers, request.query, request.verified
    values = {
        "aws:currenttime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)),
        "aws:epochtime": str(at),
        "aws:principaltype": "User" if caller.user_id else "Anonymous",
        "aws:securetransport": "true" if request.stream.is_tls else "false",
        "aws:sourceip": request.stream.remote,
    }
    if caller.user_id:
        values |= {"aws:username": caller.user, "aws:userid": str(caller.user_id)}
    if verified is not None and verified.access_key:
        values["s3:signatureversion"] = "AWS4-HMAC-SHA256" if verified.scope else "AWS"
        values["s3:authtype"] = "REST-QUERY-STRING" if verified.presigned else "REST-HEADER"
    for name, header in (("aws:useragent", "user-agent"), ("aws:referer", "referer")):
        if header in headers:
            values[name] = headers[header]
    if request.operation in _LISTINGS:
        values |= {f"s3:{name}": query[name] for name in _QUERY_KEYS if name in query}
    values |= {f"s3:{name}": headers[name] for name in _HEADER_KEYS if name in headers}
    if query.get("versionId"):
        values["s3:versionid"] = query["versionId"]
    context: dict[str, tuple[str, ...]] = {name: (value,) for name, value in values.items()}
    if request.operation in _STORES_TAGS and headers.get("x-amz-tagging"):
        tags = parse_tagging(headers["x-amz-tagging"])
        context["s3:requestobjecttagkeys"] = tuple(tags)
        context |= {f"s3:requestobjecttag/{name}": (value,) for name, value in tags.items()}
    return context


def _replaces_tags(request: S3Request) -> bool:
    return request.headers.get("x-amz-tagging-directive", "").upper() == "REPLACE"
