"""From an exchange to its answer: read the target, find the operation, know who asks, run it, put errors in S3's words.

Whatever happens in between, the client gets an answer with a request id, and the observer one call.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from typing import TYPE_CHECKING

from gateway.timing import Clock
from s3api.access_log import AccessLog, AccessRecord
from s3api.auth import Authenticator
from s3api.errors import Failure, S3Error, error_xml, translate_error
from s3api.format.authority import destination, logged_path, virtual_bucket
from s3api.format.dates import http_date
from s3api.format.hoisted_headers import hoisted_headers
from s3api.format.owners import EXPECTED, check_expected_owner
from s3api.format.request_target import parse_target
from s3api.format.unsupported import check_headers
from s3api.http.exchange import NEWEST, OLDEST, Exchange
from s3api.operations import ROUTES
from s3api.request import S3Request, lower_headers
from s3api.response import STATUS_LINES, Response
from s3api.routing import Route
from s3api.settings import S3Settings

if TYPE_CHECKING:
    from gateway.engine.engine import Engine

log = logging.getLogger("entrepot.s3")

GONE = 499
"""What the log says of a client that left before its answer."""


class S3App:
    """Answers exchanges out of one engine."""

    def __init__(self, engine: Engine, settings: S3Settings, access_log: AccessLog, clock: Clock) -> None:
        self._engine = engine
        self._settings = settings
        self._access_log = access_log
        self._wall_ns = clock.wall_ns
        self._authenticator = Authenticator(engine, settings, clock)
        self._host_id = secrets.token_urlsafe(24)
        self._server_line = f"Server: {settings.server_name}\r\n"
        self._host_line = f"x-amz-id-2: {self._host_id}\r\n"
        # Unique among processes and restarts by its random start, and cheap.
        self._numbers = itertools.count(secrets.randbits(62))
        self.in_flight = 0
        """Requests that are being answered."""
        self.closing = False
        """Answers from now on end their connections."""

    async def handle(self, exchange: Exchange) -> bool:
        """Answer one request; whether its connection may live on. Raises ConnectionError when nobody is there."""
        started = time.perf_counter()
        request_id = f"{next(self._numbers):016X}"
        self.in_flight += 1
        request, response, sent = None, None, 0
        exchange.task = asyncio.current_task()
        try:
            try:
                request = self._read_request(exchange, request_id)
                route = self._route(request)
                if (
                    EXPECTED in request.headers
                    and request.bucket
                    and route.signed
                    and route.operation != "CreateBucket"
                ):
                    await check_expected_owner(request, EXPECTED, request.bucket)
                response = await route.handler(request)
            except (ConnectionError, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001 (the last place before the client: nothing may pass)
                response = self._error_response_for(exchange, request, request_id, error)
            close = self.closing or exchange.must_close(self._settings.drain_bytes)
            if response.chunks is None:
                # Written without a coroutine of its own, as most answers are.
                sent = exchange.send_whole(response, self._lines(request_id), close)
                if exchange.protocol.writing_paused:
                    await exchange.drain(self._settings.write_idle_seconds)
            else:
                sent = await exchange.stream(
                    response, self._lines(request_id), close, self._settings.write_idle_seconds
                )
        except (ConnectionError, asyncio.CancelledError):
            response = Response(GONE, code="ClientGone")
            raise
        except Exception as error:
            # The head of the answer is out: all that is left is to cut the body short, and to say why here.
            response = self._truncated_response(request_id, error)
            raise ConnectionAbortedError from error
        else:
            # The stop may have begun while the answer went out.
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
        # The host that is signed is the one that names the bucket, and the one that operations see.
        authority, origin = destination(message.path, headers.get("host"), message.version)
        if authority:
            headers["host"] = authority
        target = parse_target(origin, virtual_bucket(authority, self._settings.base_domains))
        return S3Request(self._engine, self._settings, exchange, target, headers, request_id)

    def _route(self, request: S3Request) -> Route:
        """The operation that is asked for, once it is known who asks and that nothing is asked that is not built."""
        hoisted = hoisted_headers(request.target, request.headers)
        headers = {**hoisted, **request.headers} if hoisted else request.headers
        route = ROUTES.find(request.method, request.target.scope, request.query, headers)
        request.operation = route.operation
        if route.signed:
            # The headers that are signed are those that came as headers.
            self._authenticator.authenticate(request)
        request.headers = headers
        check_headers(request.headers, self._settings.sealed)
        return route

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
        """What is told of a request that failed in the middle of its answer; its client sees a body that is short."""
        failure = translate_error(error)
        if failure.code == "InternalError":
            log.error("request %s failed in the middle of its answer", request_id, exc_info=error)
        else:
            log.warning("request %s broke off in the middle of its answer: %s", request_id, error)
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
        """The whole answer, as bytes, to a request whose head could not be read; the connection ends behind it."""
        request_id = f"{next(self._numbers):016X}"
        response = self._error_response(translate_error(S3Error(code)), "", request_id, "")
        seen = AccessRecord(
            request_id, "Unknown", "", "", response.status, code, 0, len(response.body), 0.0, "", "",
            remote,
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
                exchange.protocol.remote,
            )
        )
