"""Authenticate requests: verify the signature with `gateway.identity` and determine the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from gateway.engine.types import Caller, Clock
from gateway.identity.sigv4 import SignedRequest, is_anonymous, unsigned_request, verify
from s3api.errors import S3Error
from s3api.format.request_target import to_bytes
from s3api.request import S3Request
from s3api.settings import S3Settings

if TYPE_CHECKING:
    from gateway.engine.engine import Engine

_ASCII = "".join(map(chr, range(0x21, 0x7F)))


class Authenticator:
    """Verifies the signatures of requests with the engine's credentials."""

    def __init__(self, engine: Engine, settings: S3Settings, clock: Clock) -> None:
        self._engine = engine
        self._region = settings.region
        self._wall_ns = clock.wall_ns

    def authenticate(self, request: S3Request) -> None:
        """Set the request's `caller` and `verified`. A request without a signature is anonymous.

        Raises identity's `SignatureError`, and S3Error InvalidRequest for an anonymous request with `response-*`
        parameters."""
        callers: list[Caller] = []

        def secret_of(access_key: str) -> str | None:
            request.claimed_access_key = access_key
            credential = self._engine.credential(access_key)
            if credential is None:
                return None
            secret: str = credential[0]
            callers.append(credential[1])
            return secret

        target = request.target
        virtual = target.bucket if target.virtual else ""
        signed = SignedRequest(request.method, _ascii(target.path), _ascii(target.raw_query), request.headers, virtual)
        if is_anonymous(signed):
            if any(name.startswith("response-") for name in target.query):
                raise S3Error(
                    "InvalidRequest", "Request specific response headers cannot be used for anonymous GET requests."
                )
            request.verified = unsigned_request(request.headers)
            return
        request.verified = verify(signed, secret_of, self._wall_ns() / 1e9, self._region)
        request.caller = callers[-1]


def _ascii(raw: str) -> str:
    """Return *raw* with its non-ASCII bytes percent-encoded, as the client should have sent them."""
    return raw if raw.isascii() else quote(to_bytes(raw), safe=_ASCII)
