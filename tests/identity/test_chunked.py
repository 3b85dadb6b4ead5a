"""aws-chunked bodies: AWS's examples are parsed however they are split, and everything else is refused."""

import hashlib
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity import canonical, signing
from gateway.identity import signature_errors as errors
from gateway.identity.chunked import ChunkedParser, Data, End, Event, Trailer
from gateway.identity.sigv4 import PayloadKind, VerifiedRequest, verify
from tests.identity import amazon
from tests.identity.amazon import CHUNKED_BODY, DATE, NOW, REGION, SCOPE, TRAILER_BODY

KEY = canonical.signing_key(amazon.SECRET_KEY, DATE[:8], REGION, "s3")
SEED = "5" * 64
KINDS = [PayloadKind.STREAMING, PayloadKind.STREAMING_TRAILER, PayloadKind.STREAMING_UNSIGNED_TRAILER]
EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def verified(kind: PayloadKind) -> VerifiedRequest:
    return VerifiedRequest(amazon.ACCESS_KEY, kind, "", KEY, SCOPE, DATE, SEED, False)


def encoded(kind: PayloadKind, chunks: Iterable[bytes], trailers: dict[str, str] | None = None) -> bytes:
    """A body as a client sends it."""
    if trailers is None:
        trailers = {} if kind is PayloadKind.STREAMING else {"x-amz-checksum-crc32": "AAAAAA=="}
    if kind is PayloadKind.STREAMING_UNSIGNED_TRAILER:
        body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
        return body + b"0\r\n" + "".join(f"{n}:{v}\r\n" for n, v in trailers.items()).encode() + b"\r\n"
    signer = signing.ChunkSigner(KEY, DATE, SCOPE, SEED)
    body = b"".join(signer.chunk(chunk) for chunk in chunks) + signer.chunk(b"")
    return body + (signing.END if kind is PayloadKind.STREAMING else signer.trailer(trailers))


def decoded(parser: ChunkedParser, pieces: Iterable[bytes]) -> tuple[bytes, list[tuple[str, str]]]:
    """What came out of a whole body; it ended, with its last byte and not before."""
    plain = bytearray()
    trailers: list[tuple[str, str]] = []
    last: Event | None = None
    for piece in pieces:
        assert not isinstance(last, End)
        for last in parser.feed(piece):
            if isinstance(last, Data):
                plain += last.data
            elif isinstance(last, Trailer):
                trailers.append((last.name, last.value))
    parser.finish()
    assert isinstance(last, End)
    assert parser.ended
    return bytes(plain), trailers


def cut(body: bytes, at: Iterable[int]) -> list[bytes]:
    edges = sorted({0, len(body), *(each % len(body) for each in at)})
    return [body[start:end] for start, end in pairwise(edges)]


def refused(kind: PayloadKind, body: bytes, length: int, error: type[errors.SignatureError]) -> None:
    """The whole at once and byte for byte come to the same end."""
    for pieces in ([body], [body[at : at + 1] for at in range(len(body))]):
        parser = ChunkedParser(verified(kind), length)
        with pytest.raises(error):
            decoded(parser, pieces)
        assert not parser.ended


@pytest.mark.parametrize("step", [1, 7, 1000, 65_536, 1 << 20])
def test_amazons_chunked_example_comes_out_whole(step: int) -> None:
    parser = ChunkedParser(verify(amazon.CHUNKED.request(), amazon.secret_of, NOW, REGION), 66_560)
    pieces = [CHUNKED_BODY[at : at + step] for at in range(0, len(CHUNKED_BODY), step)]
    assert decoded(parser, pieces) == (b"a" * 66_560, [])
    assert len(CHUNKED_BODY) == 66_824, "the length that the example declares"


@pytest.mark.parametrize("step", [1, 1000, 1 << 20])
def test_amazons_trailer_example_comes_out_whole(step: int) -> None:
    parser = ChunkedParser(verify(amazon.TRAILER.request(), amazon.secret_of, NOW, REGION), 66_560)
    pieces = [TRAILER_BODY[at : at + step] for at in range(0, len(TRAILER_BODY), step)]
    assert decoded(parser, pieces) == (b"a" * 66_560, [("x-amz-checksum-crc32c", "sOO8/Q==")])


def test_our_signer_makes_amazons_examples() -> None:
    sizes = [b"a" * size for size in amazon.CHUNK_BYTES]
    signer = signing.ChunkSigner(KEY, DATE, SCOPE, amazon.CHUNKED.signature)
    assert b"".join(map(signer.chunk, sizes)) + signing.END == CHUNKED_BODY
    signer = signing.ChunkSigner(KEY, DATE, SCOPE, amazon.TRAILER.signature)
    assert b"".join(map(signer.chunk, sizes)) + signer.trailer({"x-amz-checksum-crc32c": "sOO8/Q=="}) == TRAILER_BODY


@EACH_KIND
@given(
    chunks=st.lists(st.binary(min_size=1, max_size=3000), max_size=6),
    at=st.lists(st.integers(0, 1 << 20), max_size=12),
)
def test_any_chunks_cut_anywhere_come_out_whole(kind: PayloadKind, chunks: list[bytes], at: list[int]) -> None:
    whole = b"".join(chunks)
    plain, trailers = decoded(ChunkedParser(verified(kind), len(whole)), cut(encoded(kind, chunks), at))
    assert plain == whole
    assert trailers == ([] if kind is PayloadKind.STREAMING else [("x-amz-checksum-crc32", "AAAAAA==")])


@EACH_KIND
def test_bytes_are_handed_on_as_they_come_and_not_copied(kind: PayloadKind) -> None:
    """A chunk of any size takes no memory: its bytes are views of what was fed."""
    body = encoded(kind, [bytes(1 << 20)])
    parser = ChunkedParser(verified(kind), 1 << 20)
    for at in range(0, 1 << 19, 4096):
        piece = body[at : at + 4096]
        for event in parser.feed(piece):
            assert isinstance(event, Data)
            assert event.data.obj is piece


@EACH_KIND
@given(data=st.data())
def test_a_flipped_bit_never_ends_well_where_signatures_vouch(kind: PayloadKind, data: st.DataObject) -> None:
    """Unsigned chunks are vouched for by their checksum, outside; their framing is still exact."""
    chunks = [b"first chunk", b"second"]
    body = bytearray(encoded(kind, chunks))
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    body[bit // 8] ^= 1 << bit % 8
    parser = ChunkedParser(verified(kind), 17)
    try:
        plain, trailers = decoded(parser, [bytes(body)])
    except errors.SignatureError:
        return
    assert len(plain) == 17
    if kind is not PayloadKind.STREAMING_UNSIGNED_TRAILER:
        assert plain == b"".join(chunks)  # a hexadecimal digit or a trailer's name in the other case is the same
        assert trailers == ([] if kind is PayloadKind.STREAMING else [("x-amz-checksum-crc32", "AAAAAA==")])


@EACH_KIND
def test_a_body_cut_short_anywhere_is_incomplete(kind: PayloadKind) -> None:
    body = encoded(kind, [b"some bytes", b"and more"])
    for end in range(len(body)):
        parser = ChunkedParser(verified(kind), 18)
        for event in parser.feed(body[:end]):
            assert not isinstance(event, End)
        with pytest.raises(errors.IncompleteBodyError):
            parser.finish()


@EACH_KIND
@pytest.mark.parametrize("length", [0, 9, 11])
def test_the_declared_length_is_kept_exactly(kind: PayloadKind, length: int) -> None:
    refused(kind, encoded(kind, [b"ten", b" bytes."]), length, errors.IncompleteBodyError)


@EACH_KIND
def test_bytes_behind_the_end_are_refused(kind: PayloadKind) -> None:
    parser = ChunkedParser(verified(kind), 3)
    with pytest.raises(errors.IncompleteBodyError):
        list(parser.feed(encoded(kind, [b"abc"]) + b"0\r\n\r\n"))


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind.name)
def test_signed_chunks_in_another_order_or_out_of_another_request_are_refused(kind: PayloadKind) -> None:
    signer = signing.ChunkSigner(KEY, DATE, SCOPE, SEED)
    first, second, last = signer.chunk(b"1"), signer.chunk(b"2"), signer.chunk(b"")
    for body in (second + first + last, first + first + last, second + last, last):
        refused(kind, body + signing.END, 1 if body is last else 2, errors.SignatureError)
    other = signing.ChunkSigner(KEY, DATE, SCOPE, "6" * 64)
    refused(kind, other.chunk(b"1") + other.chunk(b"") + signing.END, 1, errors.SignatureDoesNotMatch)


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    "line", [b"3\r\n", b"3;chunk-signature=\r\n", b"3;chunk-signature=" + b"0" * 63 + b"\r\n", b"3;a=b\r\n"]
)
def test_a_chunk_without_its_signature_is_refused(kind: PayloadKind, line: bytes) -> None:
    refused(kind, line + b"abc\r\n", 3, errors.SignatureError)


@EACH_KIND
@pytest.mark.parametrize(
    "line",
    [
        b"\r\n", b"g\r\n", b"-1\r\n", b"+3\r\n", b"0x3\r\n", b" 3\r\n", b"3_0\r\n", b"00000000000000003\r\n",
        b"\xd9\xa3\r\n", b"3 \r\n",
    ],
)  # fmt: skip
def test_a_size_that_is_no_plain_hexadecimal_number_is_refused(kind: PayloadKind, line: bytes) -> None:
    refused(kind, line + b"abc\r\n0\r\n\r\n", 3, errors.IncompleteBodyError)


def test_lines_end_as_they_should() -> None:
    good = encoded(PayloadKind.STREAMING_UNSIGNED_TRAILER, [b"abc"])
    bare = good.replace(b"3\r\n", b"3\n")
    refused(PayloadKind.STREAMING_UNSIGNED_TRAILER, bare, 3, errors.IncompleteBodyError)
    longer = good.replace(b"abc", b"abcd")
    refused(PayloadKind.STREAMING_UNSIGNED_TRAILER, longer, 3, errors.IncompleteBodyError)


@EACH_KIND
def test_a_line_without_end_is_refused_before_it_fills_memory(kind: PayloadKind) -> None:
    parser = ChunkedParser(verified(kind), 3)
    with pytest.raises(errors.IncompleteBodyError):
        for _ in range(3):
            list(parser.feed(b"0" * 512))


@pytest.mark.parametrize(
    "trailers",
    [
        b"no colon\r\n\r\n",
        b":no name\r\n\r\n",
        "nåme:x\r\n\r\n".encode(),
        b"name:x\r\n\n",
        b"a:" + b"x" * 2000 + b"\r\n\r\n",
        b"".join(b"x-%d:%b\r\n" % (number, b"x" * 900) for number in range(10)) + b"\r\n",
    ],
    ids=["no colon", "no name", "not ASCII", "bare LF", "long line", "long together"],
)
def test_malformed_trailers_are_refused(trailers: bytes) -> None:
    body = b"3\r\nabc\r\n0\r\n" + trailers
    refused(PayloadKind.STREAMING_UNSIGNED_TRAILER, body, 3, errors.MalformedTrailerError)


@pytest.mark.parametrize("kind", [PayloadKind.STREAMING_TRAILER, PayloadKind.STREAMING_UNSIGNED_TRAILER])
@pytest.mark.parametrize("names", [["x-amz-checksum-sha1"], ["x-amz-checksum-sha1", "x-amz-meta"]])
def test_trailers_may_end_in_a_line_feed_and_one_blank_line(kind: PayloadKind, names: list[str]) -> None:
    good = encoded(kind, [b"abc"], dict.fromkeys(names, "ONE"))
    start = good.index(b"x-amz-checksum")
    end = good.index(b"x-amz-trailer-signature") if kind is PayloadKind.STREAMING_TRAILER else len(good) - 2
    odd = good[:start] + good[start:end].replace(b"\r\n", b"\n") + b"\r\n" + good[end:]
    for step in (1, 7, len(odd)):
        pieces = [odd[at : at + step] for at in range(0, len(odd), step)]
        assert decoded(ChunkedParser(verified(kind), 3), pieces)[1] == [(name, "ONE") for name in names]


def test_signed_trailers_hold_only_as_they_were_signed() -> None:
    kind = PayloadKind.STREAMING_TRAILER
    good = encoded(kind, [b"abc"], {"x-amz-checksum-sha1": "ONE", "x-amz-meta": "two"})
    assert decoded(ChunkedParser(verified(kind), 3), [good])[1] == [
        ("x-amz-checksum-sha1", "ONE"),
        ("x-amz-meta", "two"),
    ]
    for body in (good.replace(b"ONE", b"TWO"), good.replace(b"x-amz-meta:two\r\n", b"")):
        refused(kind, body, 3, errors.SignatureDoesNotMatch)
    start = good.index(b"x-amz-checksum")
    for trailers in (b"\r\n", b"x-amz-checksum-sha1:ONE\r\n\r\n"):
        refused(kind, good[:start] + trailers, 3, errors.MalformedTrailerError)
    with pytest.raises(errors.SignatureDoesNotMatch):
        decoded(
            ChunkedParser(verified(kind), 3),
            [good[:start] + b"x-amz-trailer-signature:?\r\n\r\n"],
        )


@EACH_KIND
@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from(
                [b"\r\n", b"\n", b"0", b"5", b"ffffffffffffffff", b";chunk-signature=", b"0" * 64, b"0\r\n", b"a:b\r\n"]
            ),
        ),
        max_size=20,
    ),
    length=st.integers(0, 30),
)
def test_whatever_comes_ends_well_or_with_an_error_of_the_tree(
    kind: PayloadKind, pieces: list[bytes], length: int
) -> None:
    parser = ChunkedParser(verified(kind), length)
    plain = b""
    try:
        for piece in pieces:
            plain += b"".join(event.data for event in parser.feed(piece) if isinstance(event, Data))
        parser.finish()
    except errors.SignatureError:
        return
    assert len(plain) == length


def test_the_hash_of_nothing_is_what_it_is() -> None:
    assert hashlib.sha256(b"").hexdigest() == canonical.EMPTY_SHA256
