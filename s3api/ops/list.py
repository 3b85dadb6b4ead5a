"""ListObjects, both versions of it: what is asked for, one page from the engine, the XML around it."""

from __future__ import annotations

from gateway.engine.types import Page
from s3api.format.listing_xml import Spell, format_page, speller
from s3api.format.owners import Owners
from s3api.format.tokens import open_token, seal_token
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape
from s3api.request import MAX_KEYS, Call
from s3api.response import Answer, xml_answer


async def list_objects_v2(call: Call) -> Answer:
    """GET /bucket?list-type=2"""
    token = call.query.get("continuation-token")
    after = open_token(call.settings.token_key, call.bucket, token) if token else call.raw("start-after")
    limit = call.number("max-keys", MAX_KEYS, MAX_KEYS)
    url = call.url_encoding()
    page = await _page(call, after, limit)
    return xml_answer(
        format_list_v2(
            page,
            bucket=call.bucket,
            prefix=call.raw("prefix"),
            delimiter=call.raw("delimiter"),
            start_after=call.raw("start-after"),
            limit=limit,
            url=url,
            owners=Owners(call.engine) if call.query.get("fetch-owner") == "true" else None,
            token=token,
            next_token=seal_token(call.settings.token_key, call.bucket, page.next) if page.next is not None else "",
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
    """The whole XML of one page. Pure."""
    spell = speller(url)
    head = [_head(bucket, prefix, delimiter, limit, url, spell)]
    head.append(f"<KeyCount>{page.count}</KeyCount>")
    head.append(f"<IsTruncated>{'true' if next_token else 'false'}</IsTruncated>")
    if token is not None:
        head.append(f"<ContinuationToken>{escape(token)}</ContinuationToken>")
    if next_token:
        head.append(f"<NextContinuationToken>{next_token}</NextContinuationToken>")
    if start_after:
        head.append(f"<StartAfter>{spell(start_after)}</StartAfter>")
    return f"{''.join(head)}{format_page(page, spell, owners)}</ListBucketResult>"


async def list_objects_v1(call: Call) -> Answer:
    """GET /bucket"""
    marker, delimiter = call.raw("marker"), call.raw("delimiter")
    limit = call.number("max-keys", MAX_KEYS, MAX_KEYS)
    url = call.url_encoding()
    page = await _page(call, marker, limit)
    spell = speller(url)
    head = [_head(call.bucket, call.raw("prefix"), delimiter, limit, url, spell)]
    head.append(f"<Marker>{spell(marker)}</Marker>")
    head.append(f"<IsTruncated>{'true' if page.next is not None else 'false'}</IsTruncated>")
    if page.next is not None and delimiter:
        # Without a delimiter clients take the last key themselves.
        head.append(f"<NextMarker>{spell(page.next)}</NextMarker>")
    return xml_answer(f"{''.join(head)}{format_page(page, spell, Owners(call.engine))}</ListBucketResult>")


async def _page(call: Call, after: bytes, limit: int) -> Page:
    if limit == 0:
        # Nothing is asked for; that the bucket is there and may be read still counts.
        await call.engine.head_bucket(call.caller, call.bucket)
        return Page([], [], None)
    page: Page = await call.engine.list(
        call.caller, call.bucket, call.raw("prefix"), call.raw("delimiter"), after, limit
    )
    return page


def _head(bucket: str, prefix: bytes, delimiter: bytes, limit: int, url: bool, spell: Spell) -> str:
    parts = [f"{XML_HEAD}<ListBucketResult {XMLNS}><Name>{bucket}</Name><Prefix>{spell(prefix)}</Prefix>"]
    if delimiter:
        parts.append(f"<Delimiter>{spell(delimiter)}</Delimiter>")
    parts.append(f"<MaxKeys>{limit}</MaxKeys>")
    if url:
        parts.append("<EncodingType>url</EncodingType>")
    return "".join(parts)
