"""What the S3 door is told by the site that opens it: values with defaults. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s3api.extension import ExtensionHandler

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Names, bounds and deadlines of one S3 endpoint. Sizes are bytes, deadlines seconds."""

    region: str = "us-east-1"
    """The region of the signing scope, and what GetBucketLocation answers."""
    base_domains: tuple[str, ...] = ()
    """Under `s3.example.org`, the host `photos.s3.example.org` names the bucket `photos`."""
    server_name: str = "Entrepot"
    token_key: bytes = b""
    """Seals continuation tokens; every worker of a site has the same, so that a page may come from another."""
    sealed: bool = True
    """Blocks are encrypted, so answers may say `x-amz-server-side-encryption: AES256`."""

    idle_seconds: float = 75.0
    """How long a connection may be idle, or take to send the head of a request."""
    body_idle_seconds: float = 30.0
    """How long a body may pause."""
    write_idle_seconds: float = 60.0
    """How long a client may take no byte of an answer."""
    drain_bytes: int = MIB
    """An unread rest of a body up to this size does not cost the client its connection."""

    connections: int = 12_000
    """How many connections a worker keeps. For one more an idle one ends; where none is, it is answered SlowDown."""
    heads_bytes: int = 64 * MIB
    """Heads that have not ended yet, of all connections of a worker together."""
    head_bytes: int = 32 * KIB
    """Request line and headers together; S3 itself takes 8 KiB of headers."""
    header_count: int = 128
    xml_bytes: int = 4 * MIB
    """A request's XML; 10,000 parts with their checksums fit, indented."""
    put_bytes: int = 5 * GIB
    part_bytes: int = 5 * GIB
    metadata_bytes: int = 2 * KIB
    """Names and values of user metadata together."""

    extension: ExtensionHandler | None = None
    """Another protocol on this port: see `s3api.extension`."""
