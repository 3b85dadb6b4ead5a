"""The certificate of a gateway, read again when its files change or somebody says so; a bad pair leaves the old one."""

from __future__ import annotations

import ssl
from pathlib import Path

from gateway.config.models import ServerSection
from gateway.errors import Misconfigured
from gateway.metrics.lines import ERROR, INFO, Lines
from gateway.site.files import stamp


class Certificate:
    """A context for TLS that is filled anew in place: connections that come afterwards see the new certificate."""

    def __init__(self, certificate: Path, key: Path, lines: Lines) -> None:
        """Raises `Misconfigured` if the pair cannot be used."""
        self._certificate = certificate
        self._key = key
        self._lines = lines
        self._seen = self._stamp()
        self.context = _context()
        try:
            self.context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            raise Misconfigured(f"the certificate {certificate} and key {key} cannot be used: {error}") from error

    @classmethod
    def of(cls, folder: Path, config: ServerSection, lines: Lines) -> Certificate | None:
        """What the config names, below *folder*; None without TLS."""
        if not config.tls_certificate:
            return None
        return cls(folder / config.tls_certificate, folder / config.tls_key, lines)

    def look(self) -> None:
        """Read the files again if they changed. Costs two `stat`s."""
        if self._stamp() != self._seen:
            self.reload()

    def reload(self) -> None:
        """Read the files again. A pair that does not fit is tried out beside first, and said to be bad; while one of
        two files is replaced that is so for a moment, and the next change is looked at again."""
        self._seen = self._stamp()
        try:
            _context().load_cert_chain(self._certificate, self._key, password=_no_password)
            self.context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ValueError) as error:
            self._lines.write(ERROR, "the certificate cannot be used; the old one stays", why=str(error))
        else:
            self._lines.write(INFO, "the certificate was read again")

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(stamp(path) for path in (self._certificate, self._key))


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _no_password() -> str:
    """A key with a passphrase would ask the terminal for it."""
    raise ValueError("the key has a passphrase")
