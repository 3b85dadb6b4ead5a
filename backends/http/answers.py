"""Reading one HTTP/1.1 answer (RFC 9112) from bytes, without doing I/O.

A server may send anything, so everything is bounded before it is kept: the head by the size of the buffer in which it
is collected, informational answers by their number, and the body by the caller. Memory for a body is allocated once its
announced length has been found to be allowed. An answer that is no success is cut off after `REFUSAL_BYTES_MAX`, since
its status says what it means, however long the page is that somebody sends along.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from backends.buffers import unfilled
from backends.http.chunks import Chunks
from backends.http.errors import BodyTooLong, ConnectionCut, MalformedAnswer

HEAD_BYTES_MAX = 64 << 10
REFUSAL_BYTES_MAX = 64 << 10
"""Bytes that are taken of a body whose status is no success: an error of S3's has some hundred."""

# Taken from the connection at once, so that the event loop is free again soon.
_READ_BYTES_MAX = 256 << 10
_PARSED_BYTES_MAX = 16 << 10  # of heads and chunks, which are parsed: some thousand chunks may stand in that
_INTERIM_MAX = 16  # answers 1xx before the one that counts
_HEADERS_MAX = 512
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?")
_LENGTH = re.compile(r"[0-9]{1,15}")
_NO_BODY = frozenset({204, 304})
_SINGLE = frozenset({"content-length", "transfer-encoding"})


class Answer(NamedTuple):
    """A whole answer. Header names are in lower case; a header that came several times has its values joined."""

    status: int
    headers: Mapping[str, str]
    body: bytearray

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def length(self) -> int | None:
        """The Content-Length, which `AnswerReader` has checked; None where there is none."""
        length = self.headers.get("content-length")
        return None if length is None else int(length)


class AnswerReader:
    """Reads the answer to one request. Call `buffer`, fill a part of it, tell `received` how much; repeat until that
    returns True, or call `ended` at the end of the connection. Both raise `HttpError`."""

    def __init__(self, method: str, bytes_max: int, scratch: bytearray) -> None:
        """*bytes_max* bounds the body of a success. *scratch* has `HEAD_BYTES_MAX` bytes that are free to use."""
        self._method, self._bytes_max = method, bytes_max
        self._scratch, self._view = scratch, memoryview(scratch)
        self._held = 0  # bytes of the head in the scratch
        self._interim = 0
        self._head: tuple[int, dict[str, str]] | None = None
        self._body = bytearray()
        self._exact: memoryview | None = None  # of the body, where its length is known
        self._filled = 0
        self._chunks: Chunks | None = None
        self._limit = 0  # of a body that ends with the connection
        self._is_refusal = False
        self.begun = False
        """Whether any byte of the answer has come."""
        self.persistent = False
        """Whether the connection may be used again; only once the answer is whole."""

    @property
    def answer(self) -> Answer:
        """The whole answer, once `received` or `ended` has returned True."""
        assert self._head is not None
        return Answer(*self._head, self._body)

    def buffer(self) -> memoryview:
        """Where the next bytes go."""
        if self._exact is not None:
            return self._exact[self._filled : self._filled + _READ_BYTES_MAX]
        held = self._held if self._head is None else 0
        return self._view[held : held + _PARSED_BYTES_MAX]

    def received(self, count: int) -> bool:
        """Take *count* bytes that now stand in `buffer`. Returns whether the answer is whole."""
        self.begun = True
        if self._exact is not None:
            self._filled += count
            return self._filled == len(self._exact)
        if self._head is not None:
            return self._take(self._view[:count])
        self._held += count
        return self._find_head(max(0, self._held - count - 3))

    def ended(self) -> bool:
        """The server sends no more. Returns True where that is how the answer ends; raises `ConnectionCut` else."""
        if self._head is None or self._exact is not None or self._chunks is not None:
            raise ConnectionCut("the connection ended before the answer did", begun=self.begun)
        self.persistent = False
        return True

    def _find_head(self, search_from: int) -> bool:
        while (end := self._scratch.find(b"\r\n\r\n", search_from, self._held)) >= 0:
            minor, status, headers = _parse_head(self._scratch[:end].decode("latin-1"))
            rest = self._held - end - 4
            if status >= 200:
                self._head = (status, headers)
                return self._start_body(minor, status, headers, self._view[end + 4 : self._held])
            self._skip_interim(status)
            self._scratch[:rest] = self._scratch[end + 4 : self._held]
            self._held = rest
            search_from = 0
        if self._held == len(self._scratch):
            raise MalformedAnswer(f"the head of the answer has more than {self._held} bytes")
        return False

    def _skip_interim(self, status: int) -> None:
        """RFC 9110, 15.2: informational answers come before the one that counts. We never ask for another protocol."""
        self._interim += 1
        if status == 101 or self._interim > _INTERIM_MAX:
            raise MalformedAnswer(f"an answer {status} that nobody asked for, or too many of them")

    def _start_body(self, minor: int, status: int, headers: dict[str, str], rest: memoryview) -> bool:
        """Decide how the body ends (RFC 9112, 6.3), and take what has come of it. Returns whether that is all."""
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        if length is not None and not _LENGTH.fullmatch(length):
            raise MalformedAnswer(f"a Content-Length of {length[:40]!r}")
        self.persistent = minor == 1 and "close" not in headers.get("connection", "").lower()
        self._is_refusal = not 200 <= status < 300
        limit = REFUSAL_BYTES_MAX if self._is_refusal else self._bytes_max
        if self._method == "HEAD" or status in _NO_BODY or (self._method == "CONNECT" and 200 <= status < 300):
            return self._end(excess=len(rest))
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise MalformedAnswer(f"a Transfer-Encoding of {coding[:40]!r}, with or without a Content-Length")
            self._chunks = Chunks(self._body, limit)
            return self._take(rest)
        if length is None:
            self._limit = limit
            return self._take(rest)
        return self._start_exact(int(length), limit, rest)

    def _start_exact(self, length: int, limit: int, rest: memoryview) -> bool:
        if length > limit:
            if not self._is_refusal:
                raise BodyTooLong(limit, length)
            length, self.persistent = limit, False
        self._body = unfilled(length)
        came = min(len(rest), length)
        view = memoryview(self._body)
        view[:came] = rest[:came]
        if came == length:
            return self._end(excess=len(rest) - length)
        self._exact, self._filled = view, came
        return False

    def _take(self, data: memoryview) -> bool:
        """Take a piece of a body whose length is not known."""
        try:
            if self._chunks is not None:
                excess = self._chunks.feed(data)
                return excess is not None and self._end(excess)
            if len(self._body) + len(data) > self._limit:
                raise BodyTooLong(self._limit)
            self._body += data
        except BodyTooLong:
            if not self._is_refusal:
                raise
            return self._end(excess=1)
        return False

    def _end(self, excess: int) -> bool:
        """The answer is whole. Where *excess* bytes followed it, the connection is of no use any more."""
        self.persistent = self.persistent and excess == 0
        return True


def _parse_head(text: str) -> tuple[int, int, dict[str, str]]:
    """The minor version, the status and the headers in *text*, a head without its last two line ends."""
    first, *lines = text.split("\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise MalformedAnswer(f"it begins with {first[:40]!r} and not with a status line of HTTP/1.1")
    if len(lines) > _HEADERS_MAX:
        raise MalformedAnswer(f"{len(lines)} headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name.strip() != name or "\n" in line or "\r" in line or "\0" in line:
            raise MalformedAnswer(f"a header {line[:40]!r}")
        name, value = name.lower(), value.strip(" \t")
        if name in _SINGLE and headers.get(name, value) != value:
            raise MalformedAnswer(f"two headers {name} that differ")
        repeated = name in headers and name not in _SINGLE
        headers[name] = f"{headers[name]}, {value}" if repeated else value
    return int(status[1]), int(status[2]), headers
