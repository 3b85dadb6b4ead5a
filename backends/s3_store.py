"""The client that carries the bytes: obstore's `S3Store` over what was settled, and what goes in and comes out.

It retries nothing, so that the retries of `retrying` do not multiply.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import obstore
from obstore.store import S3Store

from backends import base, errors
from backends.base import Buffer, Stat
from backends.s3_control import Control
from backends.s3_credentials import Credentials
from backends.s3_errors import NOWHERE
from backends.s3_settings import S3Settings

VALUE_BYTES_MAX = 16 << 20
"""Twice what the largest block takes. What is longer is none of ours, whatever its server says."""

_MD5 = re.compile("[0-9a-f]{32}")
_carrying: int | None = None
"""The process that has obstore's threads, once one has."""
_PIECE_BYTES_MIN = 4 << 10  # shorter buffers than that, on average, are cheaper joined than handed over one by one


def new_store(
    settings: S3Settings, control: Control, credentials: Credentials, ca_pem: bytes | None, *, checked: bool
) -> S3Store:
    """A client for the bucket that *control* found. *checked* sends each value's CRC64NVME along; over HTTPS, whose
    line nobody can change, that spares the SHA-256 which else is signed."""
    address, virtual = settings.address(control.endpoint)
    options: Any = {
        "allow_http": address.startswith("http://"),
        "connect_timeout": timedelta(seconds=settings.connect_timeout_s),
        "timeout": timedelta(seconds=settings.timeout_s),
        "pool_max_idle_per_host": str(settings.connections),
    }
    if ca_pem is not None:
        options["root_certificate"] = ca_pem
    options |= _no_other_host(address)
    more: Any = {"checksum_algorithm": "CRC64NVME"} if checked else {}
    return S3Store(
        settings.bucket,
        region=control.region,
        endpoint=address,
        # obstore takes from the environment what it is not told; these would lead it elsewhere, or leave it unsigned.
        aws_endpoint_url_s3=address,
        skip_signature=False,
        s3_express=False,
        virtual_hosted_style_request=virtual,
        unsigned_payload=checked and not options["allow_http"],
        disable_bulk_delete=True,
        client_options=options,
        retry_config={"max_retries": 0},
        credential_provider=credentials,
        **more,
    )


def _no_other_host(address: str) -> dict[str, str]:
    """Options that keep obstore from following a redirect to another host than *address*'s, with the session token in a
    header. It has none for that, but it can be told of a proxy for all hosts except some: for all but ours, that is one
    where nothing listens. Behind a proxy of the environment, which is asked for everything, it is left alone."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    proxies = getproxies()
    if (proxies.get(parts.scheme) or proxies.get("all")) and not proxy_bypass(host):
        return {}
    with suppress(UnicodeError):
        host = host.encode("idna").decode()  # as obstore spells it
    return {"proxy_url": f"http://{NOWHERE}", "proxy_excludes": host}


def check_threads(name: str) -> None:
    """Raise `Misconfigured` in a process that was forked from one which has used obstore: its threads stayed behind,
    nothing brings them back, and the first call would wait for ever."""
    global _carrying  # noqa: PLW0603 (obstore's threads are the process's too)
    if _carrying not in (None, os.getpid()):
        message = (
            "this process was forked from one that had a cloud's backend open, which does not work; start it with "
            "multiprocessing's `spawn` or `forkserver`, or fork before anything is opened"
        )
        raise errors.Misconfigured(message, backend=name)
    _carrying = os.getpid()


def told(answer: Any) -> Stat:
    """What the answer to a HEAD says of a value. An ETag of another form is no MD5."""
    etag = (answer["e_tag"] or "").strip('"').lower()
    return Stat(answer["size"], etag if _MD5.fullmatch(etag) else "")


async def read_range(store: S3Store, path: str, start: int, length: int) -> bytes:
    """What comes for the *length* bytes from *start* on: those, or fewer, or more where the server goes on."""
    return await _first_bytes(await obstore.get_async(store, path, options={"range": (start, start + length)}), length)


async def read_whole(store: S3Store, path: str) -> tuple[int, bytes]:
    """The size that the answer announces, and what comes of the value; nothing of one that announces too much."""
    answer = await obstore.get_async(store, path)
    size = int(answer.meta["size"])
    return size, await _first_bytes(answer, size) if size <= VALUE_BYTES_MAX else b""


async def _first_bytes(answer: obstore.GetResult, size: int) -> bytes:
    """The body of *answer*, or little more than *size* bytes of it. obstore's own way to collect a body makes room for
    what is announced, which ends the process where there is not so much, and reads on for as long as something comes.
    A stream gathers so much, or all where the body ends before that, and then waits until it is asked again."""
    try:
        return bytes(await anext(answer.stream(min_chunk_size=size + 1)))
    except StopAsyncIteration:
        return b""


def body(value: Sequence[Buffer]) -> Any:
    """What obstore takes without a copy: one buffer, or the list of them; many tiny ones are joined."""
    if len(value) == 1:
        return value[0]
    filled = [buffer for buffer in value if len(buffer)]
    if base.size_of(filled) < _PIECE_BYTES_MIN * len(filled):
        return b"".join(filled)
    return filled or b""


def md5_of(value: Sequence[Buffer]) -> str:
    """In hex, as ETags have it."""
    digest = hashlib.md5(usedforsecurity=False)
    for buffer in value:
        digest.update(buffer)
    return digest.hexdigest()
