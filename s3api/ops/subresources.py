"""Sub-resources that cannot be changed here. They have S3's defaults for a new bucket and its objects.

Each of these defaults is true of this system: only the owner has access, nothing is public, blocks are sealed.
"""

from __future__ import annotations

from s3api.errors import S3Error
from s3api.format.owners import Owners, owner_id
from s3api.format.unsupported import check_encryption
from s3api.format.xml_reader import Element, parse_xml, read_xml
from s3api.format.xml_writer import XML_HEAD, XMLNS
from s3api.http.bodies import read_body, read_xml_body
from s3api.request import Operation, S3Request
from s3api.response import Response, xml_response

_XSI = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'

ABSENT = {
    "lifecycle": "NoSuchLifecycleConfiguration",
    "object-lock": "ObjectLockConfigurationNotFoundError",
    "replication": "ReplicationConfigurationNotFoundError",
    "website": "NoSuchWebsiteConfiguration",
}
"""Sub-resources that a new bucket does not have, and S3's error codes for their absence."""

FIXED = {
    "accelerate": ("AccelerateConfiguration", ""),
    "logging": ("BucketLoggingStatus", ""),
    "notification": ("NotificationConfiguration", ""),
    "ownershipControls": (
        "OwnershipControls",
        "<Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule>",
    ),
    "requestPayment": ("RequestPaymentConfiguration", "<Payer>BucketOwner</Payer>"),
}
"""Sub-resources that every bucket has: the name and the content of the document."""

LISTS = {
    "analytics": "ListBucketAnalyticsConfigurationResult",
    "intelligent-tiering": "ListBucketIntelligentTieringConfigurationsOutput",
    "inventory": "ListInventoryConfigurationsResult",
    "metrics": "ListMetricsConfigurationsResult",
}
"""Kinds of configurations that can be listed, of which a bucket has none: the name of the list's document."""

REMOVABLE = ("encryption", "lifecycle", "replication", "website")
"""Sub-resources whose removal succeeds although the bucket does not have them, as in S3."""

OPERATION = {
    "accelerate": "BucketAccelerateConfiguration",
    "analytics": "BucketAnalyticsConfiguration",
    "encryption": "BucketEncryption",
    "intelligent-tiering": "BucketIntelligentTieringConfiguration",
    "inventory": "BucketInventoryConfiguration",
    "lifecycle": "BucketLifecycleConfiguration",
    "logging": "BucketLogging",
    "metrics": "BucketMetricsConfiguration",
    "notification": "BucketNotificationConfiguration",
    "object-lock": "ObjectLockConfiguration",
    "ownershipControls": "BucketOwnershipControls",
    "replication": "BucketReplication",
    "requestPayment": "BucketRequestPayment",
    "website": "BucketWebsite",
}
"""The name of each sub-resource's operations in S3, without Get, Put or Delete."""


def absent_configuration(code: str) -> Operation:
    """Return an operation that raises S3Error *code*, since the bucket does not have the sub-resource."""

    async def operation(request: S3Request) -> Response:
        await request.engine.head_bucket(request.caller, request.bucket)
        raise S3Error(code, BucketName=request.bucket)

    return operation


def fixed_document(name: str, inner: str) -> Operation:
    """Return an operation that returns the same document for every bucket."""

    async def operation(request: S3Request) -> Response:
        await request.engine.head_bucket(request.caller, request.bucket)
        return xml_response(f"{XML_HEAD}<{name} {XMLNS}>{inner}</{name}>")

    return operation


def accept_only_default(name: str, inner: str, feature: str) -> Operation:
    """An operation that accepts the document which `fixed_document` answers, and no other."""
    only = parse_xml(f"<{name}>{inner}</{name}>".encode(), name)

    async def operation(request: S3Request) -> Response:
        document = await read_xml_body(request, name)
        await request.engine.head_bucket(request.caller, request.bucket)
        if not _equal(document, only):
            raise S3Error("NotImplemented", f"Another {name} is not implemented.", Feature=feature)
        return Response(200)

    return operation


def _equal(one: Element, other: Element) -> bool:
    """Return whether two elements are equal, apart from the order of their children."""
    if one.name != other.name or one.text.strip() != other.text.strip() or len(one.children) != len(other.children):
        return False
    pairs = zip(sorted(one.children, key=_name), sorted(other.children, key=_name), strict=True)
    return all(_equal(*pair) for pair in pairs)


def _name(element: Element) -> str:
    return element.name


def empty_list(name: str) -> Operation:
    """Return an operation that lists no configurations, and raises S3Error NoSuchConfiguration for an id."""

    async def operation(request: S3Request) -> Response:
        await request.engine.head_bucket(request.caller, request.bucket)
        if "id" in request.query:
            raise S3Error("NoSuchConfiguration", BucketName=request.bucket)
        return xml_response(f"{XML_HEAD}<{name} {XMLNS}><IsTruncated>false</IsTruncated></{name}>")

    return operation


async def nothing_to_remove(request: S3Request) -> Response:
    """DELETE of a configuration that the bucket does not have."""
    await request.engine.head_bucket(request.caller, request.bucket)
    return Response(204)


async def get_bucket_encryption(request: S3Request) -> Response:
    """GET /bucket?encryption"""
    await request.engine.head_bucket(request.caller, request.bucket)
    if not request.settings.sealed:
        raise S3Error("ServerSideEncryptionConfigurationNotFoundError", BucketName=request.bucket)
    rule = (
        "<Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm>"
        "</ApplyServerSideEncryptionByDefault><BucketKeyEnabled>false</BucketKeyEnabled></Rule>"
    )
    name = "ServerSideEncryptionConfiguration"
    return xml_response(f"{XML_HEAD}<{name} {XMLNS}>{rule}</{name}>")


async def put_bucket_encryption(request: S3Request) -> Response:
    """PUT /bucket?encryption. Only AES256 is accepted, which is always in effect."""
    root = await read_xml_body(request, "ServerSideEncryptionConfiguration")
    for rule in root.all("Rule"):
        default = rule.first("ApplyServerSideEncryptionByDefault")
        if default is not None:
            check_encryption(default.need("SSEAlgorithm"), request.settings.sealed)
    await request.engine.head_bucket(request.caller, request.bucket)
    return Response(200)


async def get_bucket_acl(request: S3Request) -> Response:
    """GET /bucket?acl"""
    bucket = await request.engine.head_bucket(request.caller, request.bucket)
    return _acl(request, bucket.owner)


async def get_object_acl(request: S3Request) -> Response:
    """GET /bucket/key?acl"""
    opened = await request.engine.head(request.caller, request.bucket, request.key, request.version)
    return _acl(request, opened.info.owner)


def _acl(request: S3Request, owner: int) -> Response:
    owners = Owners(request.engine, request.caller)
    return xml_response(
        f"{XML_HEAD}<AccessControlPolicy {XMLNS}>{owners.xml(owner)}<AccessControlList><Grant>"
        f'<Grantee {_XSI} xsi:type="CanonicalUser">{owners[owner]}</Grantee>'
        f"<Permission>FULL_CONTROL</Permission></Grant></AccessControlList></AccessControlPolicy>"
    )


async def put_bucket_acl(request: S3Request) -> Response:
    """PUT /bucket?acl. Only the ACL that every bucket has is accepted."""
    bucket = await request.engine.head_bucket(request.caller, request.bucket)
    await _check_acl(request, bucket.owner)
    return Response(200)


async def put_object_acl(request: S3Request) -> Response:
    """PUT /bucket/key?acl. Only the ACL that every object has is accepted."""
    opened = await request.engine.head(request.caller, request.bucket, request.key, request.version)
    await _check_acl(request, opened.info.owner)
    return Response(200)


async def _check_acl(request: S3Request, owner: int) -> None:
    raw = await read_body(request, request.settings.xml_bytes)
    if not raw.strip():
        if not request.headers.get("x-amz-acl"):
            raise S3Error("MissingSecurityHeader", MissingHeaderName="x-amz-acl")
        return
    grants = (await read_xml(raw, "AccessControlPolicy")).first("AccessControlList")
    if grants is None:
        raise S3Error("MalformedACLError")
    if not all(_is_owners(grant, owner) for grant in grants.all("Grant")):
        raise S3Error("NotImplemented", "ACLs other than private are not implemented.", Feature="acl")


def _is_owners(grant: Element, owner: int) -> bool:
    grantee = grant.first("Grantee")
    named = grantee.get("ID") if grantee is not None else None
    return named == owner_id(owner) and grant.get("Permission") == "FULL_CONTROL"


async def no_object_lock(request: S3Request) -> Response:
    """GET /bucket/key?retention or ?legal-hold. No bucket supports Object Lock."""
    await request.engine.head(request.caller, request.bucket, request.key, request.version)
    raise S3Error("InvalidRequest", "Bucket is missing Object Lock Configuration")


async def post_form(_call: S3Request) -> Response:
    """POST /bucket with an HTML form, as browsers upload. It is signed with a policy, which is not implemented."""
    raise S3Error("NotImplemented", "Uploads by HTML form are not implemented.", Feature="PostObject")
