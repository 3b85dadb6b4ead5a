"""The proxy that the environment names for a server (http_proxy, https_proxy, all_proxy, no_proxy)."""

from __future__ import annotations

import base64
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass


class Proxy(NamedTuple):
    """An HTTP proxy."""

    host: str
    port: int
    is_tls: bool
    """Whether the connection to the proxy itself is encrypted."""
    authorization: str
    """The value of Proxy-Authorization (RFC 7617), or empty."""


def proxy_for(scheme: str, host: str) -> Proxy | None:
    """The proxy through which *host* is reached. Raises `ValueError` for one that is no http(s):// address."""
    proxies = getproxies()
    url = proxies.get(scheme) or proxies.get("all")
    if not url or proxy_bypass(host):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the environment names a proxy that is no http:// or https:// address of a host")
    is_tls = parts.scheme == "https"
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(parts.hostname, parts.port or (443 if is_tls else 80), is_tls, authorization)
