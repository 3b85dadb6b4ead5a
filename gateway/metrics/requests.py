"""The metrics and the access log line of each completed request. On the path of every request, so it is cheap.

A log line contains no secrets: the query of a request, which may hold a presigned signature, and its headers are never
passed to this module.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quoted
from typing import Protocol

from gateway.metrics.instruments import counter, histogram
from gateway.metrics.json_log import JsonLog

ACCESS_KEY_CHARS_MAX = 128
PATH_CHARS_MAX = 1_024
SERVER_FAULT, NOT_BUILT = 500, 501

REQUESTS = counter("entrepot_requests_total", "Requests answered.", ("operation", "status"))
SECONDS = histogram("entrepot_request_seconds", "From a request's head to its last byte.", ("operation",))
BYTES_IN = counter("entrepot_request_bytes_total", "Bytes of requests' bodies.")
BYTES_OUT = counter("entrepot_response_bytes_total", "Bytes of answers' bodies.")


class CompletedRequest(Protocol):
    """A request after the last byte of its response was sent."""

    @property
    def request_id(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def status(self) -> int: ...
    @property
    def error(self) -> str: ...
    @property
    def bytes_in(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def user(self) -> str: ...
    @property
    def access_key(self) -> str: ...
    @property
    def remote(self) -> str: ...


class RequestLog:
    """Counts requests, and logs each one if *lines* is given."""

    def __init__(self, lines: JsonLog | None) -> None:
        self._lines = lines

    def write(self, seen: CompletedRequest) -> None:
        operation = seen.operation
        REQUESTS.add(1, operation, str(seen.status))
        SECONDS.observe(seen.seconds, operation)
        if seen.bytes_in:
            BYTES_IN.add(seen.bytes_in)
        if seen.bytes_out:
            BYTES_OUT.add(seen.bytes_out)
        if self._lines is not None:
            self._lines.put(_line(self._lines.process, seen))


def _line(process: str, seen: CompletedRequest) -> str:
    level = "error" if seen.status >= SERVER_FAULT and seen.status != NOT_BUILT else "info"
    error = f',"error":{quoted(seen.error)}' if seen.error else ""
    key = f',"access_key":{quoted(seen.access_key[:ACCESS_KEY_CHARS_MAX])}' if seen.access_key else ""
    return (
        f'"level":"{level}","process":{process},"event":"request","id":"{seen.request_id}",'
        f'"operation":"{seen.operation}","method":{quoted(seen.method[:16])},'
        f'"path":{quoted(seen.path[:PATH_CHARS_MAX])},"status":{seen.status}{error},"in":{seen.bytes_in},'
        f'"out":{seen.bytes_out},"seconds":{seen.seconds:.6f},"user":{quoted(seen.user)}{key},'
        f'"remote":{quoted(seen.remote)}'
    )
