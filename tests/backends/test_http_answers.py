"""Reading HTTP answers from bytes: however they are cut into pieces, and whatever a hostile server sends."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.http.answers import HEAD_BYTES_MAX, REFUSAL_BYTES_MAX, Answer, AnswerReader
from backends.http.errors import BodyTooLong, ConnectionCut, HttpError, MalformedAnswer

LIMIT = 1 << 20


def read(
    raw: bytes, *, method: str = "GET", cuts: list[int] | None = None, ends: bool = False, bytes_max: int = LIMIT
) -> tuple[Answer, bool]:
    """The answer in *raw*, which comes in pieces of the lengths *cuts*, and whether the connection may be kept."""
    reader = AnswerReader(method, bytes_max, bytearray(HEAD_BYTES_MAX))
    whole, at, pieces = False, 0, list(cuts or [])
    while at < len(raw) and not whole:
        into = reader.buffer()
        assert len(into) > 0
        piece = raw[at : at + min(len(into), pieces.pop(0) if pieces else len(into))]
        into[: len(piece)] = piece
        at += len(piece)
        whole = reader.received(len(piece))
    if not whole and ends:
        whole = reader.ended()
    assert whole, "the answer has not ended"
    return reader.answer, reader.persistent and at == len(raw)


GOOD = {
    "a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\n\r\nhello", b"hello", True),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2 \r\nlo\r\n0\r\nTrailer: t\r\n\r\n",
        b"hello",
        True,
    ),
    "the end": (b"HTTP/1.1 200 OK\r\n\r\nhello", b"hello", False),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", False),
    "closing": (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", b"hello", False),
    "informational answers before": (
        b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", b"hello", True,
    ),
    "two lengths that agree": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length:5\r\n\r\nhello", b"hello", True,
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", b"", True),
    "nothing": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", True),
    "a refusal": (b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello", b"hello", True),
    "too much behind it": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP", b"hello", False),
}  # fmt: skip


@given(st.sampled_from(sorted(GOOD)), st.lists(st.integers(1, 40)))
def test_an_answer_is_the_same_however_it_is_cut(shape: str, cuts: list[int]) -> None:
    raw, body, _ = GOOD[shape]
    assert read(raw, cuts=cuts, ends=True)[0].body == body


@pytest.mark.parametrize(("raw", "body", "kept"), GOOD.values(), ids=GOOD)
def test_a_connection_is_kept_only_where_the_answer_ends_by_itself(raw: bytes, body: bytes, kept: bool) -> None:
    answer, persistent = read(raw, ends=True)
    assert (bytes(answer.body), persistent) == (body, kept)


def test_an_answer_to_head_has_no_body_and_tells_a_length_of_any_size() -> None:
    answer, kept = read(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", method="HEAD")
    assert (answer.length, answer.body, kept) == (99_999_999_999, b"", True)


def test_header_names_are_in_lower_case_and_repeated_headers_are_joined() -> None:
    answer, _ = read(b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a:  2 \r\nContent-Length: 0\r\n\r\n")
    assert answer.headers == {"x-a": "1, 2", "content-length": "0"}


MALFORMED = {
    "no HTTP": b"220 mail.example.org ESMTP\r\n\r\n",
    "HTTP/2": b"HTTP/2 200\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nnothing\r\n\r\n",
    "a folded header": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
    "a blank before the colon": b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
    "a bare line feed": b"HTTP/1.1 200 OK\r\nX: a\nContent-Length: 5\r\n\r\nhello",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhello",
    "a length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
    "informational answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
    "a head without end": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X:\r\n" * 10_000 + b"\r\n",
    "a chunk without a size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
    "a chunk longer than it says": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
    "a chunk's line without end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 10_000,
    "trailers without end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 10_000,
    "tiny chunks without end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000,
    **{
        f"a length of {length!r}": f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode()
        for length in ("-1", "", "0x10", "1e3", "18446744073709551616", "\u0663", "5, 5")
    },
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
def test_what_two_readers_could_take_differently_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        read(raw, ends=True)


def shapes_of(body: bytes) -> list[tuple[str, bytes]]:
    """The ways in which the length of a body is told: the header, and the body as it is sent."""
    return [
        (f"Content-Length: {len(body)}", body),
        ("Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)),
        ("Connection: close", body),
    ]


@pytest.mark.parametrize("status", ["200 OK", "206 Partial Content"])
def test_a_success_longer_than_its_limit_is_refused_whatever_tells_its_length(status: str) -> None:
    for size in (1_000, 1_001):
        for head, raw in shapes_of(b"x" * size):
            whole = f"HTTP/1.1 {status}\r\n{head}\r\n\r\n".encode() + raw
            if size == 1_000:
                assert len(read(whole, ends=True, bytes_max=1_000)[0].body) == size
            else:
                with pytest.raises(BodyTooLong):
                    read(whole, ends=True, bytes_max=1_000)


@pytest.mark.parametrize("status", ["301 Moved", "403 Forbidden", "500 Broken"])
def test_a_long_refusal_is_cut_off_and_keeps_its_status(status: str) -> None:
    for head, raw in shapes_of(b"x" * (1 << 20)):
        answer, kept = read(f"HTTP/1.1 {status}\r\n{head}\r\n\r\n".encode() + raw, bytes_max=1_000)
        assert (answer.status, kept) == (int(status[:3]), False)
        assert len(answer.body) <= REFUSAL_BYTES_MAX


@pytest.mark.parametrize("shape", ["a length", "chunks", "a refusal"])
def test_an_answer_that_is_cut_off_is_never_whole(shape: str) -> None:
    raw = GOOD[shape][0]
    for kept in range(len(raw)):
        with pytest.raises(ConnectionCut) as caught:
            read(raw[:kept], ends=True)
        assert caught.value.begun == (kept > 0)


@given(st.binary(max_size=300), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", *(raw for raw, *_ in GOOD.values())]))
def test_any_bytes_are_an_answer_or_an_error_of_ours(tail: bytes, start: bytes) -> None:
    with contextlib.suppress(HttpError):
        read(start + tail, ends=True)
