"""The operations on buckets: list, create, head, delete, location and versioning."""

from __future__ import annotations

import re

from gateway import errors as core
from gateway.engine.types import BucketInfo, Versioning, check_bucket_name
from s3api.errors import S3Error
from s3api.format.owners import Owners
from s3api.format.tokens import open_token, seal_token
from s3api.format.xml_reader import Element, read_xml
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape, iso
from s3api.http.bodies import read_body, read_xml_body
from s3api.request import S3Request
from s3api.response import Response, xml_response

MAX_BUCKETS = 10_000


async def list_buckets(request: S3Request) -> Response:
    """GET /"""
    prefix = request.query.get("prefix", "")
    limit = request.number("max-buckets", MAX_BUCKETS, MAX_BUCKETS, least=1)
    token = request.query.get("continuation-token")
    after = open_token(request.settings.token_key, "", token).decode() if token else ""
    page, following = await request.engine.list_buckets(request.caller, prefix, after, limit)
    region = request.query.get("bucket-region")
    buckets = "".join(_bucket_xml(each) for each in page if region in (None, "", each.region))
    tail = f"<Prefix>{escape(prefix)}</Prefix>" if "prefix" in request.query else ""
    if following is not None:
        sealed = seal_token(request.settings.token_key, "", following.encode())
        tail += f"<ContinuationToken>{sealed}</ContinuationToken>"
    owner = Owners(request.engine, request.caller).xml(request.caller.user_id)
    return xml_response(
        f"{XML_HEAD}<ListAllMyBucketsResult {XMLNS}>{owner}<Buckets>{buckets}</Buckets>{tail}</ListAllMyBucketsResult>"
    )


def _bucket_xml(bucket: BucketInfo) -> str:
    return (
        f"<Bucket><Name>{escape(bucket.name)}</Name><CreationDate>{iso(bucket.made_ns)}</CreationDate>"
        f"<BucketRegion>{escape(bucket.region)}</BucketRegion></Bucket>"
    )


_REGION_NAME = re.compile(r"EU|[a-z]{2,4}(-[a-z]+){1,3}-\d{1,2}", re.ASCII)
"""The form of S3's region names, including future ones. S3 rejects another name as an invalid location constraint."""


async def create_bucket(request: S3Request) -> Response:
    """PUT /bucket. As in S3, creating a bucket again that the caller owns succeeds in us-east-1 and fails elsewhere."""
    check_bucket_name(request.bucket)
    region = request.settings.region
    raw = await read_body(request, request.settings.xml_bytes)
    if raw.strip():
        _check_constraint(await read_xml(raw, "CreateBucketConfiguration"), region)
    try:
        await request.engine.create_bucket(request.caller, request.bucket, region)
    except core.BucketOwned:
        if region != "us-east-1":
            raise
    return Response(200, f"Location: /{request.bucket}\r\n")


def _check_constraint(root: Element, region: str) -> None:
    constraint = root.get("LocationConstraint")
    if constraint and constraint != region and (constraint, region) != ("EU", "eu-west-1"):
        if not _REGION_NAME.fullmatch(constraint):
            raise S3Error("InvalidLocationConstraint", LocationConstraint=constraint)
        raise S3Error(
            "IllegalLocationConstraintException",
            f"The {constraint} location constraint is incompatible for the region specific endpoint this request was "
            "sent to.",
        )
    for name, feature in (("Location", "Directory buckets"), ("Bucket", "Directory buckets"), ("Tags", "Bucket tags")):
        element = root.first(name)
        if element is not None and element.children:
            raise S3Error("NotImplemented", f"{feature} are not implemented.", Feature=name)


async def head_bucket(request: S3Request) -> Response:
    """HEAD /bucket"""
    bucket = await request.engine.head_bucket(request.caller, request.bucket)
    return Response(200, f"x-amz-bucket-region: {bucket.region}\r\nx-amz-access-point-alias: false\r\n")


async def delete_bucket(request: S3Request) -> Response:
    """DELETE /bucket"""
    await request.engine.delete_bucket(request.caller, request.bucket)
    return Response(204)


async def get_location(request: S3Request) -> Response:
    """GET /bucket?location. For us-east-1 the element is empty."""
    bucket = await request.engine.head_bucket(request.caller, request.bucket)
    name = "" if bucket.region == "us-east-1" else escape(bucket.region)
    return xml_response(f"{XML_HEAD}<LocationConstraint {XMLNS}>{name}</LocationConstraint>")


_STATUS_NAMES = {Versioning.ENABLED: "Enabled", Versioning.SUSPENDED: "Suspended"}


async def get_versioning(request: S3Request) -> Response:
    """GET /bucket?versioning. For a bucket that never had versioning the document is empty."""
    bucket = await request.engine.head_bucket(request.caller, request.bucket)
    state = _STATUS_NAMES.get(Versioning(bucket.versioning))
    inner = f"<Status>{state}</Status>" if state else ""
    return xml_response(f"{XML_HEAD}<VersioningConfiguration {XMLNS}>{inner}</VersioningConfiguration>")


async def put_versioning(request: S3Request) -> Response:
    """PUT /bucket?versioning"""
    root = await read_xml_body(request, "VersioningConfiguration")
    if root.get("MfaDelete") == "Enabled":
        raise S3Error("NotImplemented", "MFA delete is not implemented.", Feature="MfaDelete")
    requested = root.get("Status")
    for state, status in _STATUS_NAMES.items():
        if status == requested:
            await request.engine.set_versioning(request.caller, request.bucket, state)
            return Response(200)
    raise S3Error("MalformedXML")
