"""ListObjects, versions 1 and 2: parse the parameters, request one page from the engine, and format it."""

from __future__ import annotations

from gateway.engine.types import Page
from s3api.format.listing_xml import KeyEncoder, format_page, key_encoder
from s3api.format.owners import Owners
from s3api.format.tokens import open_token, seal_token
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape
from s3api.request import MAX_KEYS, S3Request
from s3api.response import Response, xml_response


async def list_objects_v2(request: S3Request) -> Response:
    """GET /bucket?list-type=2"""
    token = request.query.get("continuation-token")
    after = open_token(request.settings.token_key, request.bucket, token) if token else request.raw("start-after")
    limit = request.number("max-keys", MAX_KEYS, MAX_KEYS)
    url = request.url_encoding()
    page = await _page(request, after, limit)
    return xml_response(
        format_list_v2(
            page,
            bucket=request.bucket,
            prefix=request.raw("prefix"),
            delimiter=request.raw("delimiter"),
            start_after=request.raw("start-after"),
            limit=limit,
            url=url,
            owners=Owners(request.engine, request.caller) if request.query.get("fetch-owner") == "true" else None,
            token=token,
            next_token=seal_token(request.settings.token_key, request.bucket, page.next)
            if page.next is not None
            else "",
        )
    )


def format_list_v2(
    page: Page,
    *,
    bucket: str,
    prefix: bytes = b"",
    delimiter: bytes = b"",
    start_after: bytes = b"",
    limit: int = MAX_KEYS,
    url: bool = False,
    owners: Owners | None = None,
    token: str | None = None,
    next_token: str = "",
) -> str:
    """Return the XML document of one page. Pure."""
    encode = key_encoder(url)
    head = [_head(bucket, prefix, delimiter, limit, url, encode)]
    head.append(f"<KeyCount>{page.count}</KeyCount>")
    head.append(f"<IsTruncated>{'true' if next_token else 'false'}</IsTruncated>")
    if token is not None:
        head.append(f"<ContinuationToken>{escape(token)}</ContinuationToken>")
    if next_token:
        head.append(f"<NextContinuationToken>{next_token}</NextContinuationToken>")
    if start_after:
        head.append(f"<StartAfter>{encode(start_after)}</StartAfter>")
    return f"{''.join(head)}{format_page(page, encode, owners)}</ListBucketResult>"


async def list_objects_v1(request: S3Request) -> Response:
    """GET /bucket"""
    marker, delimiter = request.raw("marker"), request.raw("delimiter")
    limit = request.number("max-keys", MAX_KEYS, MAX_KEYS)
    url = request.url_encoding()
    page = await _page(request, marker, limit)
    encode = key_encoder(url)
    head = [_head(request.bucket, request.raw("prefix"), delimiter, limit, url, encode)]
    head.append(f"<Marker>{encode(marker)}</Marker>")
    head.append(f"<IsTruncated>{'true' if page.next is not None else 'false'}</IsTruncated>")
    if page.next is not None and delimiter:
        # Without a delimiter, clients continue after the last key.
        head.append(f"<NextMarker>{encode(page.next)}</NextMarker>")
    return xml_response(
        f"{''.join(head)}{format_page(page, encode, Owners(request.engine, request.caller))}</ListBucketResult>"
    )


async def _page(request: S3Request, after: bytes, limit: int) -> Page:
    if limit == 0:
        # An empty page; the bucket must still exist and belong to the caller.
        await request.engine.head_bucket(request.caller, request.bucket)
        return Page([], [], None)
    page: Page = await request.engine.list(
        request.caller, request.bucket, request.raw("prefix"), request.raw("delimiter"), after, limit
    )
    return page


def _head(bucket: str, prefix: bytes, delimiter: bytes, limit: int, url: bool, encode: KeyEncoder) -> str:
    parts = [f"{XML_HEAD}<ListBucketResult {XMLNS}><Name>{bucket}</Name><Prefix>{encode(prefix)}</Prefix>"]
    if delimiter:
        parts.append(f"<Delimiter>{encode(delimiter)}</Delimiter>")
    parts.append(f"<MaxKeys>{limit}</MaxKeys>")
    if url:
        parts.append("<EncodingType>url</EncodingType>")
    return "".join(parts)
