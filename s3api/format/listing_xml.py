"""Pages of listings as XML. Pure, and hot: one f-string a key, dates cached, escaping only where it is needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gateway.engine.types import Page
from gateway.journal.columns import checksum_kind, kind_names
from s3api.format.owners import Owners
from s3api.format.xml_writer import escape_bytes, iso_second, url_encode

SECOND_NS = 1_000_000_000
KeyEncoder = Callable[[bytes], str]


def key_encoder(url: bool) -> KeyEncoder:
    """How keys are written: percent-encoded under `encoding-type=url`, else escaped."""
    return url_encode if url else escape_bytes


def format_keys(page: Page, encode: KeyEncoder, owners: Owners | None) -> str:
    """The Contents elements; None leaves owners out."""
    out = []
    for path, rows in page.groups:
        # a path ends in a slash, or is empty: what stands before and behind is spelled alike, apart or together
        key = f"<Contents><Key>{encode(path)}"
        for name, size, etag, modified_ns, owner, checksum in rows:
            # Many names are ASCII without anything to escape; a run of such bytes is found at C speed.
            shown = name.decode("ascii") if name.isalnum() else encode(name)
            who = f"<Owner>{owners[owner]}</Owner>" if owners is not None else ""
            out.append(
                f"{key}{shown}</Key><LastModified>{iso_second(modified_ns // SECOND_NS)}</LastModified>"
                f"<ETag>&quot;{etag}&quot;</ETag>{kind_xml(checksum)}<Size>{size}</Size>{who}"
                f"<StorageClass>STANDARD</StorageClass></Contents>"
            )
    return "".join(out)


@lru_cache(maxsize=256)
def kind_xml(checksum: bytes | None) -> str:
    """The elements that say which checksum an object has."""
    algorithm, of = kind_names(checksum_kind(checksum))
    if not algorithm:
        return ""
    return f"<ChecksumAlgorithm>{algorithm}</ChecksumAlgorithm><ChecksumType>{of}</ChecksumType>"


def format_prefixes(prefixes: list[bytes], encode: KeyEncoder) -> str:
    """The CommonPrefixes elements."""
    return "".join([f"<CommonPrefixes><Prefix>{encode(each)}</Prefix></CommonPrefixes>" for each in prefixes])


def format_page(page: Page, encode: KeyEncoder, owners: Owners | None) -> str:
    """Keys, then prefixes, as S3 orders them."""
    return format_keys(page, encode, owners) + format_prefixes(page.prefixes, encode)
