"""GetObjectAttributes: an object's attributes and its parts, without its bytes."""

from __future__ import annotations

from gateway.engine.types import Checksum, ObjectInfo, PartSummary
from s3api.errors import S3Error
from s3api.format.checksums import COMPOSITE, checksum_xml, value_xml
from s3api.format.conditions import read_conditions
from s3api.format.dates import SECOND_NS, http_date
from s3api.format.xml_writer import XML_HEAD, XMLNS
from s3api.request import MAX_KEYS, S3Request
from s3api.response import Response, xml_response

NAMES = frozenset({"ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"})


async def get_object_attributes(request: S3Request) -> Response:
    """GET /bucket/key?attributes"""
    requested = _requested_attributes(request)
    opened = await request.engine.head(
        request.caller, request.bucket, request.key, request.version, None, None, read_conditions(request.headers)
    )
    info = opened.info
    out = ""
    if "ETag" in requested:
        out += f"<ETag>{info.etag}</ETag>"
    if "Checksum" in requested and info.checksum is not None:
        out += f"<Checksum>{_checksum_xml(info.checksum)}</Checksum>"
    if "ObjectParts" in requested and info.parts_count:
        out += await _parts_xml(request, info)
    if "StorageClass" in requested:
        out += "<StorageClass>STANDARD</StorageClass>"
    if "ObjectSize" in requested:
        out += f"<ObjectSize>{info.size}</ObjectSize>"
    lines = f"Last-Modified: {http_date(info.modified_ns // SECOND_NS)}\r\n"
    if info.version is not None:
        lines += f"x-amz-version-id: {info.version}\r\n"
    return xml_response(f"{XML_HEAD}<GetObjectAttributesResponse {XMLNS}>{out}</GetObjectAttributesResponse>", lines)


def _requested_attributes(request: S3Request) -> set[str]:
    header = request.headers.get("x-amz-object-attributes", "")
    requested = {each.strip() for each in header.split(",") if each.strip()}
    if not requested:
        raise S3Error("InvalidRequest", "The x-amz-object-attributes header is either missing or empty")
    if requested - NAMES:
        raise S3Error(
            "InvalidArgument",
            "Invalid attribute name specified.",
            ArgumentName="x-amz-object-attributes",
            ArgumentValue=header,
        )
    return requested


def _checksum_xml(checksum: Checksum) -> str:
    """Return the checksum's elements without the `-N` of a composite value, which S3 leaves out in this operation
    only."""
    return checksum_xml(checksum._replace(value=checksum.value.partition("-")[0]))


def _number(request: S3Request, name: str, default: int) -> int:
    text = request.headers.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise S3Error("InvalidArgument", f"{name} is not a number.", ArgumentName=name, ArgumentValue=text)
    return int(text)


async def _parts_xml(request: S3Request, info: ObjectInfo) -> str:
    """Return the ObjectParts element. As in S3, it always has the number of parts, and lists them only if the object's
    checksum is composite."""
    checksum = info.checksum
    if checksum is None or checksum.type != COMPOSITE:
        return f"<ObjectParts><PartsCount>{info.parts_count}</PartsCount></ObjectParts>"
    limit = min(_number(request, "x-amz-max-parts", MAX_KEYS), MAX_KEYS)
    after = _number(request, "x-amz-part-number-marker", 0)
    version = request.version
    facts = await request.engine.object_parts(request.caller, request.bucket, request.key, version, after, limit + 1)
    shown, more = facts[:limit], len(facts) > limit
    parts = "".join(_part_xml(each, checksum.algorithm) for each in shown)
    last = shown[-1].number if shown else after
    return (
        f"<ObjectParts><PartsCount>{info.parts_count}</PartsCount>"
        f"<PartNumberMarker>{after}</PartNumberMarker><NextPartNumberMarker>{last}</NextPartNumberMarker>"
        f"<MaxParts>{limit}</MaxParts><IsTruncated>{'true' if more else 'false'}</IsTruncated>{parts}</ObjectParts>"
    )


def _part_xml(part: PartSummary, algorithm: str) -> str:
    shown = value_xml(algorithm, part.checksum)
    return f"<Part>{shown}<PartNumber>{part.number}</PartNumber><Size>{part.size}</Size></Part>"
