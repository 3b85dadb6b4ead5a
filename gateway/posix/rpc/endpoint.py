"""The gateway that a file system uses and the credentials: from its options, the environment, or a credentials file.

A secret from the environment or a file is read when a connection is made, so a pickled file system does not contain it.
"""

from __future__ import annotations

import os
import ssl
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from backends.named_files import read_named_file
from gateway.errors import EntrepotError, Misconfigured
from gateway.identity.names import check_access_key, check_secret

ENDPOINT_VARIABLE = "ENTREPOT_ENDPOINT"
KEY_VARIABLE = "ENTREPOT_ACCESS_KEY"
SECRET_VARIABLE = "ENTREPOT_SECRET_KEY"  # noqa: S105 (a variable's name)
FILE_VARIABLE = "ENTREPOT_CREDENTIALS_FILE"
CA_VARIABLE = "ENTREPOT_CA_FILE"
REGION_VARIABLE = "ENTREPOT_REGION"
REGION = "us-east-1"
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class EndpointOptions:
    """The options that a program gave. Empty ones are taken from the environment."""

    endpoint: str = ""
    key: str = ""
    secret: str = field(default="", repr=False)
    credentials_file: str = ""
    ca_file: str = ""
    region: str = ""
    timeout: float = TIMEOUT_SECONDS


@dataclass(frozen=True)
class Endpoint:
    """A gateway, and the credentials for it."""

    scheme: str
    host: str
    """With the port, as in the `Host` header."""
    key: str
    secret: str = field(repr=False)
    region: str
    ca_file: str
    timeout: float
    """Seconds, for connecting and for each read of a response."""

    def tls(self) -> ssl.SSLContext | bool:
        """Return how the gateway's certificate is verified. Raises `Misconfigured`."""
        if not self.ca_file:
            return True
        try:
            return ssl.create_default_context(cadata=read_named_file(self.ca_file).decode())
        except (OSError, ValueError) as error:
            raise Misconfigured(f"the CA file {self.ca_file} cannot be used: {error}") from error


def resolve_endpoint(options: EndpointOptions) -> Endpoint:
    """Return the endpoint that *options* and the environment name. Raises `Misconfigured`."""
    endpoint = options.endpoint or os.environ.get(ENDPOINT_VARIABLE, "")
    scheme, host = _parse_url(endpoint)
    key, secret = _credentials(options)
    return Endpoint(
        scheme, host, key, secret,
        options.region or os.environ.get(REGION_VARIABLE) or REGION,
        options.ca_file or os.environ.get(CA_VARIABLE, ""),
        options.timeout,
    )  # fmt: skip


def _parse_url(endpoint: str) -> tuple[str, str]:
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError as error:
        raise Misconfigured(f"the endpoint {endpoint!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise Misconfigured(f"the endpoint {endpoint!r} is not of the form http(s)://host:port")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise Misconfigured(f"the endpoint {endpoint!r} must not have a path: use http(s)://host:port")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default_port = port is None or port == {"http": 80, "https": 443}[parts.scheme]
    return parts.scheme, name if default_port else f"{name}:{port}"


def _credentials(options: EndpointOptions) -> tuple[str, str]:
    """Return the access key and the secret. The order: options, the file that they name, variables, the file that a
    variable names."""
    if options.key or options.secret:
        return _checked(options.key, options.secret, "the options key and secret")
    if options.credentials_file:
        return _from_file(Path(options.credentials_file).expanduser())
    key, secret = os.environ.get(KEY_VARIABLE, ""), os.environ.get(SECRET_VARIABLE, "")
    if key or secret:
        return _checked(key, secret, f"{KEY_VARIABLE} and {SECRET_VARIABLE}")
    if path := os.environ.get(FILE_VARIABLE):
        return _from_file(Path(path).expanduser())
    raise Misconfigured(
        f"no credentials: give key and secret, or credentials_file, or set {KEY_VARIABLE} and {SECRET_VARIABLE}, or "
        f"{FILE_VARIABLE}"
    )


def _from_file(path: Path) -> tuple[str, str]:
    try:
        values = tomllib.loads(read_named_file(path).decode())
    except OSError as error:
        raise Misconfigured(f"the credentials file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Misconfigured(f"the credentials file {path} cannot be read: {type(error).__name__}") from None
    unknown = sorted(set(values) - {"access_key", "secret_key"})
    if unknown:
        raise Misconfigured(
            f"the credentials file {path} has the key {unknown[0]!r}; only access_key and secret_key are allowed"
        )
    key, secret = values.get("access_key", ""), values.get("secret_key", "")
    if not isinstance(key, str) or not isinstance(secret, str):
        raise Misconfigured(f"in the credentials file {path}, access_key and secret_key must be strings")
    return _checked(key, secret, f"access_key and secret_key in {path}")


def _checked(key: str, secret: str, what: str) -> tuple[str, str]:
    if not key or not secret:
        raise Misconfigured(f"{what} must be given together")
    try:
        return check_access_key(key), check_secret(secret)
    except EntrepotError as error:
        raise Misconfigured(f"{what}: {error}") from None
