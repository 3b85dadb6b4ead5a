"""PUT of an object: its promises read, its bytes handed to the engine."""

from __future__ import annotations

from gateway import errors as core
from gateway.engine.types import Promised, Stored
from s3api.format import checksums
from s3api.format.conditions import write_conditions
from s3api.format.metadata import object_meta
from s3api.http.bodies import body_of
from s3api.request import Call
from s3api.response import Answer


async def put_object(call: Call) -> Answer:
    """PUT /bucket/key"""
    headers, settings = call.headers, call.settings
    call.refuse_version()
    meta = object_meta(headers, settings.metadata_bytes, headers.get("x-amz-tagging"))
    conditions = write_conditions(headers)
    algorithm, checksum = checksums.asked(headers)
    body, size, sha256 = body_of(call)
    if size > settings.put_bytes:
        raise core.EntityTooLarge(size, settings.put_bytes)
    promised = Promised(size, checksums.content_md5(headers), sha256, checksum)
    stored = await call.engine.put(
        call.caller, call.bucket, call.key, body, promised, meta, conditions, checksum_algorithm=algorithm
    )
    return Answer(200, stored_lines(call, stored) + checksums.checksum_lines(stored.checksum))


def stored_lines(call: Call, stored: Stored) -> str:
    """The headers that say what was stored."""
    return f'ETag: "{stored.etag}"\r\n{version_lines(call, stored.version)}'


def version_lines(call: Call, version: str | None) -> str:
    """The headers that every write of an object answers."""
    lines = "x-amz-server-side-encryption: AES256\r\n" if call.settings.sealed else ""
    return lines if version is None else f"{lines}x-amz-version-id: {version}\r\n"
