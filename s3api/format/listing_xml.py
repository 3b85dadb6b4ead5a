"""Format pages of listings as XML. Pure. This is a hot path: one f-string for each key, dates are cached, and keys are
escaped only if needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gateway.engine.types import Page, checksum_kind, kind_names
from s3api.format.owners import Owners
from s3api.format.xml_writer import escape_bytes, iso_second, url_encode

SECOND_NS = 1_000_000_000
KeyEncoder = Callable[[bytes], str]
"""Encodes a key for XML."""


def key_encoder(url: bool) -> KeyEncoder:
    """Return how keys are encoded: percent-encoded with `encoding-type=url`, otherwise escaped for XML."""
    return url_encode if url else escape_bytes


def format_keys(page: Page, encode: KeyEncoder, owners: Owners | None) -> str:
    """Return the Contents elements. *owners*: None leaves owners out."""
    out = []
    for path, rows in page.groups:
        # A path ends in a slash or is empty, so path and name can be encoded separately.
        key = f"<Contents><Key>{encode(path)}"
        for name, size, etag, modified_ns, owner, checksum in rows:
            # Most names need no escaping; `isalnum` detects that at the speed of C.
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
    """Return the elements with the algorithm and the type of an object's checksum."""
    algorithm, of = kind_names(checksum_kind(checksum))
    if not algorithm:
        return ""
    return f"<ChecksumAlgorithm>{algorithm}</ChecksumAlgorithm><ChecksumType>{of}</ChecksumType>"


def format_prefixes(prefixes: list[bytes], encode: KeyEncoder) -> str:
    """Return the CommonPrefixes elements."""
    return "".join([f"<CommonPrefixes><Prefix>{encode(each)}</Prefix></CommonPrefixes>" for each in prefixes])


def format_page(page: Page, encode: KeyEncoder, owners: Owners | None) -> str:
    """Return the elements of the keys, then those of the prefixes, in S3's order."""
    return format_keys(page, encode, owners) + format_prefixes(page.prefixes, encode)
