"""The tags of an object: get, replace, remove."""

from __future__ import annotations

from s3api.errors import S3Error
from s3api.format.metadata import check_tags
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape
from s3api.http.bodies import xml_body
from s3api.request import Call
from s3api.response import Answer, xml_answer


async def get_object_tagging(call: Call) -> Answer:
    """GET /bucket/key?tagging"""
    tags, version = await call.engine.get_tags(call.caller, call.bucket, call.key, call.version)
    listed = "".join(
        f"<Tag><Key>{escape(name)}</Key><Value>{escape(value)}</Value></Tag>" for name, value in tags.items()
    )
    return xml_answer(f"{XML_HEAD}<Tagging {XMLNS}><TagSet>{listed}</TagSet></Tagging>", _version_line(version))


async def put_object_tagging(call: Call) -> Answer:
    """PUT /bucket/key?tagging"""
    root = await xml_body(call, "Tagging")
    tag_set = root.first("TagSet")
    if tag_set is None:
        raise S3Error("MalformedXML")
    tags = check_tags([(tag.need("Key"), tag.need("Value")) for tag in tag_set.all("Tag")])
    version = await call.engine.set_tags(call.caller, call.bucket, call.key, call.version, tags)
    return Answer(200, _version_line(version))


async def delete_object_tagging(call: Call) -> Answer:
    """DELETE /bucket/key?tagging"""
    version = await call.engine.set_tags(call.caller, call.bucket, call.key, call.version, {})
    return Answer(204, _version_line(version))


def _version_line(version: str | None) -> str:
    return f"x-amz-version-id: {version}\r\n" if version is not None else ""
