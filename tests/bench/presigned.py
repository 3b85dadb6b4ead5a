"""Presigned paths, made quickly and in bulk, so that the load generator has nothing to compute."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

from gateway.identity.signing import presign
from tests.bench.server import Target


class Presigner:
    """Answers the path and query of a presigned request on a bucket of this server."""

    def __init__(self, running: Target, bucket: str) -> None:
        self._running = running
        self._bucket = bucket
        self._host = urlsplit(running.address).netloc

    def __call__(self, method: str, key: str, query: Mapping[str, str] | None = None) -> str:
        return presign(
            method,
            host=self._host,
            path=f"/{self._bucket}/{key}" if key else f"/{self._bucket}",
            access_key=self._running.access_key,
            secret_key=self._running.secret_key,
            region="us-east-1",
            now=datetime.now(UTC),
            expires=86_400,
            query=query,
        )
