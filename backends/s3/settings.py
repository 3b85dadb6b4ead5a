"""The settings of an S3 backend, validated without a connection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from backends import errors
from backends.named_files import read_named_file
from backends.timing import DEFAULTS, DriverTiming

Style = Literal["auto", "path", "virtual"]
Confirm = Literal["auto", "checksum", "etag", "read"]

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_PREFIX_SEGMENT = re.compile(r"[0-9A-Za-z_=+@-][0-9A-Za-z._=+@-]*")
_AWS = re.compile(r"\.amazonaws\.com(\.cn)?$")


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The arguments of `S3.open`. `prefix` is empty or ends with a slash; `endpoint` None is AWS."""

    name: str
    bucket: str
    prefix: str
    endpoint: str | None
    region: str | None
    profile: str | None
    access_key: str | None
    secret_key: str | None
    session_token: str | None
    style: Style
    create_bucket: bool
    ca_file: str | None
    connections: int
    timeout_s: float
    confirm: Confirm
    timing: DriverTiming = DEFAULTS

    def check(self) -> None:
        """Raise `Misconfigured`, with the field and the reason, where a setting is not valid."""
        if not _BUCKET.fullmatch(self.bucket):
            raise self._error(f"bucket {self.bucket!r} is no bucket's name")
        for segment in self.prefix.split("/")[:-1]:
            if not _PREFIX_SEGMENT.fullmatch(segment):
                raise self._error(f"prefix {self.prefix!r}: {segment!r} is no segment of letters, digits and ._=+@-")
        if self.endpoint is not None:
            self._check_endpoint(self.endpoint)
        if (self.access_key is None) != (self.secret_key is None):
            raise self._error("access_key and secret_key belong together: give both, or neither")
        if self.session_token is not None and self.access_key is None:
            raise self._error("a session_token belongs to an access_key")
        if self.profile is not None and self.access_key is not None:
            raise self._error("give a profile or an access_key, not both")
        for field in ("connections", "timeout_s"):
            if getattr(self, field) <= 0:
                raise self._error(f"{field} is {getattr(self, field)}, and must be above 0")
        if self.style not in ("auto", "path", "virtual"):
            raise self._error(f"style {self.style!r} is none of auto, path, virtual")
        if self.confirm not in ("auto", "checksum", "etag", "read"):
            raise self._error(f"confirm {self.confirm!r} is none of auto, checksum, etag, read")

    def _check_endpoint(self, endpoint: str) -> None:
        try:
            parts = urlsplit(endpoint)
            sound = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
        except ValueError as error:
            raise self._error(f"endpoint {endpoint!r}: {error}") from error
        if not sound:
            raise self._error(f"endpoint {endpoint!r} is no http:// or https:// address of a host")
        if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
            raise self._error(f"endpoint {endpoint!r} has more than scheme, host and port")

    def ca_pem(self) -> bytes | None:
        """Read `ca_file`. Blocking. Raises `Misconfigured` where it contains no certificate."""
        if self.ca_file is None:
            return None
        try:
            pem = read_named_file(self.ca_file)
        except OSError as error:
            raise self._error(f"ca_file {self.ca_file}: {error.strerror}") from error
        if b"-----BEGIN CERTIFICATE-----" not in pem:
            raise self._error(f"ca_file {self.ca_file}: holds no certificate in PEM")
        return pem

    def address(self, service_url: str) -> tuple[str, bool]:
        """Return the URL to which requests for this bucket go where the service is at *service_url*, and whether the
        bucket's name is in its host. `auto` puts it there for AWS alone, and never for a name with a dot, which no
        wildcard certificate covers."""
        parts = urlsplit(service_url.rstrip("/"))
        virtual = self.style == "virtual"
        if self.style == "auto":
            virtual = bool(_AWS.search(parts.hostname or "")) and "." not in self.bucket
        host = f"{self.bucket}.{parts.netloc}" if virtual else parts.netloc
        return f"{parts.scheme}://{host}", virtual

    def _error(self, message: str) -> errors.Misconfigured:
        return errors.Misconfigured(message, backend=self.name)


def normalize_prefix(prefix: str) -> str:
    """Return *prefix* without leading slashes and with one at the end; an empty prefix stays empty."""
    bare = prefix.strip("/")
    return f"{bare}/" if bare else ""
