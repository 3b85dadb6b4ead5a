"""The settings of an S3 endpoint. Values with defaults; the caller of `make_server` chooses them."""

from __future__ import annotations

from dataclasses import dataclass

from s3api.extension_types import ExtensionHandler

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Names, limits and timeouts of one S3 endpoint. Sizes are in bytes, timeouts in seconds."""

    region: str = "us-east-1"
    """The region of the signing scope, and of GetBucketLocation."""
    base_domains: tuple[str, ...] = ()
    """Domains for virtual-hosted requests: with `s3.example.org`, the host `photos.s3.example.org` names the bucket
    `photos`."""
    server_name: str = "Entrepot"
    token_key: bytes = b""
    """The key that authenticates continuation tokens. All workers of a site share it, since the next page may be
    requested from another worker."""
    sealed: bool = True
    """Whether blocks are encrypted, so that responses may contain `x-amz-server-side-encryption: AES256`."""

    idle_seconds: float = 75.0
    """How long a connection may be idle, or take to send the head of a request."""
    body_idle_seconds: float = 30.0
    """How long a client may send nothing while its request's body is read."""
    write_idle_seconds: float = 60.0
    """How long a client may receive nothing while a response is sent."""
    drain_bytes: int = MIB
    """If at most this much of a request's body is unread after the response, it is read and the connection is kept."""

    connections: int = 12_000
    """The limit of connections in one worker. At the limit a new connection replaces an idle one; if none is idle, the
    new one is answered with SlowDown."""
    heads_bytes: int = 64 * MIB
    """The limit of the unfinished request heads of all connections in one worker together."""
    head_bytes: int = 32 * KIB
    """The limit of request line and headers together. S3 itself allows 8 KiB of headers."""
    header_count: int = 128
    xml_bytes: int = 4 * MIB
    """The limit of a request's XML. An indented list of 10,000 parts with checksums fits."""
    put_bytes: int = 5 * GIB
    part_bytes: int = 5 * GIB

    extension: ExtensionHandler | None = None
    """The handler of another protocol on this port; see `s3api.extension`."""
