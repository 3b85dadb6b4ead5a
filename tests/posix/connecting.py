"""Connections to a gateway over the wire protocol: a client, and single signed requests."""

from __future__ import annotations

from contextlib import asynccontextmanager

from gateway.posix.rpc.client import RpcClient
from gateway.posix.rpc.endpoint import EndpointOptions, resolve_endpoint
from gateway.timing import Timing
from tests.s3api.client import Signer


@asynccontextmanager
async def connected(served, url: str = "", timing: Timing | None = None):
    options = EndpointOptions(endpoint=url or served.url, key=served.access_key, secret=served.secret_key)
    api = await RpcClient.connect(resolve_endpoint(options), timing)
    try:
        yield api
    finally:
        await api.close()


async def posted(served, name: str, body: bytes, query: str = "", **options):
    signer = Signer(
        type("Site", (), {"port": int(served.url.rpartition(":")[2])}), served.access_key, served.secret_key
    )
    return await signer.request("POST", f"/.entrepot/{name}", query, body, **options)
