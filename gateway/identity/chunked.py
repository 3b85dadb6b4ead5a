"""Incremental parser of aws-chunked bodies: bytes in, events out, no I/O.

Source: the S3 API reference, "Signature calculations for the Authorization header: transferring payload in multiple
chunks", and the page on its form with trailers.

**Theory of operation.** A body is a sequence of chunks, each a header line, its data and a line end. The last chunk is
empty; an empty line or the trailers follow it. `ChunkState` names what the parser expects next; only `feed` changes it.
Invariants:

- `Data` events are emitted as bytes arrive, before the signature of their chunk can be verified. `End` is emitted only
  once all signatures and lengths are verified, so a caller must commit nothing before it.
- The parser holds at most one line (1 KiB) and the trailers (8 KiB together).

A body whose chunks are malformed is reported as IncompleteBody: S3 has no other code for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import Enum
from hmac import compare_digest
from typing import NamedTuple

from gateway.identity import canonical
from gateway.identity.canonical import EMPTY_SHA256
from gateway.identity.signature_errors import (
    IncompleteBodyError,
    MalformedTrailerError,
    SignatureDoesNotMatch,
    SignatureError,
)
from gateway.identity.sigv4 import PayloadKind, VerifiedRequest

LINE_MOST = 1024
TRAILERS_MOST = 8192
_SIGNATURE = b";chunk-signature="
_HEX = frozenset(b"0123456789abcdefABCDEF")


class Data(NamedTuple):
    """A part of the decoded body."""

    data: memoryview


class Trailer(NamedTuple):
    """A field after the body. Its name is in lower case."""

    name: str
    value: str


class End(NamedTuple):
    """The body is complete and all its signatures are valid."""


Event = Data | Trailer | End


class ChunkState(Enum):
    """What the parser expects next."""

    HEADER = 1
    DATA = 2
    GAP = 3
    """The line end after a chunk's data."""
    TRAILERS = 4
    LAST = 5
    """The empty line after the empty chunk of a body without trailers."""
    ENDED = 6


class ChunkedParser:
    """Parses one body: call `feed` with the bytes that arrive, and `finish` at the end of the input.

    *decoded_length*: the value of x-amz-decoded-content-length, which must equal the number of decoded bytes. Both
    methods raise a `SignatureError`."""

    def __init__(self, verified: VerifiedRequest, decoded_length: int) -> None:
        self._signed = verified.payload in (PayloadKind.STREAMING, PayloadKind.STREAMING_TRAILER)
        self._trailing = verified.payload in (PayloadKind.STREAMING_TRAILER, PayloadKind.STREAMING_UNSIGNED_TRAILER)
        self._key = verified.signing_key
        self._prefix = f"{verified.amz_date}\n{verified.scope}\n"
        self._previous = verified.signature
        self._left = decoded_length
        self._line = bytearray()
        self._chunk_left = 0
        self._chunk_signature = ""
        self._chunk_hash = hashlib.sha256()
        self._state = ChunkState.HEADER
        self._trailers: list[tuple[str, str]] = []
        self._trailer_bytes = 0
        self._expects_blank_line = False

    @property
    def ended(self) -> bool:
        """Whether `End` was emitted."""
        return self._state is ChunkState.ENDED

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Event]:
        """Yield the events in *data*; the caller must exhaust the iterator. `Data` events are views of *data*."""
        view = memoryview(data)
        at = 0
        while at < len(view):
            if self._state is ChunkState.ENDED:
                raise IncompleteBodyError("There are more bytes after the end of the body.")
            if self._state is ChunkState.DATA:
                part = view[at : at + self._chunk_left]
                at += len(part)
                self._on_data(part)
                yield Data(part)
                continue
            at = self._extend_line(view, at)
            if self._line.endswith(b"\n"):
                line = self._take_line()
                if not line and self._expects_blank_line:
                    self._expects_blank_line = False
                else:
                    yield from self._on_line(line)

    def finish(self) -> None:
        """Signal the end of the input. Raises `IncompleteBodyError` if the body has not ended."""
        if not self.ended:
            raise IncompleteBodyError("The request body terminated unexpectedly")

    def _extend_line(self, view: memoryview, at: int) -> int:
        """Append bytes to the current line, up to its end. Returns the offset after them."""
        piece = bytes(view[at : at + LINE_MOST + 2])
        end = piece.find(b"\n") + 1
        self._line += piece[:end] if end else piece
        if len(self._line) > LINE_MOST:
            raise self._malformed("A chunk header or a trailer is too long.")
        return at + (end or len(piece))

    def _take_line(self) -> bytes:
        """Return and clear the current line, without its line end.

        A line ends in CR LF. A trailer may also end in LF, with CR LF once more after the last one: some clients write
        that (minio-go, after AWS's own page)."""
        line = bytes(self._line)
        self._line.clear()
        if line.endswith(b"\r\n"):
            return line[:-2]
        if self._state is not ChunkState.TRAILERS or line == b"\n":
            raise self._malformed("A line does not end in CR LF.")
        self._expects_blank_line = True
        return line[:-1]

    def _malformed(self, message: str) -> SignatureError:
        kind = MalformedTrailerError if self._state is ChunkState.TRAILERS else IncompleteBodyError
        return kind(message)

    def _on_line(self, line: bytes) -> Iterator[Event]:
        match self._state:
            case ChunkState.HEADER:
                self._on_header(line)
            case ChunkState.GAP:
                if line:
                    raise IncompleteBodyError("A chunk is longer than its header states.")
                self._state = ChunkState.HEADER
            case ChunkState.LAST:
                if line:
                    raise IncompleteBodyError("There are more bytes after the last chunk.")
                self._state = ChunkState.ENDED
                yield End()
            case _:
                yield from self._on_trailer(line)

    def _on_header(self, line: bytes) -> None:
        digits, separator, signature = line.partition(_SIGNATURE)
        if not 0 < len(digits) <= 16 or not _HEX.issuperset(digits):
            raise IncompleteBodyError("A chunk's size is not a hexadecimal number.")
        if self._signed:
            if not separator or len(signature) != 64:
                raise IncompleteBodyError("A chunk has no signature.")
            self._chunk_signature = signature.decode("ascii", "replace")
        size = int(digits, 16)
        if size > self._left:
            raise IncompleteBodyError("The body is longer than x-amz-decoded-content-length states.")
        self._chunk_left = size
        if self._signed:
            self._chunk_hash = hashlib.sha256()
        if size:
            self._state = ChunkState.DATA
            return
        if self._left:
            raise IncompleteBodyError("The body is shorter than x-amz-decoded-content-length states.")
        self._verify_chunk()
        self._state = ChunkState.TRAILERS if self._trailing else ChunkState.LAST

    def _on_data(self, data: memoryview) -> None:
        self._chunk_left -= len(data)
        self._left -= len(data)
        if self._signed:
            self._chunk_hash.update(data)
        if not self._chunk_left:
            self._verify_chunk()
            self._state = ChunkState.GAP

    def _verify_chunk(self) -> None:
        if not self._signed:
            return
        text = (
            f"AWS4-HMAC-SHA256-PAYLOAD\n{self._prefix}{self._previous}\n{EMPTY_SHA256}\n{self._chunk_hash.hexdigest()}"
        )
        expected = canonical.sign(self._key, text)
        if not compare_digest(expected.encode(), self._chunk_signature.encode()):
            raise SignatureDoesNotMatch("A chunk's signature does not match.")
        self._previous = expected

    def _on_trailer(self, line: bytes) -> Iterator[Event]:
        self._trailer_bytes += len(line)
        if self._trailer_bytes > TRAILERS_MOST:
            raise MalformedTrailerError("The trailers are too long.")
        if line:
            self._trailers.append(self._parse_trailer(line))
            return
        self._verify_trailers()
        for name, value in self._trailers:
            yield Trailer(name, value)
        self._state = ChunkState.ENDED
        yield End()

    def _parse_trailer(self, line: bytes) -> tuple[str, str]:
        name, colon, value = line.partition(b":")
        try:
            parsed = name.decode("ascii").strip().lower(), value.decode("ascii").strip()
        except UnicodeDecodeError:
            raise MalformedTrailerError("A trailer is not ASCII.") from None
        if not colon or not parsed[0]:
            raise MalformedTrailerError("A trailer is not NAME:VALUE.")
        return parsed

    def _verify_trailers(self) -> None:
        if not self._signed:
            return
        if not self._trailers or self._trailers[-1][0] != "x-amz-trailer-signature":
            raise MalformedTrailerError("The trailers are not signed.")
        signature = self._trailers.pop()[1]
        lines = "".join(f"{name}:{value}\n" for name, value in self._trailers)
        hashed = hashlib.sha256(lines.encode()).hexdigest()
        expected = canonical.sign(self._key, f"AWS4-HMAC-SHA256-TRAILER\n{self._prefix}{self._previous}\n{hashed}")
        if not compare_digest(expected.encode(), signature.encode()):
            raise SignatureDoesNotMatch("The trailer's signature does not match.")
