"""Decoding the chunked transfer coding (RFC 9112, 7.1), without doing I/O."""

from __future__ import annotations

import re

from backends.http.errors import BodyTooLong, MalformedAnswer

_LINE_BYTES_MAX = 4 << 10
_TRAILERS_BYTES_MAX = 16 << 10
_CHUNKS_MAX = 16_384  # each costs a few microseconds; servers send some kilobytes in one
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")


class Chunks:
    """Appends the contents of chunks to a buffer, up to a limit."""

    def __init__(self, body: bytearray, bytes_max: int) -> None:
        self._body, self._bytes_max = body, bytes_max
        self._line = bytearray()  # what has come of a line: a chunk's size, the end of its data, or a trailer
        self._left = 0  # bytes of the chunk that are still to come
        self._in_data_end = self._in_trailers = False
        self._trailer_bytes = self._chunks = 0

    def feed(self, data: memoryview) -> int | None:
        """Take *data*. Returns None as long as more must come, and then how many bytes of *data* follow the body.

        Raises `BodyTooLong` and `MalformedAnswer`."""
        at, raw = 0, bytes(data)
        while at < len(raw):
            if self._left:
                piece = raw[at : at + self._left]
                self._body += piece
                self._left -= len(piece)
                at += len(piece)
                self._in_data_end = not self._left
                continue
            at, whole = self._read_line(raw, at)
            if whole and self._end_line():
                return len(raw) - at
        return None

    def _read_line(self, raw: bytes, at: int) -> tuple[int, bool]:
        """Take what is there of a line. Returns where it ends and whether it is whole."""
        end = raw.find(b"\n", at) + 1
        self._line += raw[at : end or len(raw)]
        if len(self._line) > _LINE_BYTES_MAX:
            raise MalformedAnswer(f"a line between chunks has more than {_LINE_BYTES_MAX} bytes")
        return end or len(raw), bool(end)

    def _end_line(self) -> bool:
        """Interpret a whole line. Returns whether it was the last one of the body."""
        line = bytes(self._line)
        self._line.clear()
        if not line.endswith(b"\r\n"):
            raise MalformedAnswer("a line between chunks ends without a carriage return")
        if self._in_data_end:
            if line != b"\r\n":
                raise MalformedAnswer("a chunk has more bytes than its size says")
            self._in_data_end = False
        elif self._in_trailers:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > _TRAILERS_BYTES_MAX:
                raise MalformedAnswer(f"more than {_TRAILERS_BYTES_MAX} bytes of trailers")
            return line == b"\r\n"
        else:
            self._begin_chunk(line[:-2])
        return False

    def _begin_chunk(self, line: bytes) -> None:
        size = _SIZE.fullmatch(line)
        if size is None:
            raise MalformedAnswer(f"a chunk of the size {line[:40]!r}")
        self._chunks += 1
        if self._chunks > _CHUNKS_MAX:
            raise MalformedAnswer(f"more than {_CHUNKS_MAX} chunks")
        self._left = int(size[1], 16)
        if len(self._body) + self._left > self._bytes_max:
            raise BodyTooLong(self._bytes_max)
        self._in_trailers = not self._left
