"""CopyObject, and the errors of a copy's source, which UploadPartCopy also has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway import errors as core
from s3api.errors import S3Error
from s3api.format import checksums
from s3api.format.checksums import checksum_xml
from s3api.format.conditions import read_conditions, write_conditions
from s3api.format.copy_source import SOURCE, CopySource, copy_source
from s3api.format.metadata import object_meta, parse_tagging
from s3api.format.xml_writer import XML_HEAD, XMLNS, iso, quoted
from s3api.ops.expected_owner import EXPECTED_OF_SOURCE, check_expected_owner
from s3api.ops.put import version_lines
from s3api.request import S3Request
from s3api.response import Response, xml_response

SOURCE_CONDITIONS = "x-amz-copy-source-"


@contextmanager
def source_errors(source: CopySource) -> Iterator[None]:
    """Translate the error for a source that is a delete marker: S3Error InvalidRequest if the request names the
    marker's version, as in S3; otherwise the key is absent and `DeleteMarker` is raised as it is."""
    try:
        yield
    except core.DeleteMarker:
        if source.version is None:
            raise
        raise S3Error(
            "InvalidRequest",
            "The source of a copy request may not specifically refer to a delete marker by version id.",
        ) from None


async def copy_object(request: S3Request) -> Response:
    """PUT /bucket/key with x-amz-copy-source"""
    headers = request.headers
    request.refuse_version()
    source = copy_source(headers[SOURCE])
    replace_meta = _replaces(headers, "x-amz-metadata-directive")
    replace_tags = _replaces(headers, "x-amz-tagging-directive")
    algorithm = headers.get("x-amz-checksum-algorithm")
    if algorithm is not None:
        algorithm = checksums.check_algorithm(algorithm)
    if not (replace_meta or replace_tags or algorithm) and _is_itself(request, source):
        raise S3Error(
            "InvalidRequest",
            "This copy request is illegal because it is trying to copy an object to itself without changing the "
            "object's metadata, storage class, website redirect location or encryption attributes.",
        )
    await check_expected_owner(request, EXPECTED_OF_SOURCE, source.bucket)
    with source_errors(source):
        stored, version = await request.engine.copy(
            request.caller,
            *source,
            read_conditions(headers, SOURCE_CONDITIONS),
            request.bucket,
            request.key,
            object_meta(headers) if replace_meta else None,
            parse_tagging(headers.get("x-amz-tagging", "")) if replace_tags else None,
            write_conditions(headers),
            algorithm,
            request.settings.put_bytes,
        )
    return xml_response(
        f"{XML_HEAD}<CopyObjectResult {XMLNS}><LastModified>{iso(stored.modified_ns)}</LastModified>"
        f"<ETag>{quoted(stored.etag)}</ETag>{checksum_xml(stored.checksum)}</CopyObjectResult>",
        version_lines(request, stored.version) + source_line(version),
    )


def _replaces(headers: dict[str, str], name: str) -> bool:
    directive = headers.get(name, "COPY")
    if directive not in {"COPY", "REPLACE"}:
        raise S3Error("InvalidArgument", f"Unknown {name}.", ArgumentName=name, ArgumentValue=directive)
    return directive == "REPLACE"


def _is_itself(request: S3Request, source: CopySource) -> bool:
    """Return whether the copy would change nothing. Copying an older version over its own key restores it, which is a
    change."""
    has_attributes = "x-amz-storage-class" in request.headers or "x-amz-server-side-encryption" in request.headers
    return not has_attributes and source == (request.bucket, request.key, None)


def source_line(version: str | None) -> str:
    """Return the header line with the version that was copied."""
    return f"x-amz-copy-source-version-id: {version}\r\n" if version is not None else ""
