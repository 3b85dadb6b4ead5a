"""Talking to a gateway over the file systems' wire: as a file system does, and request by request."""

from __future__ import annotations

from contextlib import asynccontextmanager

from gateway.posix.rpc.endpoint import Options, gateway_of
from gateway.posix.rpc.http_api import OverHttp
from gateway.timing import Timing
from tests.s3api.client import Signer


@asynccontextmanager
async def connected(served, url: str = "", timing: Timing | None = None):
    options = Options(endpoint=url or served.url, key=served.access_key, secret=served.secret_key)
    verbs = await OverHttp.connect(gateway_of(options), timing)
    try:
        yield verbs
    finally:
        await verbs.close()


async def posted(served, name: str, body: bytes, query: str = "", **options):
    signer = Signer(
        type("Site", (), {"port": int(served.url.rpartition(":")[2])}), served.access_key, served.secret_key
    )
    return await signer.request("POST", f"/.entrepot/{name}", query, body, **options)
