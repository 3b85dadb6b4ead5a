"""GetObject and HeadObject, and the headers that both return."""

from __future__ import annotations

from gateway import errors as core
from gateway.engine.types import NO_CONDITIONS, ByteRange, Checksum, Conditions, Opened
from s3api.errors import S3Error
from s3api.format.checksums import COMPOSITE, checksum_lines, wants_checksum
from s3api.format.conditions import byte_range, etags, read_conditions
from s3api.format.dates import http_date, parse_date
from s3api.format.metadata import meta_lines, with_overrides
from s3api.request import S3Request, part_number
from s3api.response import Response

SECOND_NS = 1_000_000_000


async def get_object(request: S3Request) -> Response:
    """GET /bucket/key"""
    wanted, part = _requested_range(request)
    try:
        opened, ranged = await _open(request, wanted, part)
    except core.NotModified:
        return await _not_modified(request)
    partial = opened.length > 0 and (ranged or opened.part is not None)
    lines = object_lines(request, opened, partial)
    status = 206 if partial else 200
    if opened.whole is not None:
        return Response(status, lines, opened.whole)
    if opened.length == 0:
        return Response(status, lines)
    return Response(status, lines, chunks=opened.chunks, length=opened.length)


async def head_object(request: S3Request) -> Response:
    """HEAD /bucket/key"""
    wanted, part = _requested_range(request)
    try:
        opened = await request.engine.head(
            request.caller, request.bucket, request.key, request.version, part, wanted, read_conditions(request.headers)
        )
    except core.NotModified:
        return await _not_modified(request)
    partial = opened.length > 0 and (wanted is not None or opened.part is not None)
    return Response(206 if partial else 200, object_lines(request, opened, partial), length=opened.length)


async def _not_modified(request: S3Request) -> Response:
    """Return 304 with the headers that a cache needs to update its copy (RFC 9110 section 15.4.5)."""
    info = (await request.engine.head(request.caller, request.bucket, request.key, request.version)).info
    lines = f'Last-Modified: {http_date(info.modified_ns // SECOND_NS)}\r\nETag: "{info.etag}"\r\n'
    for name in ("cache-control", "expires"):
        if name in info.headers:
            lines += meta_lines({name: info.headers[name]})
    if info.version is not None:
        lines += f"x-amz-version-id: {info.version}\r\n"
    return Response(304, lines, code="NotModified")


def _requested_range(request: S3Request) -> tuple[ByteRange | None, int | None]:
    """Return the requested range and the requested part number, at most one of which may be given. Raises S3Error
    InvalidRequest, InvalidArgument."""
    wants_checksum(request.headers)  # reject an invalid header before opening the object
    ranged = request.headers.get("range")
    part = part_number(request) if "partNumber" in request.query else None
    if ranged is None:
        return None, part
    if part is not None:
        raise S3Error("InvalidRequest", "Cannot specify both Range header and partNumber query parameter")
    return byte_range(ranged), None


async def _open(request: S3Request, wanted: ByteRange | None, part: int | None) -> tuple[Opened, bool]:
    """Open the object. Returns it, and whether the requested range was applied."""
    conditions = read_conditions(request.headers)
    if_range = request.headers.get("if-range")
    opened: Opened
    if if_range is None or wanted is None or conditions is not NO_CONDITIONS:
        opened = await request.engine.open(
            request.caller, request.bucket, request.key, request.version, wanted, part, conditions
        )
        return opened, wanted is not None
    # RFC 9110 section 13.1.5: the range if the object is unchanged, otherwise the whole object.
    same = _if_range_conditions(if_range)
    try:
        return await request.engine.open(
            request.caller, request.bucket, request.key, request.version, wanted, None, same
        ), True
    except core.PreconditionFailed:
        return await request.engine.open(request.caller, request.bucket, request.key, request.version), False


def _if_range_conditions(if_range: str) -> Conditions:
    at_ns = parse_date(if_range)
    if at_ns is not None:
        return Conditions(if_unmodified_since_ns=at_ns)
    return Conditions(if_match=etags(if_range, weak_match=False))


def object_lines(request: S3Request, opened: Opened, partial: bool) -> str:
    """Return the header lines that describe the opened object. *partial*: the response has only a range of it."""
    info = opened.info
    headers = info.headers
    if "response-" in request.target.raw_query:
        headers = with_overrides(headers, request.query)
    lines = (
        f'Last-Modified: {http_date(info.modified_ns // SECOND_NS)}\r\nETag: "{info.etag}"\r\nAccept-Ranges: bytes\r\n'
        f"{meta_lines(headers)}"
    )
    if request.settings.sealed:
        lines += "x-amz-server-side-encryption: AES256\r\n"
    if info.version is not None:
        lines += f"x-amz-version-id: {info.version}\r\n"
    if info.tags_count:
        lines += f"x-amz-tagging-count: {info.tags_count}\r\n"
    if partial:
        lines += f"Content-Range: bytes {opened.start}-{opened.start + opened.length - 1}/{info.size}\r\n"
        if opened.part is not None and info.parts_count:
            lines += f"x-amz-mp-parts-count: {info.parts_count}\r\n"
    return lines + checksum_lines(_checksum(opened, partial)) if wants_checksum(request.headers) else lines


def _checksum(opened: Opened, partial: bool) -> Checksum | None:
    """Return the checksum of the bytes in the response, against which clients check them. A range has none.

    As in S3, a part has its own checksum if the object's is composite, and a range or part that covers the whole object
    has the object's."""
    checksum, part = opened.info.checksum, opened.part
    if checksum is None or not partial:
        return checksum
    if checksum.type == COMPOSITE:
        return checksum._replace(value=part.checksum) if part is not None and part.checksum else None
    return checksum if opened.length == opened.info.size else None
