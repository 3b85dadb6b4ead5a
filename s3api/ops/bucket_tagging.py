"""Get, replace and remove a bucket's tags."""

from __future__ import annotations

from gateway.engine.types import DocumentKind
from s3api.errors import S3Error
from s3api.format.metadata import BUCKET_TAGS_MOST, check_tags
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape
from s3api.http.bodies import read_xml_body
from s3api.request import S3Request
from s3api.response import Response, xml_response


async def get_bucket_tagging(request: S3Request) -> Response:
    """GET /bucket?tagging"""
    document = await request.engine.bucket_document(request.caller, request.bucket, DocumentKind.TAGGING)
    if document is None:
        raise S3Error("NoSuchTagSet", BucketName=request.bucket)
    return xml_response(XML_HEAD + document.decode())


async def put_bucket_tagging(request: S3Request) -> Response:
    """PUT /bucket?tagging. The tags are stored as the XML that GetBucketTagging returns."""
    root = await read_xml_body(request, "Tagging")
    tag_set = root.first("TagSet")
    if tag_set is None:
        raise S3Error("MalformedXML")
    tags = check_tags([(tag.need("Key"), tag.need("Value")) for tag in tag_set.all("Tag")], BUCKET_TAGS_MOST, "Bucket")
    listed = "".join(
        f"<Tag><Key>{escape(name)}</Key><Value>{escape(value)}</Value></Tag>" for name, value in tags.items()
    )
    document = f"<Tagging {XMLNS}><TagSet>{listed}</TagSet></Tagging>"
    await request.engine.set_bucket_document(request.caller, request.bucket, DocumentKind.TAGGING, document.encode())
    return Response(204)


async def delete_bucket_tagging(request: S3Request) -> Response:
    """DELETE /bucket?tagging. As in S3, it succeeds if the bucket has no tags."""
    await request.engine.remove_bucket_document(request.caller, request.bucket, DocumentKind.TAGGING)
    return Response(204)
