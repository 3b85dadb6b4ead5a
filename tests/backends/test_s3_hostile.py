"""A server that is broken or hostile: whatever it answers, a call ends with one of our errors, in time and in memory.

How much a client took in is measured by what the server could send: behind that are some megabytes of socket buffers.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from backends import errors
from backends.base import Backend, Marker
from backends.marker_format import encode_marker
from backends.s3 import listing
from backends.s3.backend import S3
from backends.s3.listing import EMPTY_PAGES_MAX, LINES, Page, list_values, parse_page
from backends.s3.object_requests import VALUE_BYTES_MAX
from backends.wrappers import TimeLimited
from tests.backends import contract
from tests.backends.conftest import OpenS3
from tests.backends.contract import SITE, key, put
from tests.servers.between import Between, Forward, Heard, Reply, answer, between, endless, honest
from tests.servers.running import S3Server

VALUE = b"x" * 100_000
HUGE = str(100_000_000_000)
SENT_MAX = VALUE_BYTES_MAX + (24 << 20)
META = {"ETag": '"0123456789abcdef0123456789abcdef"', "Last_Modified": "Sat, 21 Nov 2026 12:00:00 GMT"}
Call = Callable[[Backend], Awaitable[object]]
CALLS: dict[str, Call] = {
    "put": lambda backend: put(backend, key(2), VALUE),
    "get": lambda backend: backend.get(key(1)),
    "get a range": lambda backend: backend.get(key(1), 5, 90_000),
    "get the rest": lambda backend: backend.get(key(1), 5),
    "stat": lambda backend: backend.stat(key(1)),
    "delete": lambda backend: backend.delete(key(1)),
    "list": lambda backend: contract.listed(backend.list()),
    "marker": lambda backend: backend.marker(),
    "claim": lambda backend: backend.claim(Marker(SITE, 3, 1)),
}


@pytest.fixture
async def way(moto_server: S3Server) -> AsyncIterator[Between]:
    async with between(moto_server) as standing:
        yield standing


@pytest.fixture
async def backend(way: Between, open_s3: OpenS3) -> S3:
    opened = await open_s3(way.server, prefix="p", session_token="the-session-token", timeout_s=20)
    await put(opened, key(1), VALUE)
    await opened.claim(Marker(SITE, 3, 1))
    way.sent_bytes = 0
    return opened


def head(status: str, **headers: str) -> bytes:
    """Of an answer whose length its headers tell, or nothing does."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode()


def saying(reply: bytes) -> Callable[[Heard, Forward], Awaitable[Reply]]:
    """The rule that answers everything so."""

    async def rule(request: Heard, forward: Forward) -> Reply:
        return reply

    return rule


CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
RANGE = {"Content_Range": "bytes 5-90004/100000"} | META
ENDLESS = {
    "announced": (head("200 OK", Content_Length=HUGE, **META), b"x" * 65_536),
    "in chunks": (head("200 OK", Transfer_Encoding="chunked", **META), CHUNK),
    "until the end": (head("200 OK", Connection="close", **META), b"x" * 65_536),
    "answers 1xx": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2_000),
    "a range, announced": (head("206 Partial Content", Content_Length=HUGE, **RANGE), b"x" * 65_536),
    "a range, in chunks": (head("206 Partial Content", Transfer_Encoding="chunked", **RANGE), CHUNK),
    "a range, until the end": (head("206 Partial Content", Connection="close", **RANGE), b"x" * 65_536),
}


@contextmanager
def about(*what: object) -> Iterator[None]:
    """Tell what was tried when it goes wrong."""
    try:
        yield
    except BaseException as error:
        error.add_note(" / ".join(map(str, what)))
        raise


async def test_an_answer_that_never_ends_is_not_read_on(way: Between, backend: S3) -> None:
    for shape, (first, piece) in ENDLESS.items():

        async def rule(request: Heard, forward: Forward, first: bytes = first, piece: bytes = piece) -> Reply:
            return endless(first, piece) if request.method == "GET" else await forward(request)

        way.rule = rule
        for method in ("get", "get a range", "list", "marker", "claim"):
            way.sent_bytes = 0
            with about(method, shape), pytest.raises(errors.BackendError):
                await CALLS[method](backend)
            assert way.sent_bytes < SENT_MAX, (method, shape)
    way.rule = honest
    assert bytes(await backend.get(key(1))) == VALUE, "it goes on"


BY_BOTOCORE: dict[str, type[errors.BackendError]] = {
    "delete": errors.BackendError,
    "list": errors.Corrupted,
    "marker": errors.Corrupted,
    "claim": errors.Corrupted,
}
"""Calls that read a whole refusal before they judge it; to them a long one is an error of its own."""
REFUSALS: dict[str, type[errors.BackendError]] = {
    "301 Moved Permanently": errors.Misconfigured,
    "403 Forbidden": errors.Denied,
    "404 Not Found": errors.Misconfigured,
    "500 Internal Server Error": errors.Unavailable,
}
REFUSED = {"announced": b"x" * 65_536, "in chunks": CHUNK, "until the end": b"x" * 65_536}
HEADERS = {
    "announced": {"Content_Length": HUGE},
    "in chunks": {"Transfer_Encoding": "chunked"},
    "until the end": {"Connection": "close"},
}


async def test_a_refusal_that_never_ends_is_not_read_on(way: Between, backend: S3) -> None:
    for status, (shape, piece) in itertools.product(REFUSALS, REFUSED.items()):
        first = head(status, **HEADERS[shape])

        async def rule(request: Heard, forward: Forward, first: bytes = first, piece: bytes = piece) -> Reply:
            return endless(first, piece)

        way.rule = rule
        for method, call in CALLS.items():
            way.sent_bytes = 0
            kind = BY_BOTOCORE.get(method, REFUSALS[status])
            with about(method, status, shape), pytest.raises(kind):
                await call(backend)
            assert way.sent_bytes < 24 << 20, (method, status, shape)
    way.rule = honest
    assert bytes(await backend.get(key(1))) == VALUE, "it goes on"


async def test_a_value_that_is_announced_as_larger_than_any_is_not_asked_for(way: Between, backend: S3) -> None:
    """Nor is room made for it."""
    way.rule = saying(head("200 OK", Content_Length=HUGE, **META))
    with pytest.raises(errors.Corrupted, match=f"{HUGE} bytes are too many for a value"):
        await backend.get(key(1))
    with pytest.raises(errors.Corrupted, match="are too many for a value"):
        await backend.get(key(1), 5)


LENGTHS = ["-1", "", "0x10", "1e3", "18446744073709551616", "٣"]


async def test_a_length_that_is_none_is_an_error_of_ours(way: Between, backend: S3) -> None:
    for length in LENGTHS:
        way.rule = saying(head("200 OK", Content_Length=length, Connection="close", **META) + b"12345")
        for method, call in CALLS.items():
            with about(method, length), pytest.raises(errors.BackendError):
                await call(backend)


ANSWERS = {
    "nothing": b"",
    "no HTTP": b"220 mail.example.org ESMTP\r\n\r\n",
    "no status": b"HTTP/1.1 abc\r\n\r\n",
    "a status out of range": b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46",
    "a header of a megabyte": head("200 OK", X_Long="x" * (1 << 20), Content_Length="0"),
    "a hundred thousand headers": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000 + b"\r\n",
    "a header that is no text": b"HTTP/1.1 200 OK\r\nETag: \xff\xfe\r\nLast-Modified: \x01\r\n\r\n",
    "a date that is none": head("200 OK", Content_Length="0", **(META | {"Last_Modified": "yesterday"})),
    "HTML": answer("200 OK", b"<html><body>Please log in</body>"),
    "XML that ends early": answer("200 OK", b"<ListBucketResult><Contents><Key>a"),
    "deep XML": answer("200 OK", b"<a>" * 20_000),
    "an XML bomb": answer("200 OK", b'<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><l>&b;</l>'),
    "JSON": answer("200 OK", b'{"a":' * 10_000),
    "two lengths": head("200 OK", Content_Length="5\r\nContent-Length: 7", **META) + b"12345",
    "a cut body": head("200 OK", Content_Length="1000", **META) + b"abc",
    "a chunk that is none": head("200 OK", Transfer_Encoding="chunked", **META) + b"zz\r\nabc\r\n",
    "a chunk of 16 EiB": head("200 OK", Transfer_Encoding="chunked", **META) + b"ffffffffffffffff\r\nabc",
    "a switch of protocols": head("101 Switching Protocols", Upgrade="h2c", Connection="upgrade"),
    "not modified": head("304 Not Modified"),
    "a teapot": answer("418 I'm a teapot", b"short and stout"),
    "gzip": answer("200 OK", gzip.compress(encode_marker(Marker(SITE, 3, 1))), Content_Encoding="gzip", **META),
    "a bomb of gzip": answer("200 OK", gzip.compress(bytes(64 << 20)), Content_Encoding="gzip", **META),
}


async def test_an_answer_that_makes_no_sense_is_an_error_of_ours_or_none(way: Between, backend: S3) -> None:
    """None where all that was asked for could be read from it. Nothing else is raised, and the backend goes on."""
    for said, reply in ANSWERS.items():
        way.rule = saying(reply)
        for method, call in CALLS.items():
            with about(method, said):
                try:
                    await call(backend)
                except errors.BackendError as error:
                    assert len(str(error)) < 1_000
    way.rule = honest
    await backend.claim(Marker(SITE, 3, 1))
    assert await backend.marker() == Marker(SITE, 3, 1)


async def test_no_redirect_to_another_host_is_followed(way: Between, backend: S3) -> None:
    """Whoever gets such a request has the session token."""
    async with between(way.server) as other:
        port = other.server.url.rpartition(":")[2]
        for status in (301, 302, 303, 307, 308):
            way.rule = saying(answer(f"{status} Elsewhere", Location=f"http://localhost:{port}/p/x"))
            for method, call in CALLS.items():
                with about(method, status), pytest.raises(errors.Misconfigured):
                    await call(backend)
        assert other.heard == []


async def test_no_redirect_to_another_port_or_path_of_the_same_host_is_followed(way: Between, backend: S3) -> None:
    async with between(way.server) as other:
        port = other.server.url.rpartition(":")[2]
        for target in (f"http://127.0.0.1:{port}/p/x", "/elsewhere", f"//127.0.0.1:{port}/"):
            way.rule = saying(answer("307 Elsewhere", Location=target))
            way.heard.clear()
            for method, call in CALLS.items():
                with about(method, target), pytest.raises(errors.Misconfigured):
                    await call(backend)
            assert not [each for each in way.heard if "elsewhere" in each.target]
        assert other.heard == []


async def test_no_redirect_is_followed_behind_a_proxy_of_the_environment(
    way: Between, open_s3: OpenS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy would pass on whatever it is asked for, with the session token."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", way.server.url)

    async def passing(request: Heard, forward: Forward) -> Reply:
        """moto takes the first label of a host's name for a bucket."""
        return await forward(request._replace(headers=request.headers | {"host": "127.0.0.1"}))

    way.rule = passing
    backend = await open_s3(way.server.at("http://s3.example.test"), session_token="the-session-token")
    await put(backend, key(1), VALUE)
    way.rule = saying(answer("307 Elsewhere", Location="http://elsewhere.test/p/x"))
    way.heard.clear()
    for method, call in CALLS.items():
        with about(method), pytest.raises(errors.Misconfigured):
            await call(backend)
    assert {each.headers["host"] for each in way.heard} == {"s3.example.test"}


async def test_no_redirect_to_another_host_is_followed_over_tls(
    moto_server: S3Server, open_s3: OpenS3, own_ca: tuple[ssl.SSLContext, str]
) -> None:
    context, ca_file = own_ca
    async with between(moto_server, context) as way, between(moto_server, context) as other:
        backend = await open_s3(way.server, ca_file=ca_file)
        await put(backend, key(1), VALUE)
        port = other.server.url.rpartition(":")[2]
        way.rule = saying(answer("307 Elsewhere", Location=f"https://localhost:{port}/p/x"))
        for method, call in CALLS.items():
            with about(method), pytest.raises(errors.Misconfigured):
                await call(backend)
        assert other.heard == []


async def drip(first: bytes, piece: bytes) -> AsyncIterator[bytes]:
    yield first
    while True:
        await asyncio.sleep(0.01)
        yield piece


DRIPS = {
    "1xx": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X-More: x\r\n"),
    "a body": (head("200 OK", Content_Length="90000", **META), b"x"),
    "a refusal": (head("403 Forbidden", Content_Length="90000"), b"x"),
}


async def test_an_answer_that_drips_ends_with_the_deadline(way: Between, backend: S3) -> None:
    """Or before, where its head says all."""

    async def rule(request: Heard, forward: Forward) -> Reply:
        return drip(*DRIPS[shape])

    way.rule = rule
    for shape in DRIPS:
        for method, call in CALLS.items():
            with about(method, shape), suppress(errors.BackendError):
                async with asyncio.timeout(20):
                    await call(TimeLimited(backend, 0.1))


# ---- listings -------------------------------------------------------------------------------------------------------


def page(*lines: str, token: str = "", more: str = "") -> bytes:
    """One of ListObjectsV2, with *lines* as keys."""
    said = "".join(f"<Contents><Key>{line}</Key><Size>1</Size></Contents>" for line in lines)
    goes_on = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{goes_on}{more}{said}</ListBucketResult>'.encode()


async def walked(pages: Callable[[int], bytes]) -> list[str]:
    """What is listed where the nth page is *pages(n)*."""
    asked = 0

    async def fetch(after: str, token: str) -> bytes:
        nonlocal asked
        asked += 1
        return pages(asked)

    return [line.key async for line in list_values(fetch, "p/", "", "", "s3")]


BAD_LISTINGS: dict[str, Callable[[int], bytes]] = {
    "it repeats a page": lambda _: page("p/a", "p/b", token="t"),
    "it repeats a key": lambda _: page("p/a", "p/a"),
    "it goes backwards": lambda _: page("p/b", "p/a"),
    "its pages go backwards": lambda number: page(f"p/{9 - number}", token="t"),
    "it names what is not below the prefix": lambda _: page("other/a"),
    "it repeats what is no key of ours": lambda _: page("p/Upper", token="t"),
    "it goes on and on with nothing": lambda _: page(token="t"),
    "it does not say where it goes on": lambda _: page("p/a", more="<IsTruncated>true</IsTruncated>"),
    "a size below zero": lambda _: page("p/a").replace(b"<Size>1", b"<Size>-1"),
    "a size of a million digits": lambda _: page("p/a").replace(b"<Size>1", b"<Size>" + b"9" * 1_000_000),
    "no size": lambda _: page("p/a").replace(b"<Size>1</Size>", b""),
    "no key": lambda _: page("p/a").replace(b"<Key>p/a</Key>", b""),
    "more lines than a page has": lambda _: page(*(f"p/{number:05}" for number in range(LINES + 1))),
    "a document type": lambda _: b'<!DOCTYPE l [<!ENTITY a "a">]>' + page("p/&a;"),
    "deep nesting": lambda _: b"<ListBucketResult>" + b"<a>" * 1_000_000,
    "another document": lambda _: b"<ListAllMyBucketsResult/>",
    "nothing": lambda _: b"",
    "no text": lambda _: b"<ListBucketResult>\xff\xfe",
    "two documents": lambda _: page("p/a") + page("p/b"),
}


@pytest.mark.parametrize("pages", BAD_LISTINGS.values(), ids=BAD_LISTINGS)
async def test_a_listing_that_cannot_be_is_damaged_and_ends(pages: Callable[[int], bytes]) -> None:
    with pytest.raises(errors.Corrupted, match="its listing is wrong") as caught:
        await walked(pages)
    assert len(str(caught.value)) < 500


async def test_a_listing_may_have_pages_without_a_line_and_names_of_others_in_any_order() -> None:
    pages = [page(token="t")] * EMPTY_PAGES_MAX + [page("p/b", "p/Z", "p/A", "p/c", token="t"), page("p/d")]
    assert await walked(lambda number: pages[number - 1]) == ["b", "c", "d"]


def strangers(number: int) -> bytes:
    """A page of ascending names that are no keys."""
    return page(*(f"p/Photo-{number:06}-{line:04}" for line in range(LINES)), token="t")


def few_keys(number: int) -> bytes:
    """A key, and then as many pages without one as there may be in a row."""
    return page(f"p/{number:06}" if number % EMPTY_PAGES_MAX == 1 else f"p/{number:06}-X", token="t")


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        (strangers, "more than 5,000 names that are no keys of Entrepot's, up to 'p/Photo-000006-0999'"),
        (few_keys, "more than 200 pages without a key of Entrepot's, up to 'p/000204-X'"),
    ],
)
async def test_a_listing_of_what_is_not_ours_comes_to_an_end(
    pages: Callable[[int], bytes], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SKIPPED_NAMES_MAX", 5_000)
    monkeypatch.setattr(listing, "KEYLESS_PAGES_MAX", 200)
    with pytest.raises(errors.Corrupted, match=f"backend 's3': its listing is wrong: below 'p/' it has {why}"):
        await walked(lambda number: pages(number) if number < 1_000 else page())


async def test_many_names_that_are_not_ours_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SKIPPED_NAMES_MAX", 5_000)
    assert await walked(lambda number: strangers(number) if number <= 5 else page("p/a")) == ["a"]


def test_a_page_is_read_as_it_is_spelt() -> None:
    assert parse_page(page("p/a%2Fb+c", more="<EncodingType>url</EncodingType>")) == Page([("p/a/b c", 1)], "")  # type: ignore[list-item]
    assert parse_page(page("p/a%2Fb&amp;c", token="t&gt;")) == Page([("p/a%2Fb&c", 1)], "t>")  # type: ignore[list-item]
    attributes = b" ".join(b'a%d=""' % number for number in range(100_000))
    assert parse_page(page("p/a").replace(b"<Contents", b"<Contents " + attributes)).lines == [("p/a", 1)]
