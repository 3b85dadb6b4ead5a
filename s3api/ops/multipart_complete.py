"""CompleteMultipartUpload: the parts as the client names them, and what the whole must come to."""

from __future__ import annotations

import asyncio

from gateway.engine.types import WantedPart
from s3api.errors import S3Error
from s3api.format import checksums
from s3api.format.checksums import ELEMENTS, checksum_xml
from s3api.format.conditions import write_conditions
from s3api.format.xml_reader import Element
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape, escape_bytes, quoted
from s3api.http.bodies import declared_bytes, xml_body
from s3api.ops.put import version_lines
from s3api.request import MAX_PART_NUMBER, Call
from s3api.response import Answer, xml_answer

TURN = 500
"""Parts that are read in one go."""
_ALGORITHMS = {element: algorithm for algorithm, element in ELEMENTS.items()}
_UNBUILT = {f"Checksum{algorithm}": algorithm for algorithm in checksums.UNBUILT}


async def complete_multipart_upload(call: Call) -> Answer:
    """POST /bucket/key?uploadId"""
    headers = call.headers
    # Of this operation the checksum headers speak of the object, not of the request's own XML.
    promised = _promised_checksum(headers)
    root = await xml_body(call, "CompleteMultipartUpload", own_checksum=False)
    wanted = await _all_wanted(root)
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
    scheme = "http" if call.exchange.protocol.ssl_context is None else "https"
    location = escape(f"{scheme}://{headers.get('host', '')}{call.target.path}")
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


async def _all_wanted(root: Element) -> list[WantedPart]:
    """The parts, in the order they are named. Ten thousand take a while: others have their turn between."""
    parts = root.all("Part")
    if not 0 < len(parts) <= MAX_PART_NUMBER:
        raise S3Error("MalformedXML")
    wanted = []
    for at in range(0, len(parts), TURN):
        wanted += [_wanted(each) for each in parts[at : at + TURN]]
        await asyncio.sleep(0)
    return wanted


def _wanted(element: Element) -> WantedPart:
    told = {child.name: child.text.strip() for child in element.children}
    number, etag = told.get("PartNumber", ""), told.get("ETag")
    if etag is None or not (number.isascii() and number.isdigit() and len(number) <= 6):
        raise S3Error("MalformedXML")
    if not 1 <= int(number) <= MAX_PART_NUMBER:
        raise S3Error("MalformedXML")
    return WantedPart(int(number), etag.strip('"'), _checksum(told))


def _checksum(told: dict[str, str]) -> tuple[str, str] | None:
    """The one checksum among a part's elements. Raises S3Error NotImplemented, and InvalidArgument for what is none."""
    for name in told.keys() & _UNBUILT.keys():
        raise S3Error("NotImplemented", f"The checksum {_UNBUILT[name]} is not implemented.", Feature=name)
    found = [(_ALGORITHMS[name], told[name]) for name in told if name in _ALGORITHMS and told[name]]
    if not found:
        return None
    algorithm, value = found[0]
    if len(found) > 1 or checksums.decode_base64(value, checksums.DIGEST_BYTES[algorithm]) is None:
        raise S3Error(
            "InvalidArgument",
            "Invalid Base64 or multiple checksums present in request",
            ArgumentName="Checksum",
            ArgumentValue="".join(f"{name}:{text};" for name, text in sorted(found)),
        )
    return found[0]
