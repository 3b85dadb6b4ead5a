"""The policy of a bucket, whether it is public, and PublicAccessBlock."""

from __future__ import annotations

from gateway.engine.types import PublicAccessBlock
from s3api.errors import S3Error
from s3api.format.xml_writer import XML_HEAD, XMLNS
from s3api.http.bodies import read_body, read_xml_body
from s3api.request import S3Request
from s3api.response import Response, xml_response

POLICY_READ_BYTES_MAX = 64 << 10
"""The most bytes that are read of a policy. One that is longer than S3 allows gets the error that says so."""
_FIELDS = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
"""In the order of the fields of `PublicAccessBlock`."""


async def get_bucket_policy(request: S3Request) -> Response:
    """GET /bucket?policy. The body is the document as it was stored."""
    text = await request.engine.get_bucket_policy(request.caller, request.bucket)
    if text is None:
        raise S3Error("NoSuchBucketPolicy", BucketName=request.bucket)
    return Response(200, "Content-Type: application/json\r\n", text)


async def put_bucket_policy(request: S3Request) -> Response:
    """PUT /bucket?policy"""
    text = await read_body(request, POLICY_READ_BYTES_MAX)
    if not await request.engine.set_bucket_policy(request.caller, request.bucket, text):
        raise S3Error(
            "AccessDenied",
            "Access Denied: public policies are blocked by the BlockPublicPolicy block public access setting. "
            "PutPublicAccessBlock and DeletePublicAccessBlock change the setting.",
        )
    return Response(204)


async def delete_bucket_policy(request: S3Request) -> Response:
    """DELETE /bucket?policy. As in S3, it succeeds if the bucket has no policy."""
    await request.engine.remove_bucket_policy(request.caller, request.bucket)
    return Response(204)


async def get_bucket_policy_status(request: S3Request) -> Response:
    """GET /bucket?policyStatus"""
    public = await request.engine.bucket_policy_is_public(request.caller, request.bucket)
    if public is None:
        raise S3Error("NoSuchBucketPolicy", BucketName=request.bucket)
    text = "true" if public else "false"
    return xml_response(f"{XML_HEAD}<PolicyStatus {XMLNS}><IsPublic>{text}</IsPublic></PolicyStatus>")


async def get_public_access_block(request: S3Request) -> Response:
    """GET /bucket?publicAccessBlock. A bucket that was never configured blocks all public access, as in S3."""
    block = await request.engine.get_public_access_block(request.caller, request.bucket)
    if block is None:
        raise S3Error("NoSuchPublicAccessBlockConfiguration", BucketName=request.bucket)
    inner = "".join(
        f"<{name}>{'true' if value else 'false'}</{name}>" for name, value in zip(_FIELDS, block, strict=True)
    )
    return xml_response(f"{XML_HEAD}<PublicAccessBlockConfiguration {XMLNS}>{inner}</PublicAccessBlockConfiguration>")


async def put_public_access_block(request: S3Request) -> Response:
    """PUT /bucket?publicAccessBlock. A setting that the document does not contain is false."""
    root = await read_xml_body(request, "PublicAccessBlockConfiguration")
    values = []
    for name in _FIELDS:
        text = (root.get(name) or "false").strip().lower()
        if text not in ("true", "false"):
            raise S3Error("MalformedXML")
        values.append(text == "true")
    await request.engine.set_public_access_block(request.caller, request.bucket, PublicAccessBlock(*values))
    return Response(200)


async def delete_public_access_block(request: S3Request) -> Response:
    """DELETE /bucket?publicAccessBlock. Nothing is blocked afterwards."""
    await request.engine.set_public_access_block(request.caller, request.bucket, None)
    return Response(204)
