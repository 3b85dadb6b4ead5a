"""A worker's process: S3 and the file operations over the engine of the site, on the port that all workers share."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from contextlib import closing
from hashlib import blake2b

from gateway.errors import Corrupted
from gateway.journal.columns import unpack
from gateway.metrics import gauge
from gateway.metrics.requests import RequestLog
from gateway.posix.rpc.server import RpcServer
from gateway.site.processes.child import Child, run_child
from gateway.site.processes.site_role import SiteRole
from gateway.site.processes.supervisor import BACKLOG, LISTEN_FD
from gateway.site.processes.tls import Certificate
from gateway.site.site import Site
from gateway.site.storage.backend_trouble import BackendTrouble
from s3api.extension_types import ExtensionHandler
from s3api.server import S3Server, make_server, serve
from s3api.settings import S3Settings

IN_FLIGHT = gauge("entrepot_requests_in_flight", "Requests that are being answered.")
CONNECTIONS = gauge("entrepot_connections", "Open connections of clients, from when they are accepted.")
HANDSHAKES = gauge("entrepot_tls_handshakes", "Open connections whose TLS handshake is under way.")


class WorkerRole(SiteRole):
    """Answers requests."""

    def __init__(self) -> None:
        super().__init__("worker")
        self._certificate: Certificate | None = None
        self._server: S3Server | None = None

    async def work(self, child: Child, site: Site) -> None:
        with closing(RpcServer(site)) as rpc:
            await self._serve(child, site, rpc)

    async def _serve(self, child: Child, site: Site, rpc: RpcServer) -> None:
        """Answer requests until `child.stopping` is set; then finish the requests under way."""
        certificate = await Certificate.of(child.folder, child.config.server, child.json_log, child.timing)
        observer = RequestLog(child.json_log if child.config.log.requests else None)
        server = make_server(site.engine, _settings(site, rpc.answer), observer, site.timing)
        listening = socket.socket(fileno=int(os.environ[LISTEN_FD]))
        listening.setblocking(False)
        tls = None if certificate is None else lambda: certificate.context
        serving = await serve(server, listening, tls, backlog=BACKLOG)
        self._certificate, self._server = certificate, server
        watching = None
        if certificate is not None:
            watching = asyncio.create_task(certificate.watch(), name="certificate")
        child.ready(root_access_key=_root_access_key(site))
        await child.stopping.wait()
        if watching is not None:
            watching.cancel()
        await serving.stop(child.config.server.stop_seconds)

    def report(self) -> dict[str, BackendTrouble]:
        server = self._server
        if server is not None:
            IN_FLIGHT.set(server.in_flight)
            CONNECTIONS.set(server.admission.connections)
            HANDSHAKES.set(len(server.admission.handshakes))
        return super().report()

    def reload_files(self) -> None:
        if self._certificate is not None:
            self._certificate.reload()


def _settings(site: Site, extension: ExtensionHandler) -> S3Settings:
    server = site.config.server
    return S3Settings(
        region=site.config.site.region,
        base_domains=tuple(site.config.site.domains),
        token_key=_token_key(site),
        sealed=site.config.sealing.mode == "aes-256-gcm",
        connections=_connections(server.connections),
        idle_seconds=server.idle_seconds,
        body_idle_seconds=server.body_idle_seconds,
        write_idle_seconds=server.write_idle_seconds,
        extension=extension,
    )


def _connections(wanted: int) -> int:
    """Return how many connections a worker may keep open. A quarter of its file descriptors is left for files."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if most == resource.RLIM_INFINITY else min(wanted, most * 3 // 4)


def _token_key(site: Site) -> bytes:
    """Return the key that seals continuation tokens. It is derived from the oldest ring key, which never changes and is
    never deleted, so it is the same in all workers and after restarts."""
    rows = site.store.query("SELECT min(id) FROM ring_key")
    if rows[0][0] is None:
        raise Corrupted("the journal has no ring key")
    key, _ = site.keyring.sealing(rows[0][0])
    return blake2b(b"continuation tokens", key=key, digest_size=32).digest()


def _root_access_key(site: Site) -> str:
    rows = site.store.query("SELECT access_keys FROM user WHERE root = 1 ORDER BY made_ns LIMIT 1")
    return str(unpack(rows[0][0])[0]) if rows else ""


if __name__ == "__main__":
    run_child(WorkerRole())
