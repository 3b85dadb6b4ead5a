"""DELETE of one object, and of up to a thousand."""

from __future__ import annotations

from gateway.engine.types import Deleted, DeleteOne
from gateway.errors import EntrepotError
from s3api.errors import S3Error, explain
from s3api.format.conditions import delete_conditions, make_delete_conditions
from s3api.format.xml_reader import Element
from s3api.format.xml_writer import XML_HEAD, XMLNS, escape, escape_bytes
from s3api.http.bodies import need_digest, xml_body
from s3api.request import Call
from s3api.response import Answer, xml_answer

MAX_DELETES = 1000


async def delete_object(call: Call) -> Answer:
    """DELETE /bucket/key"""
    deleted = await call.engine.delete(
        call.caller, call.bucket, call.key, call.version, delete_conditions(call.headers)
    )
    return Answer(204, _lines(deleted))


def _lines(deleted: Deleted) -> str:
    lines = "x-amz-delete-marker: true\r\n" if deleted.marker else ""
    return f"{lines}x-amz-version-id: {deleted.version}\r\n" if deleted.version is not None else lines


async def delete_objects(call: Call) -> Answer:
    """POST /bucket?delete. Each key has its own outcome, and the answer is 200 whatever they are."""
    need_digest(call)
    root = await xml_body(call, "Delete")
    wanted = [_wanted(each) for each in root.all("Object")]
    if not 0 < len(wanted) <= MAX_DELETES:
        raise S3Error("MalformedXML")
    quiet = (root.get("Quiet") or "").strip().lower() == "true"
    outcomes = await call.engine.delete_many(call.caller, call.bucket, wanted)
    body = "".join([_outcome_xml(one, outcome, quiet) for one, outcome in zip(wanted, outcomes, strict=True)])
    return xml_answer(f"{XML_HEAD}<DeleteResult {XMLNS}>{body}</DeleteResult>")


def _wanted(element: Element) -> DeleteOne:
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
        failure = explain(outcome)
        return f"<Error>{named}<Code>{failure.code}</Code><Message>{escape(failure.message)}</Message></Error>"
    if quiet:
        return ""
    marker = ""
    if outcome.marker:
        marker = "<DeleteMarker>true</DeleteMarker>"
        if outcome.version is not None:
            marker += f"<DeleteMarkerVersionId>{outcome.version}</DeleteMarkerVersionId>"
    return f"<Deleted>{named}{marker}</Deleted>"
