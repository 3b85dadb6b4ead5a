"""The S3 application: handles one exchange at a time.

It parses the target, finds the operation, authenticates the caller, runs the operation, and turns an error into S3's
error response. Whatever happens, the client receives a response with a request id (unless it disconnects), and the
access log receives one record.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from gateway.engine.types import Clock
from s3api.access_log import AccessLog, AccessRecord
from s3api.auth import Authenticator
from s3api.authorize import authorize, conceal
from s3api.errors import S3Error
from s3api.format.authority import destination, logged_path, virtual_bucket
from s3api.format.dates import http_date
from s3api.format.error_response import Failure, error_xml, translate_error
from s3api.format.hoisted_headers import hoisted_headers
from s3api.format.request_target import parse_target
from s3api.format.unsupported import check_headers
from s3api.http.exchange import NEWEST, OLDEST, Exchange
from s3api.operations import ROUTES
from s3api.ops.bucket_cors import response_lines
from s3api.ops.expected_owner import EXPECTED, check_expected_owner
from s3api.permissions import AUTHORIZED_LATER
from s3api.request import Operation, S3Request, lower_headers
from s3api.response import STATUS_LINES, Response
from s3api.settings import S3Settings

if TYPE_CHECKING:
    from gateway.engine.engine import Engine

log = logging.getLogger("entrepot.s3")

GONE = 499
"""The status in the access log if the client disconnected before the response was sent."""


class S3App:
    """Handles the exchanges of all connections of a worker, with one engine."""

    def __init__(self, engine: Engine, settings: S3Settings, access_log: AccessLog, clock: Clock) -> None:
        self._engine = engine
        self._settings = settings
        self._access_log = access_log
        self._wall_ns = clock.wall_ns
        self._authenticator = Authenticator(engine, settings, clock)
        self._host_id = secrets.token_urlsafe(24)
        self._server_line = f"Server: {settings.server_name}\r\n"
        self._host_line = f"x-amz-id-2: {self._host_id}\r\n"
        # A cheap counter. Its random start makes request ids unique among processes and restarts.
        self._numbers = itertools.count(secrets.randbits(62))
        self.in_flight = 0
        """The number of requests in progress."""
        self.closing = False
        """The server is stopping: each response closes its connection."""

    async def handle(self, exchange: Exchange) -> bool:
        """Handle one request. Returns whether the connection may be kept. Raises ConnectionError if the client has
        disconnected, or if the response failed after its head was sent."""
        started = time.perf_counter()
        request_id = f"{next(self._numbers):016X}"
        self.in_flight += 1
        request, response, sent = None, None, 0
        exchange.task = exchange.channel.task
        try:
            try:
                request = self._read_request(exchange, request_id)
                response = await self._start_operation(request)
            except (ConnectionError, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001 (the last handler: every error becomes a response)
                if request is not None:
                    error = conceal(request, error)
                response = self._error_response_for(exchange, request, request_id, error)

            if request is not None and "origin" in request.headers and request.operation != "PreflightRequest":
                response.lines += response_lines(request)
            close = self.closing or exchange.must_close(self._settings.drain_bytes)
            if response.chunks is None:
                # Most responses are written without a coroutine of their own.
                sent = exchange.send_whole(response, self._lines(request_id), close)
                if exchange.channel.writing_paused:
                    await exchange.drain(self._settings.write_idle_seconds)
            else:
                sent = await exchange.stream(
                    response, self._lines(request_id), close, self._settings.write_idle_seconds
                )
        except (ConnectionError, asyncio.CancelledError):
            response = Response(GONE, code="ClientGone")
            raise
        except Exception as error:
            # The head was already sent. The body is cut short, and the error is logged.
            response = self._truncated_response(request_id, error)
            raise ConnectionAbortedError from error
        else:
            # The server may have begun to stop while the response was sent.
            return not (close or self.closing)
        finally:
            exchange.task = None
            self.in_flight -= 1
            self._log_access(exchange, request, response, request_id, sent, time.perf_counter() - started)

    def _read_request(self, exchange: Exchange, request_id: str) -> S3Request:
        message = exchange.message
        if not OLDEST <= message.version <= NEWEST:
            raise S3Error("BadRequest")
        headers = lower_headers(message.headers.items())
        # The signed host is also the one that names the bucket and the one that operations see.
        authority, origin = destination(message.path, headers.get("host"), message.version)
        if authority:
            headers["host"] = authority
        target = parse_target(origin, virtual_bucket(authority, self._settings.base_domains))
        return S3Request(
            self._engine, self._settings, exchange, message.method, target, headers, request_id, self._wall_ns()
        )

    def _start_operation(self, request: S3Request) -> Awaitable[Response]:
        """Authenticate *request* and return its operation, to be awaited. A plain function, since each coroutine around
        the operation would cost every request time.

        Raises what `Authenticator.authenticate` raises, and S3Error NotImplemented if the request uses a feature that
        is not implemented."""
        hoisted = hoisted_headers(request.target, request.headers)
        headers = {**hoisted, **request.headers} if hoisted else request.headers
        route = ROUTES.find(request.method, request.target.scope, request.query, headers)
        request.operation = route.operation
        if route.signed:
            # Headers that come as query parameters are not among the signed headers.
            self._authenticator.authenticate(request)
        request.headers = headers
        check_headers(headers, self._settings.sealed)
        if route.signed and route.operation not in AUTHORIZED_LATER:
            authorize(request)
        if EXPECTED in headers and request.bucket and route.signed and route.operation != "CreateBucket":
            return _run_if_owned(request, request.bucket, route.handler)
        return route.handler(request)

    def _lines(self, request_id: str) -> str:
        return (
            f"{self._server_line}Date: {http_date(self._wall_ns() // 10**9)}\r\n"
            f"x-amz-request-id: {request_id}\r\n{self._host_line}"
        )

    def _error_response_for(
        self, exchange: Exchange, request: S3Request | None, request_id: str, error: Exception
    ) -> Response:
        failure = translate_error(error, request is not None and "versionId" in request.query)
        if failure.code == "InternalError":
            log.error("request %s failed", request_id, exc_info=error)
        resource = logged_path(exchange.message.path) if request is None else request.target.path
        return self._error_response(failure, resource, request_id, exchange.message.method)

    def _truncated_response(self, request_id: str, error: Exception) -> Response:
        """Log an error that occurred while the body was sent. Returns a response for the access log only: the client
        receives an incomplete body."""
        failure = translate_error(error)
        if failure.code == "InternalError":
            log.error("request %s failed while its response was sent", request_id, exc_info=error)
        else:
            log.warning("request %s was aborted while its response was sent: %s", request_id, error)
        return Response(failure.status, code=failure.code)

    def _error_response(self, failure: Failure, resource: str, request_id: str, method: str) -> Response:
        if failure.code == "NotModified":
            return Response(304, failure.headers, code=failure.code)
        body = error_xml(failure, resource, request_id, self._host_id)
        lines = failure.headers + "Content-Type: application/xml\r\n"
        if method == "HEAD":
            return Response(failure.status, lines, length=len(body), code=failure.code)
        return Response(failure.status, lines, body, code=failure.code)

    def refuse(self, remote: str, code: str) -> bytes:
        """Return the complete response, as bytes, to a request whose head cannot be parsed. The caller closes the
        connection after it."""
        request_id = f"{next(self._numbers):016X}"
        response = self._error_response(translate_error(S3Error(code)), "", request_id, "")
        seen = AccessRecord(
            request_id, "Unknown", "", "", response.status, code, 0, len(response.body), 0.0, "", "",
            "", remote,
        )  # fmt: skip
        self._access_log.write(seen)
        return (
            f"{STATUS_LINES[response.status]}{self._lines(request_id)}{response.lines}"
            f"Content-Length: {len(response.body)}\r\nConnection: close\r\n\r\n"
        ).encode() + bytes(response.body)

    def _log_access(
        self,
        exchange: Exchange,
        request: S3Request | None,
        response: Response | None,
        request_id: str,
        sent: int,
        seconds: float,
    ) -> None:
        self._access_log.write(
            AccessRecord(
                request_id,
                request.operation if request else "Unknown",
                exchange.message.method,
                request.target.path if request else logged_path(exchange.message.path),
                response.status if response is not None else GONE,
                response.code if response is not None else "ClientGone",
                exchange.received,
                sent,
                seconds,
                request.bucket if request else "",
                request.caller.user if request else "",
                request.claimed_access_key if request and request.verified is None else "",
                exchange.channel.remote,
            )
        )


async def _run_if_owned(request: S3Request, bucket: str, operation: Operation) -> Response:
    """Run *operation* if *bucket* has the owner that the client expects. Raises as `check_expected_owner`."""
    await check_expected_owner(request, EXPECTED, bucket)
    return await operation(request)
