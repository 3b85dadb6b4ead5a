"""DELETE of one object, and of up to a thousand."""

from __future__ import annotations

from gateway.engine.types import Deleted
from s3api.answers import Answer
from s3api.call import Call
from s3api.conditions import delete_conditions


async def delete_object(call: Call) -> Answer:
    """DELETE /bucket/key"""
    deleted = await call.engine.delete(
        call.caller, call.bucket, call.key, call.version, delete_conditions(call.headers)
    )
    return Answer(204, _lines(deleted))


def _lines(deleted: Deleted) -> str:
    lines = "x-amz-delete-marker: true\r\n" if deleted.marker else ""
    return f"{lines}x-amz-version-id: {deleted.version}\r\n" if deleted.version is not None else lines
