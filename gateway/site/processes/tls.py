"""The TLS certificate of a worker. It is read again when its files change; an invalid pair leaves the old one in use.

The files are read in a thread, as regular files of bounded size, so a FIFO, a device or a slow file system in their
place does not block the event loop. OpenSSL reads only files, so the content is passed to it as a file in memory.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path

from backends.named_files import read_named_file
from gateway.config.models import ServerSection
from gateway.errors import Misconfigured
from gateway.metrics.json_log import ERROR, INFO, JsonLog
from gateway.site.storage.atomic_files import file_stamp
from gateway.timing import Timing


class Certificate:
    """A certificate and its key. `context` is replaced when they are read again: later connections use the new one."""

    def __init__(self, certificate: Path, key: Path, json_log: JsonLog, timing: Timing) -> None:
        """Load the pair. Blocking. Raises `Misconfigured` if it cannot be used."""
        self._certificate = certificate
        self._key = key
        self._json_log = json_log
        self._look_seconds = timing.reload.certificate_seconds
        self._wanted = asyncio.Event()
        self._seen = self._stamp()
        try:
            self.context = self._load()
        except (OSError, ValueError) as error:
            raise Misconfigured(f"the certificate {certificate} and key {key} cannot be used: {error}") from error

    @classmethod
    async def of(cls, folder: Path, config: ServerSection, json_log: JsonLog, timing: Timing) -> Certificate | None:
        """Return the certificate that the config names, relative to *folder*; None without TLS. Raises
        `Misconfigured`."""
        if not config.tls_certificate:
            return None
        return await asyncio.to_thread(cls, folder / config.tls_certificate, folder / config.tls_key, json_log, timing)

    def reload(self) -> None:
        """Have `watch` read the files again, even if they have not changed."""
        self._wanted.set()

    async def watch(self) -> None:
        """Read the files again whenever they change, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._look_seconds):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            forced = self._wanted.is_set()
            self._wanted.clear()
            await self.look(forced=forced)

    async def look(self, *, forced: bool = False) -> None:
        """Read the files again if they have changed, or if *forced*. A pair that does not match leaves the old one in
        use, as happens for a moment while both files are replaced."""
        now = await asyncio.to_thread(self._stamp)
        if now == self._seen and not forced:
            return
        self._seen = now
        try:
            self.context = await asyncio.to_thread(self._load)
        except (OSError, ValueError) as error:
            self._json_log.write(ERROR, "the certificate cannot be used; the old one stays", why=str(error))
        else:
            self._json_log.write(INFO, "the certificate was read again")

    def _load(self) -> ssl.SSLContext:
        """Return a context with the content of the files. Blocking. Raises `OSError`, `ValueError`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with _InMemory(read_named_file(self._certificate)) as certificate, _InMemory(read_named_file(self._key)) as key:
            context.load_cert_chain(certificate, key, password=_no_password)
        return context

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(file_stamp(path) for path in (self._certificate, self._key))


class _InMemory:
    """A file in memory with a path, for as long as it is open."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __enter__(self) -> str:
        self._handle = os.memfd_create("entrepot", os.MFD_CLOEXEC)
        with open(os.dup(self._handle), "wb") as file:
            file.write(self._content)
        return f"/proc/self/fd/{self._handle}"

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def _no_password() -> str:
    """Reject a key with a passphrase; OpenSSL would ask the terminal for it."""
    raise ValueError("the key has a passphrase")
