"""CORS: the rules of a bucket, preflight requests, and the header lines of responses to pages of other origins."""

from __future__ import annotations

import re

from gateway.engine.types import DocumentKind
from s3api.errors import S3Error
from s3api.format.cors import (
    DOCUMENT_BYTES_MAX,
    METHODS,
    ROOT,
    CorsRule,
    cors_lines,
    find_rule,
    parse_rules,
    rules_xml,
    stored_rules,
)
from s3api.format.xml_reader import read_xml
from s3api.format.xml_writer import XML_HEAD
from s3api.http.bodies import read_body
from s3api.request import S3Request
from s3api.response import Response, xml_response

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
REQUEST_HEADERS_MAX = 50
"""The most headers that a preflight request may ask for."""
_ORIGIN = re.compile(r"[\x21-\x7e]{1,1024}")


async def get_bucket_cors(request: S3Request) -> Response:
    """GET /bucket?cors"""
    document = await request.engine.bucket_document(request.caller, request.bucket, DocumentKind.CORS)
    if document is None:
        raise S3Error("NoSuchCORSConfiguration", BucketName=request.bucket)
    return xml_response(XML_HEAD + document.decode())


async def put_bucket_cors(request: S3Request) -> Response:
    """PUT /bucket?cors"""
    rules = parse_rules(await read_xml(await read_body(request, DOCUMENT_BYTES_MAX), ROOT))
    document = rules_xml(rules).encode()
    if len(document) > DOCUMENT_BYTES_MAX:
        raise S3Error("MaxMessageLengthExceeded", MaxMessageLengthBytes=str(DOCUMENT_BYTES_MAX))
    await request.engine.set_bucket_document(request.caller, request.bucket, DocumentKind.CORS, document)
    return Response(200)


async def delete_bucket_cors(request: S3Request) -> Response:
    """DELETE /bucket?cors. As in S3, it succeeds if the bucket has no rules."""
    await request.engine.remove_bucket_document(request.caller, request.bucket, DocumentKind.CORS)
    return Response(204)


async def preflight(request: S3Request) -> Response:
    """OPTIONS /bucket/key: a browser asks whether a page may send a request (Fetch standard, "CORS-preflight request").
    It is not signed."""
    origin, method = _origin(request), request.headers.get("access-control-request-method", "")
    if not origin:
        raise S3Error("BadRequest", "Insufficient information. Origin request header needed.")
    if method not in METHODS:
        raise S3Error("BadRequest", f"Invalid Access-Control-Request-Method: {method or 'null'}")
    text = request.headers.get("access-control-request-headers", "")
    wanted = [each.strip() for each in text.split(",") if each.strip()]
    if len(wanted) > REQUEST_HEADERS_MAX or not all(_TOKEN.fullmatch(each) for each in wanted):
        raise S3Error("BadRequest", "Invalid Access-Control-Request-Headers.")
    rules = _rules(request)
    if not rules:
        raise S3Error(
            "AccessForbidden", "CORSResponse: CORS is not enabled for this bucket.", **_details(request, method)
        )
    rule = find_rule(rules, origin, method, wanted)
    if rule is None:
        raise S3Error("AccessForbidden", **_details(request, method))
    return Response(200, cors_lines(rule, origin, wanted))


def response_lines(request: S3Request) -> str:
    """Return the CORS lines of the response to an actual request, whatever its status is; empty if the bucket's rules
    do not allow the request's origin."""
    origin = _origin(request)
    rule = find_rule(_rules(request), origin, request.method) if origin else None
    return cors_lines(rule, origin) if rule is not None else ""


def _origin(request: S3Request) -> str:
    origin = request.headers.get("origin", "")
    return origin if _ORIGIN.fullmatch(origin) else ""


def _rules(request: S3Request) -> tuple[CorsRule, ...]:
    document = request.engine.public_document(request.bucket, DocumentKind.CORS) if request.bucket else None
    return stored_rules(document) if document is not None else ()


def _details(request: S3Request, method: str) -> dict[str, str]:
    return {"Method": method, "ResourceType": request.target.scope.upper()}
