"""Multipart uploads: create, abort, upload parts, list parts and uploads. `multipart_complete` completes them."""

from __future__ import annotations

from gateway import errors as core
from gateway.engine.types import ExpectedDigests, PartInfo, UploadInfo, UploadPage
from s3api.errors import S3Error
from s3api.format import checksums
from s3api.format.conditions import copy_range, read_conditions
from s3api.format.copy_source import SOURCE, copy_source
from s3api.format.listing_xml import KeyEncoder, format_prefixes, key_encoder
from s3api.format.metadata import object_meta
from s3api.format.owners import Owners
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape, escape_bytes, iso, quoted
from s3api.http.bodies import request_body
from s3api.ops.copy import SOURCE_CONDITIONS, source_errors, source_line
from s3api.ops.expected_owner import EXPECTED_OF_SOURCE, check_expected_owner
from s3api.request import MAX_KEYS, S3Request, part_number
from s3api.response import Response, xml_response

_SEALED = "x-amz-server-side-encryption: AES256\r\n"


async def create_multipart_upload(request: S3Request) -> Response:
    """POST /bucket/key?uploads"""
    headers = request.headers
    request.refuse_version()
    meta = object_meta(headers, headers.get("x-amz-tagging"))
    requested, requested_type = headers.get("x-amz-checksum-algorithm"), headers.get("x-amz-checksum-type")
    if requested_type and not requested:
        raise S3Error(
            "InvalidRequest",
            "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
        )
    algorithm = checksums.check_algorithm(requested) if requested else ""
    kind = checksums.upload_type(algorithm, requested_type) if algorithm else ""
    upload = await request.engine.create_upload(request.caller, request.bucket, request.key, meta, algorithm, kind)
    lines = _SEALED if request.settings.sealed else ""
    if algorithm:
        lines += f"x-amz-checksum-algorithm: {algorithm}\r\nx-amz-checksum-type: {kind}\r\n"
    return xml_response(
        f"{XML_HEAD}<InitiateMultipartUploadResult {XMLNS}><Bucket>{request.bucket}</Bucket>"
        f"<Key>{escape_bytes(request.key)}</Key><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>",
        lines,
    )


async def upload_part(request: S3Request) -> Response:
    """PUT /bucket/key?partNumber&uploadId"""
    headers, settings = request.headers, request.settings
    number = part_number(request)
    algorithm, checksum = checksums.requested_checksum(headers)
    body, size, sha256 = request_body(request)
    if size > settings.part_bytes:
        raise core.EntityTooLarge(size, settings.part_bytes)
    expected = ExpectedDigests(size, checksums.content_md5(headers), sha256, checksum)
    part = await request.engine.put_part(
        request.caller, request.bucket, request.key, request.query["uploadId"], number, body, expected, algorithm
    )
    lines = f'ETag: "{part.etag}"\r\n' + (_SEALED if settings.sealed else "")
    # The engine has verified the checksum that the client sent in a header or in the trailer.
    verified = checksum or body.trailing_checksum()
    if verified is not None:
        lines += f"x-amz-checksum-{verified[0].lower()}: {verified[1]}\r\n"
    return Response(200, lines)


async def upload_part_copy(request: S3Request) -> Response:
    """PUT /bucket/key?partNumber&uploadId with x-amz-copy-source"""
    headers = request.headers
    number = part_number(request)
    source, ranged = copy_source(headers[SOURCE]), headers.get("x-amz-copy-source-range")
    await check_expected_owner(request, EXPECTED_OF_SOURCE, source.bucket)
    with source_errors(source):
        copied = await request.engine.copy_part(
            request.caller,
            request.bucket,
            request.key,
            request.query["uploadId"],
            number,
            *source,
            copy_range(ranged) if ranged is not None else None,
            read_conditions(headers, SOURCE_CONDITIONS),
            request.settings.part_bytes,
        )
    part = copied.part
    return xml_response(
        f"{XML_HEAD}<CopyPartResult {XMLNS}><LastModified>{iso(part.modified_ns)}</LastModified>"
        f"<ETag>{quoted(part.etag)}</ETag>{checksums.value_xml(copied.algorithm, part.checksum)}</CopyPartResult>",
        source_line(copied.source_version) + (_SEALED if request.settings.sealed else ""),
    )


async def abort_multipart_upload(request: S3Request) -> Response:
    """DELETE /bucket/key?uploadId"""
    await request.engine.abort_upload(request.caller, request.bucket, request.key, request.query["uploadId"])
    return Response(204)


async def list_parts(request: S3Request) -> Response:
    """GET /bucket/key?uploadId"""
    marker = request.number("part-number-marker", 0)
    limit = request.number("max-parts", MAX_KEYS, MAX_KEYS)
    upload = request.query["uploadId"]
    page = await request.engine.list_parts(request.caller, request.bucket, request.key, upload, marker, max(limit, 1))
    shown = page.parts[:limit]
    more = page.next_number is not None or len(page.parts) > limit
    last = shown[-1].number if shown else marker
    encode = key_encoder(request.url_encoding())
    info, owners = page.upload, Owners(request.engine, request.caller)
    parts = "".join([_part_xml(each, info.checksum) for each in shown])
    kinds = ""
    if info.checksum:
        kinds = (
            f"<ChecksumAlgorithm>{info.checksum}</ChecksumAlgorithm><ChecksumType>{info.checksum_type}</ChecksumType>"
        )
    return xml_response(
        f"{XML_HEAD}<ListPartsResult {XMLNS}><Bucket>{request.bucket}</Bucket><Key>{encode(request.key)}</Key>"
        f"<UploadId>{escape(upload)}</UploadId>{owners.xml(info.owner, 'Initiator')}{owners.xml(info.owner)}"
        f"<StorageClass>STANDARD</StorageClass>{kinds}<PartNumberMarker>{marker}</PartNumberMarker>"
        f"<NextPartNumberMarker>{last}</NextPartNumberMarker><MaxParts>{limit}</MaxParts>"
        f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{parts}</ListPartsResult>"
    )


def _part_xml(part: PartInfo, algorithm: str) -> str:
    return (
        f"<Part><PartNumber>{part.number}</PartNumber><LastModified>{iso(part.modified_ns)}</LastModified>"
        f"<ETag>{quoted(part.etag)}</ETag>{checksums.value_xml(algorithm, part.checksum)}<Size>{part.size}</Size>"
        "</Part>"
    )


async def list_multipart_uploads(request: S3Request) -> Response:
    """GET /bucket?uploads"""
    key_marker, upload_marker = request.raw("key-marker"), request.query.get("upload-id-marker", "")
    prefix, delimiter = request.raw("prefix"), request.raw("delimiter")
    limit = request.number("max-uploads", MAX_KEYS, MAX_KEYS)
    url = request.url_encoding()
    encode = key_encoder(url)
    if limit == 0:
        await request.engine.head_bucket(request.caller, request.bucket)
        page = UploadPage([], [], None, None)
    else:
        page = await _uploads(request, key_marker, upload_marker, limit)
    head = (
        f"<Bucket>{request.bucket}</Bucket><KeyMarker>{encode(key_marker)}</KeyMarker>"
        f"<UploadIdMarker>{escape(upload_marker)}</UploadIdMarker>{_more_xml(page, encode)}"
        f"<Prefix>{encode(prefix)}</Prefix><MaxUploads>{limit}</MaxUploads>"
    )
    if delimiter:
        head += f"<Delimiter>{encode(delimiter)}</Delimiter>"
    if url:
        head += "<EncodingType>url</EncodingType>"
    owners = Owners(request.engine, request.caller)
    uploads = "".join([_upload_xml(each, encode, owners) for each in page.uploads])
    return xml_response(
        f"{XML_HEAD}<ListMultipartUploadsResult {XMLNS}>{head}{uploads}{format_prefixes(page.prefixes, encode)}"
        "</ListMultipartUploadsResult>"
    )


async def _uploads(request: S3Request, key_marker: bytes, upload_marker: str, limit: int) -> UploadPage:
    """Return one page. As in S3, upload-id-marker is ignored without key-marker."""
    prefix, delimiter, after = request.raw("prefix"), request.raw("delimiter"), upload_marker if key_marker else ""
    try:
        page: UploadPage = await request.engine.list_uploads(
            request.caller, request.bucket, prefix, delimiter, key_marker, after, limit
        )
    except core.NoSuchUpload:
        raise S3Error(
            "InvalidArgument", "Invalid uploadId marker", ArgumentName="upload-id-marker", ArgumentValue=upload_marker
        ) from None
    return page


def _more_xml(page: UploadPage, encode: KeyEncoder) -> str:
    if page.next_key is None:
        return "<IsTruncated>false</IsTruncated>"
    upload = f"<NextUploadIdMarker>{page.next_upload}</NextUploadIdMarker>" if page.next_upload else ""
    return f"<IsTruncated>true</IsTruncated><NextKeyMarker>{encode(page.next_key)}</NextKeyMarker>{upload}"


def _upload_xml(each: UploadInfo, encode: KeyEncoder, owners: Owners) -> str:
    kinds = ""
    if each.checksum:
        kinds = (
            f"<ChecksumAlgorithm>{each.checksum}</ChecksumAlgorithm><ChecksumType>{each.checksum_type}</ChecksumType>"
        )
    return (
        f"<Upload><Key>{encode(each.key)}</Key><UploadId>{each.upload}</UploadId>{owners.xml(each.owner, 'Initiator')}"
        f"{owners.xml(each.owner)}<StorageClass>STANDARD</StorageClass><Initiated>{iso(each.made_ns)}</Initiated>"
        f"{kinds}</Upload>"
    )
