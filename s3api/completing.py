"""CompleteMultipartUpload: the parts as the client names them, and what the whole must come to."""

from __future__ import annotations

from gateway.engine.types import WantedPart
from s3api import checksums
from s3api.accepted import check_headers
from s3api.answers import Answer, xml_answer
from s3api.bodies import declared_bytes, small_body
from s3api.call import Call
from s3api.checksums import ELEMENTS, checksum_xml
from s3api.conditions import write_conditions
from s3api.errors import S3Error
from s3api.multipart import MAX_PART_NUMBER
from s3api.putting import version_lines
from s3api.xml_reading import Element, parse_xml
from s3api.xml_writing import XML_HEAD, XMLNS, escape, escape_bytes, quoted


async def complete_multipart_upload(call: Call) -> Answer:
    """POST /bucket/key?uploadId"""
    headers = call.headers
    check_headers(headers, call.settings.sealed)
    # Of this operation the checksum headers speak of the object, not of the request's own XML.
    promised = _promised_checksum(headers)
    root = parse_xml(await small_body(call, call.settings.xml_bytes, own_checksum=False), "CompleteMultipartUpload")
    wanted = [_wanted(each) for each in root.all("Part")]
    if not 0 < len(wanted) <= MAX_PART_NUMBER:
        raise S3Error("MalformedXML")
    stored = await call.engine.complete_upload(
        call.caller,
        call.bucket,
        call.key,
        call.query["uploadId"],
        wanted,
        write_conditions(headers),
        promised,
        _promised_type(headers),
        declared_bytes(call, "x-amz-mp-object-size"),
    )
    location = escape(f"http://{headers.get('host', '')}{call.target.path}")
    return xml_answer(
        f"{XML_HEAD}<CompleteMultipartUploadResult {XMLNS}><Location>{location}</Location>"
        f"<Bucket>{call.bucket}</Bucket><Key>{escape_bytes(call.key)}</Key><ETag>{quoted(stored.etag)}</ETag>"
        f"{checksum_xml(stored.checksum)}</CompleteMultipartUploadResult>",
        version_lines(call, stored.version),
    )


def _promised_checksum(headers: dict[str, str]) -> tuple[str, str] | None:
    """The whole's checksum; a composite one may end in `-N`."""
    found = [(name, headers[name].strip()) for name in checksums.HEADERS if name in headers]
    if not found:
        return None
    if len(found) > 1:
        raise S3Error("InvalidRequest", "Expecting a single x-amz-checksum- header.")
    name, value = found[0]
    algorithm = checksums.HEADERS[name]
    digest, _, count = value.partition("-")
    if count and not (count.isascii() and count.isdigit()):
        raise S3Error("InvalidRequest", f"Value for {name} header is invalid.")
    checksums.check_value(algorithm, digest)
    return algorithm, value


def _promised_type(headers: dict[str, str]) -> str | None:
    asked = headers.get("x-amz-checksum-type")
    if asked is not None and asked not in {"COMPOSITE", "FULL_OBJECT"}:
        raise S3Error("InvalidRequest", "Value for x-amz-checksum-type header is invalid.")
    return asked


def _wanted(element: Element) -> WantedPart:
    text = element.need("PartNumber").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and 1 <= int(text) <= MAX_PART_NUMBER):
        raise S3Error("MalformedXML")
    etag = element.need("ETag").strip().strip('"')
    checksum = None
    for algorithm, name in ELEMENTS.items():
        value = element.get(name)
        if value:
            checksum = (algorithm, value.strip())
    return WantedPart(int(text), etag, checksum)
