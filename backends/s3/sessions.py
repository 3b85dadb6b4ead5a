"""Sessions and clients of aiobotocore. Nothing here sends a request.

botocore is imported, and its models are read, in a thread, since that takes a second.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import cache
from typing import Any

from backends import errors
from backends.s3.settings import S3Settings

REGION_DEFAULT = "us-east-1"

_loading = threading.Lock()
_loaded: list[bool] = []


def load() -> None:
    """Import what opening a bucket needs, once in a process; sends no request. Blocks for a second, and for many on a
    busy machine."""
    with _loading:
        if not _loaded:
            keys = (None, None, None, None)
            with suppress(errors.Misconfigured):  # opening a bucket reports a wrong environment
                prepare_session(
                    S3Settings("", "", "", None, REGION_DEFAULT, *keys, "auto", False, None, 1, 1.0, "auto")
                )
            _loaded.append(True)


def prepare_session(settings: S3Settings) -> Any:
    """Create a session that has read its models: a client is created and dropped here, so that the next takes 6 ms."""
    from aiobotocore.session import AioSession
    from botocore.exceptions import BotoCoreError

    try:
        session = AioSession(profile=settings.profile)
        session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
        asyncio.run(_warm(session, settings))
    except (BotoCoreError, ValueError) as error:
        raise errors.Misconfigured(str(error), backend=settings.name) from error
    return session


@cache
def _loader(data_path: str | None) -> Any:
    """Return a loader of botocore's service models, which are parsed once in a process, in a tenth of a second."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


async def _warm(session: Any, settings: S3Settings) -> None:
    """Create a client with dummy keys, so that the chain of providers is left for the event loop that will use it."""
    async with create_client(session, settings, REGION_DEFAULT, aws_access_key_id="warm", aws_secret_access_key="up"):  # noqa: S106
        pass


def create_client(session: Any, settings: S3Settings, region: str, **keys: str) -> Any:
    """Return the context manager of a client for *region*, with *keys* in the place of the session's credentials."""
    from aiobotocore.config import AioConfig

    from backends.s3.botocore_http import BoundedSession

    config = AioConfig(
        signature_version="s3v4",
        connect_timeout=settings.timing.connect_seconds,
        read_timeout=settings.timeout_s,
        retries={"total_max_attempts": 1},
        s3={"addressing_style": settings.style},
        # Servers that are older than these checksums refuse the trailers that carry them.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=settings.connections,
        http_session_cls=BoundedSession,
    )
    return session.create_client(
        "s3", region_name=region, endpoint_url=settings.endpoint, verify=settings.ca_file, config=config, **keys
    )
