"""DeleteObject, and DeleteObjects for up to 1,000 keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.engine.types import Deleted, DeleteOne
from gateway.errors import AccessDenied, EntrepotError
from s3api.authorize import key_granted
from s3api.errors import S3Error
from s3api.format.conditions import delete_conditions, make_delete_conditions
from s3api.format.error_response import translate_error
from s3api.format.xml_reader import Element
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape, escape_bytes
from s3api.http.bodies import read_xml_body, require_digest
from s3api.request import S3Request
from s3api.response import Response, xml_response

MAX_DELETES = 1000


async def delete_object(request: S3Request) -> Response:
    """DELETE /bucket/key"""
    deleted = await request.engine.delete(
        request.caller, request.bucket, request.key, request.version, delete_conditions(request.headers)
    )
    return Response(204, _lines(deleted))


def _lines(deleted: Deleted) -> str:
    lines = "x-amz-delete-marker: true\r\n" if deleted.marker else ""
    return f"{lines}x-amz-version-id: {deleted.version}\r\n" if deleted.version is not None else lines


async def delete_objects(request: S3Request) -> Response:
    """POST /bucket?delete. Each key has its own outcome; the status is 200 in any case."""
    require_digest(request)
    root = await read_xml_body(request, "Delete")
    wanted = [_delete_command(each) for each in root.all("Object")]
    if not 0 < len(wanted) <= MAX_DELETES:
        raise S3Error("MalformedXML")
    quiet = (root.get("Quiet") or "").strip().lower() == "true"
    outcomes = await _delete_allowed(request, wanted)
    body = "".join([_outcome_xml(one, outcome, quiet) for one, outcome in zip(wanted, outcomes, strict=True)])
    return xml_response(f"{XML_HEAD}<DeleteResult {XMLNS}>{body}</DeleteResult>")


KEYS_PER_SLICE = 16
"""Keys that are checked against the bucket's policy before the event loop runs other tasks."""


async def _delete_allowed(request: S3Request, wanted: list[DeleteOne]) -> Sequence[Deleted | EntrepotError]:
    """Delete the keys that the caller may delete. Returns the outcome of each key, in order. Raises what
    `Engine.delete_many` raises, as for a caller who may use nothing in the bucket."""
    denied: dict[int, AccessDenied] = {}
    owners: dict[int, int] = {}  # of the keys that are granted
    for nth, one in enumerate(wanted):
        if nth % KEYS_PER_SLICE == KEYS_PER_SLICE - 1:
            await asyncio.sleep(0)
        action = "s3:DeleteObject" if one.version is None else "s3:DeleteObjectVersion"
        try:
            owner = key_granted(request, action, one.key, one.version)
        except AccessDenied as error:
            denied[nth] = error
        else:
            if owner:
                owners[nth] = owner
    caller = request.caller
    if not caller.user_id and not owners:
        raise AccessDenied("no policy allows an anonymous request to delete any of the keys")
    if owners:  # the caller does not own the bucket, so nothing else is allowed
        caller = caller._replace(granted={request.bucket: min(owners.values())})
        refused = AccessDenied("no policy allows the deletion")
        denied |= {nth: refused for nth in range(len(wanted)) if nth not in owners and nth not in denied}
    if not denied:
        return await request.engine.delete_many(caller, request.bucket, wanted)
    allowed = [one for nth, one in enumerate(wanted) if nth not in denied]
    deleted = iter(await request.engine.delete_many(caller, request.bucket, allowed) if allowed else ())
    return [denied[nth] if nth in denied else next(deleted) for nth in range(len(wanted))]


def _delete_command(element: Element) -> DeleteOne:
    key = element.need("Key").encode()
    version = element.get("VersionId") or None
    etag, size, modified = element.get("ETag"), element.get("Size"), element.get("LastModifiedTime")
    if etag is None and size is None and modified is None:
        return DeleteOne(key, version)
    return DeleteOne(key, version, make_delete_conditions(etag, size, modified))


def _outcome_xml(one: DeleteOne, outcome: Deleted | EntrepotError, quiet: bool) -> str:
    named = f"<Key>{escape_bytes(one.key)}</Key>"
    if one.version is not None:
        named += f"<VersionId>{escape(one.version)}</VersionId>"
    if isinstance(outcome, EntrepotError):
        failure = translate_error(outcome)
        return f"<Error>{named}<Code>{failure.code}</Code><Message>{escape(failure.message)}</Message></Error>"
    if quiet:
        return ""
    marker = ""
    if outcome.marker:
        marker = "<DeleteMarker>true</DeleteMarker>"
        if outcome.version is not None:
            marker += f"<DeleteMarkerVersionId>{outcome.version}</DeleteMarkerVersionId>"
    return f"<Deleted>{named}{marker}</Deleted>"
