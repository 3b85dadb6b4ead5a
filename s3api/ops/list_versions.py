"""ListObjectVersions: pages of the versions and delete markers of a bucket's keys, newest first."""

from __future__ import annotations

from gateway.engine.types import ListedVersion, VersionPage
from s3api.errors import S3Error
from s3api.format.listing_xml import KeyEncoder, format_prefixes, key_encoder, kind_xml
from s3api.format.owners import Owners
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape, iso
from s3api.request import MAX_KEYS, S3Request
from s3api.response import Response, xml_response


async def list_object_versions(request: S3Request) -> Response:
    """GET /bucket?versions"""
    key_marker, version_marker = request.raw("key-marker"), request.query.get("version-id-marker", "")
    if version_marker and not key_marker:
        raise S3Error("InvalidArgument", "A version-id marker cannot be specified without a key marker.")
    prefix, delimiter = request.raw("prefix"), request.raw("delimiter")
    limit = request.number("max-keys", MAX_KEYS, MAX_KEYS)
    url = request.url_encoding()
    if limit == 0:
        await request.engine.head_bucket(request.caller, request.bucket)
        page = VersionPage([], [], None, None)
    else:
        page = await request.engine.list_versions(
            request.caller, request.bucket, prefix, delimiter, key_marker, version_marker, limit
        )
    encode = key_encoder(url)
    head = (
        f"<Name>{request.bucket}</Name><Prefix>{encode(prefix)}</Prefix><KeyMarker>{encode(key_marker)}</KeyMarker>"
        f"<VersionIdMarker>{escape(version_marker)}</VersionIdMarker><MaxKeys>{limit}</MaxKeys>"
    )
    if delimiter:
        head += f"<Delimiter>{encode(delimiter)}</Delimiter>"
    if url:
        head += "<EncodingType>url</EncodingType>"
    listed = format_versions(page.versions, encode, Owners(request.engine, request.caller)) + format_prefixes(
        page.prefixes, encode
    )
    return xml_response(
        f"{XML_HEAD}<ListVersionsResult {XMLNS}>{head}{_more_xml(page, encode)}{listed}</ListVersionsResult>"
    )


def _more_xml(page: VersionPage, encode: KeyEncoder) -> str:
    if page.next_key is None:
        return "<IsTruncated>false</IsTruncated>"
    version = f"<NextVersionIdMarker>{page.next_version}</NextVersionIdMarker>" if page.next_version else ""
    return f"<IsTruncated>true</IsTruncated><NextKeyMarker>{encode(page.next_key)}</NextKeyMarker>{version}"


def format_versions(versions: list[ListedVersion], encode: KeyEncoder, owners: Owners) -> str:
    """Return the Version and DeleteMarker elements, in the order of *versions*."""
    return "".join([_version_xml(each, encode, owners) for each in versions])


def _version_xml(each: ListedVersion, encode: KeyEncoder, owners: Owners) -> str:
    common = (
        f"<Key>{encode(each.key)}</Key><VersionId>{each.version}</VersionId>"
        f"<IsLatest>{'true' if each.is_latest else 'false'}</IsLatest><LastModified>{iso(each.modified_ns)}"
        f"</LastModified>{owners.xml(each.owner)}"
    )
    if each.marker:
        return f"<DeleteMarker>{common}</DeleteMarker>"
    return (
        f"<Version>{common}<ETag>&quot;{each.etag}&quot;</ETag>{kind_xml(each.checksum)}<Size>{each.size}</Size>"
        f"<StorageClass>STANDARD</StorageClass></Version>"
    )
