"""CompleteMultipartUpload: parse the client's list of parts, and the checksum and size that it expects."""

from __future__ import annotations

import asyncio

from gateway.engine.types import WantedPart
from s3api.errors import S3Error
from s3api.format import checksums
from s3api.format.checksums import ELEMENTS, checksum_xml
from s3api.format.conditions import write_conditions
from s3api.format.xml_reader import Element
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape, escape_bytes, quoted
from s3api.http.bodies import declared_length, read_xml_body
from s3api.ops.put import version_lines
from s3api.request import MAX_PART_NUMBER, S3Request
from s3api.response import Response, xml_response

PARTS_PER_TURN = 500
"""How many parts are parsed before the event loop runs."""
_ALGORITHMS = {element: algorithm for algorithm, element in ELEMENTS.items()}
_UNSUPPORTED_ELEMENTS = {f"Checksum{algorithm}": algorithm for algorithm in checksums.UNSUPPORTED_ALGORITHMS}


async def complete_multipart_upload(request: S3Request) -> Response:
    """POST /bucket/key?uploadId"""
    headers = request.headers
    # In this operation the checksum headers are those of the object, not of the request's XML.
    expected = _promised_checksum(headers)
    root = await read_xml_body(request, "CompleteMultipartUpload", own_checksum=False)
    wanted = await _parse_parts(root)
    stored = await request.engine.complete_upload(
        request.caller,
        request.bucket,
        request.key,
        request.query["uploadId"],
        wanted,
        write_conditions(headers),
        expected,
        _promised_type(headers),
        declared_length(request, "x-amz-mp-object-size"),
    )
    scheme = "https" if request.stream.is_tls else "http"
    location = escape(f"{scheme}://{headers.get('host', '')}{request.target.path}")
    return xml_response(
        f"{XML_HEAD}<CompleteMultipartUploadResult {XMLNS}><Location>{location}</Location>"
        f"<Bucket>{request.bucket}</Bucket><Key>{escape_bytes(request.key)}</Key><ETag>{quoted(stored.etag)}</ETag>"
        f"{checksum_xml(stored.checksum)}</CompleteMultipartUploadResult>",
        version_lines(request, stored.version),
    )


def _promised_checksum(headers: dict[str, str]) -> tuple[str, str] | None:
    """Return the object's checksum as (algorithm, value) from the headers. A composite value may end in `-N`."""
    given = [(name, headers[name].strip()) for name in checksums.HEADERS if name in headers]
    if not given:
        return None
    if len(given) > 1:
        raise S3Error("InvalidRequest", "Expecting a single x-amz-checksum- header.")
    name, value = given[0]
    algorithm = checksums.HEADERS[name]
    digest, _, count = value.partition("-")
    if count and not (count.isascii() and count.isdigit()):
        raise S3Error("InvalidRequest", f"Value for {name} header is invalid.")
    checksums.check_value(algorithm, digest)
    return algorithm, value


def _promised_type(headers: dict[str, str]) -> str | None:
    requested = headers.get("x-amz-checksum-type")
    if requested is not None and requested not in {"COMPOSITE", "FULL_OBJECT"}:
        raise S3Error("InvalidRequest", "Value for x-amz-checksum-type header is invalid.")
    return requested


async def _parse_parts(root: Element) -> list[WantedPart]:
    """Return the parts in the order of the document. Parsing 10,000 parts takes a while, so the event loop runs in
    between."""
    parts = root.all("Part")
    if not 0 < len(parts) <= MAX_PART_NUMBER:
        raise S3Error("MalformedXML")
    wanted = []
    for at in range(0, len(parts), PARTS_PER_TURN):
        wanted += [_parse_part(each) for each in parts[at : at + PARTS_PER_TURN]]
        await asyncio.sleep(0)
    return wanted


def _parse_part(element: Element) -> WantedPart:
    fields = {child.name: child.text.strip() for child in element.children}
    number, etag = fields.get("PartNumber", ""), fields.get("ETag")
    if etag is None or not (number.isascii() and number.isdigit() and len(number) <= 6):
        raise S3Error("MalformedXML")
    if not 1 <= int(number) <= MAX_PART_NUMBER:
        raise S3Error("MalformedXML")
    return WantedPart(int(number), etag.strip('"'), _checksum(fields))


def _checksum(fields: dict[str, str]) -> tuple[str, str] | None:
    """Return the checksum among a part's elements, if any. Raises S3Error NotImplemented, InvalidArgument."""
    for name in fields.keys() & _UNSUPPORTED_ELEMENTS.keys():
        raise S3Error("NotImplemented", f"The checksum {_UNSUPPORTED_ELEMENTS[name]} is not implemented.", Feature=name)
    given = [(_ALGORITHMS[name], fields[name]) for name in fields if name in _ALGORITHMS and fields[name]]
    if not given:
        return None
    algorithm, value = given[0]
    if len(given) > 1 or checksums.decode_base64(value, checksums.DIGEST_BYTES[algorithm]) is None:
        raise S3Error(
            "InvalidArgument",
            "Invalid Base64 or multiple checksums present in request",
            ArgumentName="Checksum",
            ArgumentValue="".join(f"{name}:{text};" for name, text in sorted(given)),
        )
    return given[0]
