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
from s3api.access_log import Observed, Observer
from s3api.auth import Signatures
from s3api.errors import Failure, S3Error, error_xml, explain
from s3api.format.authority import destination, logged_path, virtual_bucket
from s3api.format.dates import http_date
from s3api.format.hoisted_headers import hoisted
from s3api.format.owners import EXPECTED, check_expected_owner
from s3api.format.request_target import parse_target
from s3api.format.unsupported import check_headers
from s3api.http.exchange import NEWEST, OLDEST, Exchange
from s3api.operations import ROUTES
from s3api.request import Call, lower_headers
from s3api.response import STATUS_LINES, Answer
from s3api.routing import Row
from s3api.settings import S3Settings

if TYPE_CHECKING:
    from gateway.engine.engine import Engine

log = logging.getLogger("entrepot.s3")

GONE = 499
"""What the log says of a client that left before its answer."""


class Door:
    """Answers exchanges out of one engine."""

    def __init__(self, engine: Engine, settings: S3Settings, observer: Observer, clock: Clock) -> None:
        self._engine = engine
        self._settings = settings
        self._observer = observer
        self._wall_ns = clock.wall_ns
        self._signatures = Signatures(engine, settings, clock)
        self._host_id = secrets.token_urlsafe(24)
        self._server_line = f"Server: {settings.server_name}\r\n"
        self._host_line = f"x-amz-id-2: {self._host_id}\r\n"
        # Unique among processes and restarts by its random start, and cheap.
        self._numbers = itertools.count(secrets.randbits(62))
        self.in_flight = 0
        """Requests that are being answered."""
        self.closing = False
        """Answers from now on end their connections."""

    async def answer(self, exchange: Exchange) -> bool:
        """Answer one request; whether its connection may live on. Raises ConnectionError when nobody is there."""
        started = time.perf_counter()
        request_id = f"{next(self._numbers):016X}"
        self.in_flight += 1
        call, answer, sent = None, None, 0
        exchange.work = asyncio.current_task()
        try:
            try:
                call = self._call(exchange, request_id)
                row = self._admit(call)
                if EXPECTED in call.headers and call.bucket and row.signed and row.operation != "CreateBucket":
                    await check_expected_owner(call, EXPECTED, call.bucket)
                answer = await row.handler(call)
            except (ConnectionError, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001 (the last place before the client: nothing may pass)
                answer = self._failed(exchange, call, request_id, error)
            close = self.closing or exchange.must_close(self._settings.drain_bytes)
            if answer.chunks is None:
                # Written without a coroutine of its own, as most answers are.
                sent = exchange.send_whole(answer, self._lines(request_id), close)
                if exchange.protocol.writing_paused:
                    await exchange.drain(self._settings.write_idle_seconds)
            else:
                sent = await exchange.stream(answer, self._lines(request_id), close, self._settings.write_idle_seconds)
        except (ConnectionError, asyncio.CancelledError):
            answer = Answer(GONE, code="ClientGone")
            raise
        except Exception as error:
            # The head of the answer is out: all that is left is to cut the body short, and to say why here.
            answer = self._broke_off(request_id, error)
            raise ConnectionAbortedError from error
        else:
            # The stop may have begun while the answer went out.
            return not (close or self.closing)
        finally:
            exchange.work = None
            self.in_flight -= 1
            self._observe(exchange, call, answer, request_id, sent, time.perf_counter() - started)

    def _call(self, exchange: Exchange, request_id: str) -> Call:
        message = exchange.message
        if not OLDEST <= message.version <= NEWEST:
            raise S3Error("BadRequest")
        headers = lower_headers(message.headers.items())
        # The host that is signed is the one that names the bucket, and the one that operations see.
        authority, origin = destination(message.path, headers.get("host"), message.version)
        if authority:
            headers["host"] = authority
        target = parse_target(origin, virtual_bucket(authority, self._settings.base_domains))
        return Call(self._engine, self._settings, exchange, target, headers, request_id)

    def _admit(self, call: Call) -> Row:
        """The operation that is asked for, once it is known who asks and that nothing is asked that is not built."""
        told = hoisted(call.target, call.headers)
        said = {**told, **call.headers} if told else call.headers
        row = ROUTES.find(call.method, call.target.scope, call.query, said)
        call.operation = row.operation
        if row.signed:
            # The headers that are signed are those that came as headers.
            self._signatures.authenticate(call)
        call.headers = said
        check_headers(call.headers, self._settings.sealed)
        return row

    def _lines(self, request_id: str) -> str:
        return (
            f"{self._server_line}Date: {http_date(self._wall_ns() // 10**9)}\r\n"
            f"x-amz-request-id: {request_id}\r\n{self._host_line}"
        )

    def _failed(self, exchange: Exchange, call: Call | None, request_id: str, error: Exception) -> Answer:
        failure = explain(error, call is not None and "versionId" in call.query)
        if failure.code == "InternalError":
            log.error("request %s failed", request_id, exc_info=error)
        resource = logged_path(exchange.message.path) if call is None else call.target.path
        return self._error_answer(failure, resource, request_id, exchange.message.method)

    def _broke_off(self, request_id: str, error: Exception) -> Answer:
        """What is told of a request that failed in the middle of its answer; its client sees a body that is short."""
        failure = explain(error)
        if failure.code == "InternalError":
            log.error("request %s failed in the middle of its answer", request_id, exc_info=error)
        else:
            log.warning("request %s broke off in the middle of its answer: %s", request_id, error)
        return Answer(failure.status, code=failure.code)

    def _error_answer(self, failure: Failure, resource: str, request_id: str, method: str) -> Answer:
        if failure.code == "NotModified":
            return Answer(304, failure.headers, code=failure.code)
        body = error_xml(failure, resource, request_id, self._host_id)
        lines = failure.headers + "Content-Type: application/xml\r\n"
        if method == "HEAD":
            return Answer(failure.status, lines, length=len(body), code=failure.code)
        return Answer(failure.status, lines, body, code=failure.code)

    def refuse(self, remote: str, code: str) -> bytes:
        """The whole answer, as bytes, to a request whose head could not be read; the connection ends behind it."""
        request_id = f"{next(self._numbers):016X}"
        answer = self._error_answer(explain(S3Error(code)), "", request_id, "")
        seen = Observed(
            request_id, "Unknown", "", "", answer.status, code, 0, len(answer.body), 0.0, "", "",
            remote,
        )  # fmt: skip
        self._observer.answered(seen)
        return (
            f"{STATUS_LINES[answer.status]}{self._lines(request_id)}{answer.lines}"
            f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
        ).encode() + bytes(answer.body)

    def _observe(
        self, exchange: Exchange, call: Call | None, answer: Answer | None, request_id: str, sent: int, seconds: float
    ) -> None:
        self._observer.answered(
            Observed(
                request_id,
                call.operation if call else "Unknown",
                exchange.message.method,
                call.target.path if call else logged_path(exchange.message.path),
                answer.status if answer is not None else GONE,
                answer.code if answer is not None else "ClientGone",
                exchange.received,
                sent,
                seconds,
                call.bucket if call else "",
                call.caller.user if call else "",
                exchange.protocol.remote,
            )
        )
