"""Buckets: create, head, delete, where they are, whether they keep versions; and the list of them."""

from __future__ import annotations

import re

from gateway import errors as core
from gateway.engine.types import BucketInfo
from gateway.journal.tables import Versioning
from gateway.namespace.bucket_names import check_bucket_name
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
    found, following = await request.engine.list_buckets(request.caller, prefix, after, limit)
    region = request.query.get("bucket-region")
    buckets = "".join(_bucket_xml(each) for each in found if region in (None, "", each.region))
    tail = f"<Prefix>{escape(prefix)}</Prefix>" if "prefix" in request.query else ""
    if following is not None:
        sealed = seal_token(request.settings.token_key, "", following.encode())
        tail += f"<ContinuationToken>{sealed}</ContinuationToken>"
    return xml_response(
        f"{XML_HEAD}<ListAllMyBucketsResult {XMLNS}>{Owners(request.engine).xml(request.caller.user_id)}"
        f"<Buckets>{buckets}</Buckets>{tail}</ListAllMyBucketsResult>"
    )


def _bucket_xml(bucket: BucketInfo) -> str:
    return (
        f"<Bucket><Name>{escape(bucket.name)}</Name><CreationDate>{iso(bucket.made_ns)}</CreationDate>"
        f"<BucketRegion>{escape(bucket.region)}</BucketRegion></Bucket>"
    )


_A_REGION = re.compile(r"EU|[a-z]{2,4}(-[a-z]+){1,3}-\d{1,2}", re.ASCII)
"""What S3's regions are called, those to come too: of another name S3 says that there is no such place."""


async def create_bucket(request: S3Request) -> Response:
    """PUT /bucket. S3 takes the owner's second creation for done in us-east-1, and refuses it elsewhere."""
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
    asked = root.get("LocationConstraint")
    if asked and asked != region and (asked, region) != ("EU", "eu-west-1"):
        if not _A_REGION.fullmatch(asked):
            raise S3Error("InvalidLocationConstraint", LocationConstraint=asked)
        raise S3Error(
            "IllegalLocationConstraintException",
            f"The {asked} location constraint is incompatible for the region specific endpoint this request was "
            "sent to.",
        )
    for name, feature in (("Location", "Directory buckets"), ("Bucket", "Directory buckets"), ("Tags", "Bucket tags")):
        found = root.first(name)
        if found is not None and found.children:
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
    """GET /bucket?location: us-east-1 is spelled by saying nothing."""
    bucket = await request.engine.head_bucket(request.caller, request.bucket)
    name = "" if bucket.region == "us-east-1" else escape(bucket.region)
    return xml_response(f"{XML_HEAD}<LocationConstraint {XMLNS}>{name}</LocationConstraint>")


_STATUS_NAMES = {Versioning.ENABLED: "Enabled", Versioning.SUSPENDED: "Suspended"}


async def get_versioning(request: S3Request) -> Response:
    """GET /bucket?versioning: a bucket that never had versions says nothing of them."""
    bucket = await request.engine.head_bucket(request.caller, request.bucket)
    state = _STATUS_NAMES.get(Versioning(bucket.versioning))
    inner = f"<Status>{state}</Status>" if state else ""
    return xml_response(f"{XML_HEAD}<VersioningConfiguration {XMLNS}>{inner}</VersioningConfiguration>")


async def put_versioning(request: S3Request) -> Response:
    """PUT /bucket?versioning"""
    root = await read_xml_body(request, "VersioningConfiguration")
    if root.get("MfaDelete") == "Enabled":
        raise S3Error("NotImplemented", "MFA delete is not implemented.", Feature="MfaDelete")
    asked = root.get("Status")
    for state, status in _STATUS_NAMES.items():
        if status == asked:
            await request.engine.set_versioning(request.caller, request.bucket, state)
            return Response(200)
    raise S3Error("MalformedXML")
