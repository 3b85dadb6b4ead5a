"""Signature Version 4 of S3 requests, in headers
(https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime

from backends.s3.credentials import Credentials, Keys

UNSIGNED = "UNSIGNED-PAYLOAD"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


class Signer:
    """Signs requests to one host, with keys that it renews before they expire."""

    def __init__(self, credentials: Credentials, region: str, host: str) -> None:
        self._credentials, self._region, self._host = credentials, region, host
        self._keys: Keys | None = None
        self._renewing = asyncio.Lock()
        self._derived: tuple[str, str, bytes] = (
            "",
            "",
            b"",
        )  # a secret key, a day, and the signing key derived from both

    async def sign(self, method: str, path: str, headers: Mapping[str, str], payload: str) -> dict[str, str]:
        """Return all headers of a request without a query: *headers*, whose names are in lower case, and those of the
        signature. *path* is percent-encoded; *payload* is the SHA-256 of the body in hex, or `UNSIGNED`.

        Raises what the provider of the keys raises."""
        now = datetime.now(UTC)
        keys = self._keys
        if keys is None or (keys.until is not None and keys.until <= now):
            keys = await self._renew(now)
        return self._signed(keys, f"{now:%Y%m%dT%H%M%SZ}", method, path, headers, payload)

    async def _renew(self, now: datetime) -> Keys:
        async with self._renewing:
            if self._keys is None or (self._keys.until is not None and self._keys.until <= now):
                self._keys = None
                self._keys = await self._credentials()
            return self._keys

    def _signed(
        self, keys: Keys, stamp: str, method: str, path: str, headers: Mapping[str, str], payload: str
    ) -> dict[str, str]:
        every = {**headers, "host": self._host, "x-amz-content-sha256": payload, "x-amz-date": stamp}
        if keys.token:
            every["x-amz-security-token"] = keys.token
        names = sorted(every)
        signed = ";".join(names)
        lines = "".join(f"{name}:{every[name]}\n" for name in names)
        canonical = f"{method}\n{path}\n\n{lines}\n{signed}\n{payload}"
        scope = f"{stamp[:8]}/{self._region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._key(keys.secret_key, stamp[:8]), text.encode(), "sha256").hex()
        every["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={keys.access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"
        )
        return every

    def _key(self, secret: str, day: str) -> bytes:
        """Return the signing key of a day, which is cached."""
        if self._derived[:2] != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._derived = (secret, day, key)
        return self._derived[2]
