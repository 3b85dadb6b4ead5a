"""Get, replace and remove an object's tags."""

from __future__ import annotations

from s3api.authorize import authorize
from s3api.errors import S3Error
from s3api.format.metadata import check_tags
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape
from s3api.http.bodies import read_xml_body
from s3api.request import S3Request
from s3api.response import Response, xml_response


async def get_object_tagging(request: S3Request) -> Response:
    """GET /bucket/key?tagging"""
    tags, version = await request.engine.get_tags(request.caller, request.bucket, request.key, request.version)
    listed = "".join(
        f"<Tag><Key>{escape(name)}</Key><Value>{escape(value)}</Value></Tag>" for name, value in tags.items()
    )
    return xml_response(f"{XML_HEAD}<Tagging {XMLNS}><TagSet>{listed}</TagSet></Tagging>", _version_line(version))


async def put_object_tagging(request: S3Request) -> Response:
    """PUT /bucket/key?tagging. It is authorized here, since conditions of policies may refer to the tags."""
    root = await read_xml_body(request, "Tagging")
    tag_set = root.first("TagSet")
    if tag_set is None:
        raise S3Error("MalformedXML")
    tags = check_tags([(tag.need("Key"), tag.need("Value")) for tag in tag_set.all("Tag")])
    request.stored_tags = tags
    authorize(request)
    version = await request.engine.set_tags(request.caller, request.bucket, request.key, request.version, tags)
    return Response(200, _version_line(version))


async def delete_object_tagging(request: S3Request) -> Response:
    """DELETE /bucket/key?tagging"""
    version = await request.engine.set_tags(request.caller, request.bucket, request.key, request.version, {})
    return Response(204, _version_line(version))


def _version_line(version: str | None) -> str:
    return f"x-amz-version-id: {version}\r\n" if version is not None else ""
