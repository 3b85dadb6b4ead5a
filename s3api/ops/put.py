"""PutObject, and the header lines that every write returns."""

from __future__ import annotations

from gateway import errors as core
from gateway.engine.types import ExpectedDigests, Stored
from s3api.format import checksums
from s3api.format.conditions import write_conditions
from s3api.format.metadata import object_meta
from s3api.http.bodies import request_body
from s3api.request import S3Request
from s3api.response import Response


async def put_object(request: S3Request) -> Response:
    """PUT /bucket/key"""
    headers, settings = request.headers, request.settings
    request.refuse_version()
    meta = object_meta(headers, headers.get("x-amz-tagging"))
    conditions = write_conditions(headers)
    algorithm, checksum = checksums.requested_checksum(headers)
    body, size, sha256 = request_body(request)
    if size > settings.put_bytes:
        raise core.EntityTooLarge(size, settings.put_bytes)
    expected = ExpectedDigests(size, checksums.content_md5(headers), sha256, checksum)
    stored = await request.engine.put(
        request.caller, request.bucket, request.key, body, expected, meta, conditions, checksum_algorithm=algorithm
    )
    return Response(200, stored_lines(request, stored) + checksums.checksum_lines(stored.checksum))


def stored_lines(request: S3Request, stored: Stored) -> str:
    """Return the header lines with ETag, version and encryption."""
    return f'ETag: "{stored.etag}"\r\n{version_lines(request, stored.version)}'


def version_lines(request: S3Request, version: str | None) -> str:
    """Return the header lines with version and encryption, which every write of an object returns."""
    lines = "x-amz-server-side-encryption: AES256\r\n" if request.settings.sealed else ""
    return lines if version is None else f"{lines}x-amz-version-id: {version}\r\n"
