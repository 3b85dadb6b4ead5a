"""What every request leaves behind: its counts, and its line in the log. On the path of each request, so it is cheap.

A line holds nothing that a client could have put a secret into: the query of a request (where presigned signatures
stand) and its headers never come here.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quoted
from typing import Protocol

from gateway.metrics.instruments import counter, histogram
from gateway.metrics.json_log import Lines

PATH_CHARS_MAX = 1_024
SERVER_FAULT, NOT_BUILT = 500, 501

REQUESTS = counter("entrepot_requests_total", "Requests answered.", ("operation", "status"))
SECONDS = histogram("entrepot_request_seconds", "From a request's head to its last byte.", ("operation",))
BYTES_IN = counter("entrepot_request_bytes_total", "Bytes of requests' bodies.")
BYTES_OUT = counter("entrepot_response_bytes_total", "Bytes of answers' bodies.")


class Seen(Protocol):
    """What is known of a request behind its last byte."""

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
    def remote(self) -> str: ...


class Requests:
    """Counts requests and writes their lines; *lines* is None where no line a request is wanted."""

    def __init__(self, lines: Lines | None) -> None:
        self._lines = lines

    def answered(self, seen: Seen) -> None:
        operation = seen.operation
        REQUESTS.add(1, operation, str(seen.status))
        SECONDS.observe(seen.seconds, operation)
        if seen.bytes_in:
            BYTES_IN.add(seen.bytes_in)
        if seen.bytes_out:
            BYTES_OUT.add(seen.bytes_out)
        if self._lines is not None:
            self._lines.put(_line(self._lines.process, seen))


def _line(process: str, seen: Seen) -> str:
    level = "error" if seen.status >= SERVER_FAULT and seen.status != NOT_BUILT else "info"
    error = f',"error":{quoted(seen.error)}' if seen.error else ""
    return (
        f'"level":"{level}","process":{process},"event":"request","id":"{seen.request_id}",'
        f'"operation":"{seen.operation}","method":{quoted(seen.method[:16])},'
        f'"path":{quoted(seen.path[:PATH_CHARS_MAX])},"status":{seen.status}{error},"in":{seen.bytes_in},'
        f'"out":{seen.bytes_out},"seconds":{seen.seconds:.6f},"user":{quoted(seen.user)},"remote":{quoted(seen.remote)}'
    )
