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
from s3api.http.bodies import small_body, xml_body
from s3api.request import Call
from s3api.response import Answer, xml_answer

MAX_BUCKETS = 10_000


async def list_buckets(call: Call) -> Answer:
    """GET /"""
    prefix = call.query.get("prefix", "")
    limit = call.number("max-buckets", MAX_BUCKETS, MAX_BUCKETS, least=1)
    token = call.query.get("continuation-token")
    after = open_token(call.settings.token_key, "", token).decode() if token else ""
    found, following = await call.engine.list_buckets(call.caller, prefix, after, limit)
    region = call.query.get("bucket-region")
    buckets = "".join(_bucket_xml(each) for each in found if region in (None, "", each.region))
    tail = f"<Prefix>{escape(prefix)}</Prefix>" if "prefix" in call.query else ""
    if following is not None:
        sealed = seal_token(call.settings.token_key, "", following.encode())
        tail += f"<ContinuationToken>{sealed}</ContinuationToken>"
    return xml_answer(
        f"{XML_HEAD}<ListAllMyBucketsResult {XMLNS}>{Owners(call.engine).xml(call.caller.user_id)}"
        f"<Buckets>{buckets}</Buckets>{tail}</ListAllMyBucketsResult>"
    )


def _bucket_xml(bucket: BucketInfo) -> str:
    return (
        f"<Bucket><Name>{escape(bucket.name)}</Name><CreationDate>{iso(bucket.made_ns)}</CreationDate>"
        f"<BucketRegion>{escape(bucket.region)}</BucketRegion></Bucket>"
    )


_A_REGION = re.compile(r"EU|[a-z]{2,4}(-[a-z]+){1,3}-\d{1,2}", re.ASCII)
"""What S3's regions are called, those to come too: of another name S3 says that there is no such place."""


async def create_bucket(call: Call) -> Answer:
    """PUT /bucket. S3 takes the owner's second creation for done in us-east-1, and refuses it elsewhere."""
    check_bucket_name(call.bucket)
    region = call.settings.region
    raw = await small_body(call, call.settings.xml_bytes)
    if raw.strip():
        _check_constraint(await read_xml(raw, "CreateBucketConfiguration"), region)
    try:
        await call.engine.create_bucket(call.caller, call.bucket, region)
    except core.BucketOwned:
        if region != "us-east-1":
            raise
    return Answer(200, f"Location: /{call.bucket}\r\n")


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


async def head_bucket(call: Call) -> Answer:
    """HEAD /bucket"""
    bucket = await call.engine.head_bucket(call.caller, call.bucket)
    return Answer(200, f"x-amz-bucket-region: {bucket.region}\r\nx-amz-access-point-alias: false\r\n")


async def delete_bucket(call: Call) -> Answer:
    """DELETE /bucket"""
    await call.engine.delete_bucket(call.caller, call.bucket)
    return Answer(204)


async def get_location(call: Call) -> Answer:
    """GET /bucket?location: us-east-1 is spelled by saying nothing."""
    bucket = await call.engine.head_bucket(call.caller, call.bucket)
    name = "" if bucket.region == "us-east-1" else escape(bucket.region)
    return xml_answer(f"{XML_HEAD}<LocationConstraint {XMLNS}>{name}</LocationConstraint>")


_SPELLED = {Versioning.ENABLED: "Enabled", Versioning.SUSPENDED: "Suspended"}


async def get_versioning(call: Call) -> Answer:
    """GET /bucket?versioning: a bucket that never had versions says nothing of them."""
    bucket = await call.engine.head_bucket(call.caller, call.bucket)
    state = _SPELLED.get(Versioning(bucket.versioning))
    inner = f"<Status>{state}</Status>" if state else ""
    return xml_answer(f"{XML_HEAD}<VersioningConfiguration {XMLNS}>{inner}</VersioningConfiguration>")


async def put_versioning(call: Call) -> Answer:
    """PUT /bucket?versioning"""
    root = await xml_body(call, "VersioningConfiguration")
    if root.get("MfaDelete") == "Enabled":
        raise S3Error("NotImplemented", "MFA delete is not implemented.", Feature="MfaDelete")
    asked = root.get("Status")
    for state, spelled in _SPELLED.items():
        if spelled == asked:
            await call.engine.set_versioning(call.caller, call.bucket, state)
            return Answer(200)
    raise S3Error("MalformedXML")
