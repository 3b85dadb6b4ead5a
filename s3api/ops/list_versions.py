"""ListObjectVersions: versions and delete markers of a bucket's names, newest first, in pages."""

from __future__ import annotations

from gateway.engine.types import ListedVersion, VersionPage
from s3api.errors import S3Error
from s3api.format.listing_xml import Spell, format_prefixes, kind_xml, speller
from s3api.format.owners import Owners
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape, iso
from s3api.request import MAX_KEYS, Call
from s3api.response import Answer, xml_answer


async def list_object_versions(call: Call) -> Answer:
    """GET /bucket?versions"""
    key_marker, version_marker = call.raw("key-marker"), call.query.get("version-id-marker", "")
    if version_marker and not key_marker:
        raise S3Error("InvalidArgument", "A version-id marker cannot be specified without a key marker.")
    prefix, delimiter = call.raw("prefix"), call.raw("delimiter")
    limit = call.number("max-keys", MAX_KEYS, MAX_KEYS)
    url = call.url_encoding()
    if limit == 0:
        await call.engine.head_bucket(call.caller, call.bucket)
        page = VersionPage([], [], None, None)
    else:
        page = await call.engine.list_versions(
            call.caller, call.bucket, prefix, delimiter, key_marker, version_marker, limit
        )
    spell = speller(url)
    head = (
        f"<Name>{call.bucket}</Name><Prefix>{spell(prefix)}</Prefix><KeyMarker>{spell(key_marker)}</KeyMarker>"
        f"<VersionIdMarker>{escape(version_marker)}</VersionIdMarker><MaxKeys>{limit}</MaxKeys>"
    )
    if delimiter:
        head += f"<Delimiter>{spell(delimiter)}</Delimiter>"
    if url:
        head += "<EncodingType>url</EncodingType>"
    listed = format_versions(page.versions, spell, Owners(call.engine)) + format_prefixes(page.prefixes, spell)
    return xml_answer(
        f"{XML_HEAD}<ListVersionsResult {XMLNS}>{head}{_more_xml(page, spell)}{listed}</ListVersionsResult>"
    )


def _more_xml(page: VersionPage, spell: Spell) -> str:
    if page.next_key is None:
        return "<IsTruncated>false</IsTruncated>"
    version = f"<NextVersionIdMarker>{page.next_version}</NextVersionIdMarker>" if page.next_version else ""
    return f"<IsTruncated>true</IsTruncated><NextKeyMarker>{spell(page.next_key)}</NextKeyMarker>{version}"


def format_versions(versions: list[ListedVersion], spell: Spell, owners: Owners) -> str:
    """The Version and DeleteMarker elements, in the order they came."""
    return "".join([_version_xml(each, spell, owners) for each in versions])


def _version_xml(each: ListedVersion, spell: Spell, owners: Owners) -> str:
    common = (
        f"<Key>{spell(each.key)}</Key><VersionId>{each.version}</VersionId>"
        f"<IsLatest>{'true' if each.is_latest else 'false'}</IsLatest><LastModified>{iso(each.modified_ns)}"
        f"</LastModified>{owners.xml(each.owner)}"
    )
    if each.marker:
        return f"<DeleteMarker>{common}</DeleteMarker>"
    return (
        f"<Version>{common}<ETag>&quot;{each.etag}&quot;</ETag>{kind_xml(each.checksum)}<Size>{each.size}</Size>"
        f"<StorageClass>STANDARD</StorageClass></Version>"
    )
