"""Pages of listings as XML. Pure, and hot: one f-string a key, dates cached, escaping only where it is needed."""

from __future__ import annotations

from collections.abc import Callable

from gateway.engine.types import Listed, Page
from s3api.owners import Owners
from s3api.xml_writing import escape_bytes, iso_second, url_encode

SECOND_NS = 1_000_000_000
Spell = Callable[[bytes], str]


def speller(url: bool) -> Spell:
    """How keys are written: percent-encoded under `encoding-type=url`, else escaped."""
    return url_encode if url else escape_bytes


def format_keys(listed: list[Listed], spell: Spell, owners: Owners | None) -> str:
    """The Contents elements; None leaves owners out."""
    out = []
    for each in listed:
        shown = each.key
        # Most keys are ASCII without anything to escape; a run of such bytes is found at C speed.
        key = shown.decode("ascii") if shown.isalnum() else spell(shown)
        checksum = each.checksum_algorithm
        if checksum:
            checksum = (
                f"<ChecksumAlgorithm>{checksum}</ChecksumAlgorithm><ChecksumType>{each.checksum_type}</ChecksumType>"
            )
        who = f"<Owner>{owners[each.owner]}</Owner>" if owners is not None else ""
        out.append(
            f"<Contents><Key>{key}</Key><LastModified>{iso_second(each.modified_ns // SECOND_NS)}</LastModified>"
            f"<ETag>&quot;{each.etag}&quot;</ETag>{checksum}<Size>{each.size}</Size>{who}"
            f"<StorageClass>STANDARD</StorageClass></Contents>"
        )
    return "".join(out)


def format_prefixes(prefixes: list[bytes], spell: Spell) -> str:
    """The CommonPrefixes elements."""
    return "".join([f"<CommonPrefixes><Prefix>{spell(each)}</Prefix></CommonPrefixes>" for each in prefixes])


def format_page(page: Page, spell: Spell, owners: Owners | None) -> str:
    """Keys, then prefixes, as S3 orders them."""
    return format_keys(page.keys, spell, owners) + format_prefixes(page.prefixes, spell)
