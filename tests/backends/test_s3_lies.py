"""Between the S3 driver and its server: answers that are lost, cut, late, refused, or untrue."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator

import pytest

from backends import errors
from backends.base import Marker
from backends.retry import Retrying
from backends.s3.backend import S3
from backends.s3.listing import parse_page
from backends.timing import DriverTiming
from tests.backends.conftest import OpenS3
from tests.backends.contract import SITE, key, listed, put
from tests.servers.between import Between, Forward, Heard, answer, between, refusal
from tests.servers.running import S3Server

VALUE = os.urandom(100_000)


@pytest.fixture
async def way(radosgw_server: S3Server) -> AsyncIterator[Between]:
    """Between a backend and radosgw, which confirms by ETag."""
    async with between(radosgw_server) as standing:
        yield standing


@pytest.fixture
async def backend(way: Between, open_s3: OpenS3) -> S3:
    return await open_s3(way.server, prefix="p")


def md5(value: bytes) -> str:
    return f'"{hashlib.md5(value).hexdigest()}"'


async def test_a_put_that_is_answered_and_not_stored_is_damaged(way: Between, backend: S3) -> None:
    async def liar(request: Heard, forward: Forward) -> bytes | None:
        return answer("200 OK", ETag='"0123456789abcdef0123456789abcdef"') if request.method == "PUT" else (
            await forward(request)
        )  # fmt: skip

    await put(backend, key(1), b"so that it is known how the server confirms puts")
    way.rule = liar
    with pytest.raises(errors.Corrupted, match="not the MD5"):
        await put(backend, key(2), VALUE)
    with pytest.raises(errors.NotFound):
        await backend.get(key(2))


async def test_a_put_whose_answer_does_not_say_what_was_stored_is_damaged(way: Between, backend: S3) -> None:
    await put(backend, key(1), b"x")

    async def mute(request: Heard, forward: Forward) -> bytes | None:
        return answer("200 OK")

    way.rule = mute
    with pytest.raises(errors.Corrupted, match="no ETag"):
        await put(backend, key(2), VALUE)


@pytest.mark.parametrize("stored", [b"", b"something else", VALUE[:-1]])
async def test_reading_back_notices_also_the_lie_with_the_right_etag(
    way: Between, open_s3: OpenS3, stored: bytes
) -> None:
    backend = await open_s3(way.server, confirm="read")

    async def forger(request: Heard, forward: Forward) -> bytes | None:
        if request.method == "GET" and key(2) in request.target:
            return answer("200 OK", stored, ETag=md5(VALUE), Last_Modified="Sat, 21 Nov 2026 12:00:00 GMT")
        return answer("200 OK", ETag=md5(request.body)) if request.method == "PUT" else await forward(request)

    way.rule = forger
    with pytest.raises(errors.Corrupted, match="read back"):
        await put(backend, key(2), VALUE)


async def test_reading_back_notices_that_nothing_was_stored(way: Between, open_s3: OpenS3) -> None:
    backend = await open_s3(way.server, confirm="read")

    async def liar(request: Heard, forward: Forward) -> bytes | None:
        return answer("200 OK", ETag=md5(request.body)) if request.method == "PUT" else await forward(request)

    way.rule = liar
    for value in (b"", VALUE):
        with pytest.raises(errors.Corrupted, match="read back"):
            await put(backend, key(2), value)


async def test_bytes_that_change_on_the_way_are_refused_by_the_server(way: Between, backend: S3) -> None:
    """radosgw compares with the SHA-256 that was signed."""
    await put(backend, key(1), b"x")

    async def rot(request: Heard, forward: Forward) -> bytes | None:
        return await forward(request._replace(body=request.body[:-1] + b"!"))

    way.rule = rot
    with pytest.raises(errors.BackendError):
        await put(backend, key(2), VALUE[:-1] + b"?")
    way.rule = lambda request, forward: forward(request)
    with pytest.raises(errors.NotFound):
        await backend.get(key(2))


async def test_an_entrepot_refuses_bytes_that_change_on_the_way(entrepot_server: S3Server, open_s3: OpenS3) -> None:
    async with between(entrepot_server) as way:
        backend = await open_s3(way.server)
        await put(backend, key(1), b"x")
        assert backend._confirmation == "checksum"

        async def rot(request: Heard, forward: Forward) -> bytes | None:
            return await forward(request._replace(body=request.body[:-1] + b"!"))

        way.rule = rot
        with pytest.raises(errors.Corrupted, match="arrived"):
            await put(backend, key(2), VALUE[:-1] + b"?")
        assert "x-amz-checksum-crc64nvme" in way.heard[-1].headers


async def test_a_put_that_is_answered_and_not_stored_is_damaged_also_where_checksums_are_compared(
    entrepot_server: S3Server, open_s3: OpenS3
) -> None:
    async with between(entrepot_server) as way:
        backend = await open_s3(way.server)
        await put(backend, key(1), b"x")
        assert backend._confirmation == "checksum"

        async def liar(request: Heard, forward: Forward) -> bytes | None:
            if request.method != "PUT":
                return await forward(request)
            return answer("200 OK", ETag='"0123456789abcdef0123456789abcdef"')

        way.rule = liar
        for value in (VALUE, b"small"):
            with pytest.raises(errors.Corrupted, match="read back differs"):
                await put(backend, key(2), value)


async def test_where_checksums_are_compared_etags_may_come_to_be_others(
    entrepot_server: S3Server, open_s3: OpenS3
) -> None:
    """As with SSE-KMS, from when it is switched on."""
    async with between(entrepot_server) as way:
        backend = await open_s3(way.server)
        await put(backend, key(1), VALUE)

        async def encrypting(request: Heard, forward: Forward) -> bytes | None:
            reply = await forward(request)
            return reply.replace(md5(request.body).encode(), b'"0123456789abcdef0123456789abcdef"')

        way.rule = encrypting
        await put(backend, key(2), VALUE[:-1])
        assert [each.method for each in way.heard[-2:]] == ["PUT", "GET"], "read back, once"
        await put(backend, key(3), VALUE[:-2])
        assert [each.method for each in way.heard[-2:]] == ["GET", "PUT"]
        way.rule = lambda request, forward: forward(request)
        assert bytes(await backend.get(key(2))) == VALUE[:-1]


async def test_an_answer_that_is_lost_is_unavailable_and_the_retry_finds_its_bytes(way: Between, backend: S3) -> None:
    await put(backend, key(1), b"x")
    lost = []

    async def forgetful(request: Heard, forward: Forward) -> bytes | None:
        reply = await forward(request)
        if len(lost) < 2:
            lost.append(request.method)
            return None
        return reply

    way.rule = forgetful
    with pytest.raises(errors.Unavailable):
        await put(backend, key(2), VALUE)
    await put(Retrying(backend, timing=DriverTiming(retry_first_seconds=0.01)), key(2), VALUE)
    assert lost == ["PUT", "PUT"]
    assert bytes(await backend.get(key(2))) == VALUE


@pytest.mark.parametrize("kept", [0, 1, 300, 60_000])
async def test_an_answer_that_is_cut_off_is_never_taken_for_the_value(way: Between, backend: S3, kept: int) -> None:
    await put(backend, key(1), VALUE)

    async def cutter(request: Heard, forward: Forward) -> bytes | None:
        return (await forward(request))[:kept]

    way.rule = cutter
    for start, length in ((0, None), (0, len(VALUE)), (5, 90_000)):
        with pytest.raises(errors.Unavailable):
            await backend.get(key(1), start, length)


async def test_fewer_bytes_than_were_asked_for_are_damaged(way: Between, backend: S3) -> None:
    await put(backend, key(1), VALUE)

    async def miser(request: Heard, forward: Forward) -> bytes | None:
        return answer(
            "206 Partial Content", VALUE[:10], Content_Range=f"bytes 0-9/{len(VALUE)}", ETag=md5(VALUE),
            Last_Modified="Sat, 21 Nov 2026 12:00:00 GMT",
        )  # fmt: skip

    way.rule = miser
    with pytest.raises(errors.Corrupted, match="other bytes"):
        await backend.get(key(1), 0, 50_000)


async def test_an_answer_that_comes_too_late_is_unavailable(way: Between, open_s3: OpenS3) -> None:
    backend = await open_s3(way.server)
    await put(backend, key(1), b"x")
    hasty = await open_s3(way.server, bucket=backend._settings.bucket, timeout_s=0.3)

    async def slow(request: Heard, forward: Forward) -> bytes | None:
        await asyncio.sleep(60)
        return None

    way.rule = slow
    with pytest.raises(errors.Unavailable, match="in time"):
        await hasty.get(key(1))


async def test_a_throttled_call_is_unavailable_until_it_is_let_through(way: Between, backend: S3) -> None:
    await put(backend, key(1), VALUE)
    left = [3]

    async def throttle(request: Heard, forward: Forward) -> bytes | None:
        left[0] -= 1
        return refusal("503 Slow Down", "SlowDown", "Reduce your rate.") if left[0] >= 0 else await forward(request)

    way.rule = throttle
    with pytest.raises(errors.Unavailable, match="fewer requests"):
        await backend.get(key(1))
    retried: list[str] = []
    retrying = Retrying(
        backend, timing=DriverTiming(retry_first_seconds=0.01), on_retry=lambda verb, *_: retried.append(verb)
    )
    assert bytes(await retrying.get(key(1))) == VALUE
    assert retried == ["get", "get"]


async def test_neither_library_tries_anything_again_by_itself(way: Between, backend: S3) -> None:
    """Or what `Retrying` does would multiply with it."""
    await put(backend, key(1), VALUE)

    async def failing(request: Heard, forward: Forward) -> bytes | None:
        return refusal("500 Internal Server Error", "InternalError")

    way.rule = failing
    for call in (
        lambda: put(backend, key(2), VALUE),
        lambda: backend.get(key(1)),
        lambda: backend.get(key(1), 3, 4),
        lambda: backend.stat(key(1)),
        lambda: backend.delete(key(1)),
        lambda: listed(backend.list()),
        backend.marker,
    ):
        before = len(way.heard)
        with pytest.raises(errors.Unavailable):
            await call()
        assert len(way.heard) == before + 1


async def test_a_request_to_wait_is_carried_by_the_error(way: Between, backend: S3) -> None:
    async def throttle(request: Heard, forward: Forward) -> bytes | None:
        return refusal("503 Slow Down", "SlowDown", Retry_After="7")

    way.rule = throttle
    with pytest.raises(errors.Unavailable) as caught:
        await backend.marker()
    assert caught.value.retry_after_s == 7


@pytest.mark.parametrize("page", [b"<html>Not here</html>", b""])
async def test_a_404_of_something_else_does_not_mean_that_a_value_is_gone(
    way: Between, backend: S3, page: bytes
) -> None:
    await put(backend, key(1), VALUE)

    async def other(request: Heard, forward: Forward) -> bytes | None:
        return answer("404 Not Found", page)

    way.rule = other
    for call in (backend.get(key(1)), backend.stat(key(1)), backend.get(key(1), 3, 4), backend.delete(key(1))):
        with pytest.raises(errors.Misconfigured, match="does not seem to be S3"):
            await call


async def test_a_listing_that_breaks_off_goes_on_where_it_was(way: Between, backend: S3) -> None:
    await asyncio.gather(*(put(backend, key(number), b"x") for number in range(1_200)))
    pages = []

    async def breaking(request: Heard, forward: Forward) -> bytes | None:
        pages.append(request.target)
        return None if len(pages) == 2 else await forward(request)

    way.rule = breaking
    lines = await listed(Retrying(backend, timing=DriverTiming(retry_first_seconds=0.01)).list())
    assert [line.key for line in lines] == [key(number) for number in range(1_200)]
    assert len(pages) >= 3


async def test_a_claim_whose_answer_is_lost_is_found_by_looking(way: Between, backend: S3) -> None:
    """aiohttp sends it once more by itself, on a connection that was used before; that is refused, as it should be."""
    lost: list[bytes] = []

    async def forgetful(request: Heard, forward: Forward) -> bytes | None:
        reply = await forward(request)
        if request.method == "PUT":
            lost.append(reply)
            return None
        return reply

    way.rule = forgetful
    retried: list[str] = []
    await Retrying(
        backend, timing=DriverTiming(retry_first_seconds=0.01), on_retry=lambda verb, *_: retried.append(verb)
    ).claim(Marker(SITE, 1, 1))
    assert lost[0].startswith(b"HTTP/1.1 200")
    assert retried == ["claim"]
    assert await backend.marker() == Marker(SITE, 1, 1)


class Turnstile:
    """Counts who begins to go through; `all` is set once *count* of them are through."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.begun = self.through = 0
        self.all = asyncio.Event()

    def __enter__(self) -> None:
        self.begun += 1

    def __exit__(self, *_: object) -> None:
        self.through += 1
        if self.through >= self.count:
            self.all.set()


async def test_where_conditions_are_not_heeded_who_comes_last_has_it(moto_server: S3Server, open_s3: OpenS3) -> None:
    """Two sites on a server that passes conditions over, as some clones of S3 do. Both look before either writes, and
    look again once both have written twice, which is what the pause between is for."""
    looks, writes = Turnstile(2), Turnstile(4)

    async def heedless(request: Heard, forward: Forward) -> bytes | None:
        passing = writes if request.method == "PUT" else looks
        if passing is writes:
            await looks.all.wait()
        elif passing.begun >= passing.count:
            await writes.all.wait()
        with passing:
            return await forward(request.without("if-none-match", "if-match"))

    async with between(moto_server) as way:
        timing = DriverTiming(settle_seconds=0)
        one = await open_s3(way.server, timing=timing)
        other = await open_s3(way.server, bucket=one._settings.bucket, timing=timing)
        way.rule = heedless
        markers = [Marker(SITE, 1, 1), Marker("07" * 16, 1, 1)]
        outcomes = await asyncio.gather(one.claim(markers[0]), other.claim(markers[1]), return_exceptions=True)
        winners = [marker for marker, outcome in zip(markers, outcomes, strict=True) if outcome is None]
        assert winners == [await one.marker()]
        assert sum(isinstance(outcome, errors.OwnedByAnotherSite) for outcome in outcomes) == 1
        await one.claim(winners[0])
        await one.claim(Marker(winners[0].site, 9, 2))
        assert await other.marker() == Marker(winners[0].site, 9, 2)


async def test_a_server_that_heeds_no_conditions_is_told_to_be_one(moto_server: S3Server, open_s3: OpenS3) -> None:
    async def heedless(request: Heard, forward: Forward) -> bytes | None:
        return await forward(request.without("if-none-match", "if-match"))

    async with between(moto_server) as way:
        backend = await open_s3(way.server, prefix="p")
        assert (await backend.capabilities())["conditional writes"] == "yes"
        way.rule = heedless
        assert (await backend.capabilities())["conditional writes"].startswith("If-None-Match and If-Match absent")
        assert parse_page(await backend._control.list_page("")).lines == [], "the probe is gone"


async def test_a_server_that_refuses_conditions_is_written_without(moto_server: S3Server, open_s3: OpenS3) -> None:
    async def unwilling(request: Heard, forward: Forward) -> bytes | None:
        if {"if-none-match", "if-match"} & set(request.headers):
            return refusal("501 Not Implemented", "NotImplemented")
        return await forward(request)

    async with between(moto_server) as way:
        way.rule = unwilling
        backend = await open_s3(way.server)
        await backend.claim(Marker(SITE, 1, 1))
        assert await backend.marker() == Marker(SITE, 1, 1)
        with pytest.raises(errors.OwnedByAnotherSite):
            await backend.claim(Marker("07" * 16, 1, 1))


async def test_what_stands_where_the_marker_should_is_told(way: Between, backend: S3) -> None:
    for raw in (b"", b"{}", b"[1]", b"\xff", b'{"site": 1, "backend": "x", "incarnation": 1}'):

        async def other(request: Heard, forward: Forward, raw: bytes = raw) -> bytes | None:
            return answer("200 OK", raw, ETag='"x"')

        way.rule = other
        with pytest.raises(errors.OwnedByAnotherSite, match="is no marker"):
            await backend.marker()
